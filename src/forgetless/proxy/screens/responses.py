"""Replies of Responses without their memory blocks; reasoning items pass as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forgetless.policies.ccm.blocks import Taker
from forgetless.proxy.screens.base import Make, fed, taken
from forgetless.proxy.seams.base import emit, load
from forgetless.replies.loose import count, listed, mapping, place, string
from forgetless.replies.sse import Event

__all__ = ["ResponsesScreen"]

_DELTA, _TEXT = "response.output_text.delta", "response.output_text.done"
_PLACE = ("item_id", "output_index", "content_index", "sequence_number")


class _Said:
    """The text of one part of a message, as it comes and as it goes on."""

    def __init__(self, taker: Taker) -> None:
        self.taker = taker
        self.came = self.over = False
        self.text = ""

    def feed(self, text: str) -> str:
        self.came = self.came or bool(text)
        return self._more(self.taker.feed(text))

    def end(self, text: str) -> str:
        """The part is over; `text` is the whole of it, for servers that send no deltas."""
        if self.over:
            return ""
        self.over = True
        return self._more(("" if self.came else self.taker.feed(text)) + self.taker.end())

    def _more(self, text: str) -> str:
        self.text += text
        return text


class ResponsesScreen:
    """The screen of the dialect `responses`. A message waits until something of it may go on."""

    def __init__(self, make: Make) -> None:
        """Take what makes takers."""
        self._make = make
        self.takers: Sequence[Taker] = ()
        self._texts: dict[tuple[int, int], _Said] = {}  # by the places of an item and of a part
        self._waiting: dict[int, list[tuple[Event | None, Mapping[str, Any]]]] = {}  # by the place of a message
        self._at: dict[int, int] = {}  # place of an item -> the one that it goes on with
        self._number: int | None = None  # of the next event

    def whole(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """A reply body as it may go on."""
        made, takers = self._bare(body)
        if not self.takers:
            self.takers = takers
        return made

    def feed(self, event: Event) -> bytes:
        """What may go on once an event has come."""
        data = load(event)
        if data is None:
            return event.raw
        if self._number is None:
            self._number = count(data.get("sequence_number"))
        kind, index = string(data.get("type")) or event.name, place(data.get("output_index"))
        if isinstance(response := data.get("response"), Mapping):
            made = self.whole(response) if kind.endswith(("completed", "incomplete")) else response
            return self._changed(event, data, {**data, "response": made}, index)
        if kind == "response.output_item.added" and mapping(data.get("item")).get("type") == "message":
            self._waiting[index] = [(event, data)]
            return b""
        if kind == "response.output_item.done" and mapping(data.get("item")).get("type") == "message":
            return self._done(event, data, index)
        return self._inside(event, data, kind, (index, max(0, place(data.get("content_index")))))

    def end(self) -> bytes:
        """What was held back of texts that have not ended."""
        out = b""
        for (index, part), said in self._texts.items():
            if rest := said.end(""):
                data = {"type": _DELTA, "output_index": index, "content_index": part, "delta": rest}
                out += self._begin(index) + self._put(None, data, index)
        return out

    def _said(self, part: tuple[int, int]) -> _Said:
        if part not in self._texts:
            taker = self._make()
            self.takers = [*self.takers, taker]
            self._texts[part] = _Said(taker)
        return self._texts[part]

    def _inside(self, event: Event, data: Mapping[str, Any], kind: str, part: tuple[int, int]) -> bytes:
        """An event about what is in an item."""
        index, _ = part
        if kind in (_DELTA, _TEXT) or part in self._texts:
            return self._text(event, data, kind, part)
        if index in self._waiting and kind.startswith("response.content_part"):
            self._waiting[index].append((event, data))
            return b""
        return self._begin(index) + self._put(event, data, index)

    def _text(self, event: Event, data: Mapping[str, Any], kind: str, part: tuple[int, int]) -> bytes:
        """An event about a text."""
        index, _ = part
        said, out = self._said(part), b""
        if kind == _DELTA:
            if not (more := said.feed(string(data.get("delta")))):
                return b""
            out = self._begin(index)
            return out + self._changed(event, data, _put_text(data, "delta", more), index)
        if kind == _TEXT:
            if rest := said.end(string(data.get("text"))):
                place_ = {key: data[key] for key in _PLACE if key in data}
                out = self._begin(index) + self._put(None, {"type": _DELTA, **place_, "delta": rest}, index)
            made = _put_text(data, "text", said.text)
        elif kind == "response.content_part.done":
            made = {**data, "part": _put_text(mapping(data.get("part")), "text", said.text)}
        else:
            made = data
        if index in self._waiting:
            self._waiting[index].append((event if made == data else None, made))
            return out
        return out + self._changed(event, data, made, index)

    def _done(self, event: Event, data: Mapping[str, Any], index: int) -> bytes:
        """The end of a message, whose texts some servers send in it alone."""
        item, parts = mapping(data.get("item")), []
        touched = stays = False
        for at, part in enumerate(listed(item.get("content"))):
            made = part
            if part.get("type") == "output_text":
                said = self._said((index, at))
                said.end(string(part.get("text")))
                made = _put_text(part, "text", said.text)
                touched = touched or taken(said.taker)
            parts.append(made)
            stays = stays or made.get("type") != "output_text" or bool(made.get("text"))
        if index in self._waiting and touched and not stays:
            del self._waiting[index]  # it was nothing but memory
            return b""
        out = self._begin(index)
        return out + self._changed(event, data, {**data, "item": {**item, "content": parts}}, index)

    def _begin(self, index: int) -> bytes:
        """Let go how a message began."""
        return b"".join(self._put(event, data, index) for event, data in self._waiting.pop(index, ()))

    def _changed(self, event: Event, data: Mapping[str, Any], made: Mapping[str, Any], index: int) -> bytes:
        return self._put(event if made == data else None, made, index)

    def _put(self, event: Event | None, data: Mapping[str, Any], index: int) -> bytes:
        """An event under the place and the number that are due; None as the event where its data are not what came."""
        due: dict[str, Any] = {}
        if index >= 0:
            due["output_index"] = self._at.setdefault(index, len(self._at))
        if self._number is not None and "sequence_number" in data:
            due["sequence_number"] = self._number
            self._number += 1
        same = all(data.get(key) == value for key, value in due.items())
        return event.raw if event is not None and same else emit({**data, **due}, string(data.get("type")))

    def _bare(self, response: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Taker]]:
        """A response without memory blocks, and what took them."""
        takers: list[Taker] = []

        def text(part: Mapping[str, Any]) -> Mapping[str, Any]:
            if part.get("type") != "output_text":
                return part
            takers.append(taker := self._make())
            made = fed(taker, string(part.get("text")))
            return _put_text(part, "text", made) if taken(taker) else part

        output = []
        for item in listed(response.get("output")):
            if item.get("type") != "message":
                output.append(item)
                continue
            before = len(takers)
            parts = [text(part) for part in listed(item.get("content"))]
            touched = any(map(taken, takers[before:]))
            if not touched or any(part.get("type") != "output_text" or part.get("text") for part in parts):
                output.append({**item, "content": parts} if touched else item)
        if not any(map(taken, takers)):
            return response, takers
        made = {**response, "output": output}
        if isinstance(response.get("output_text"), str):  # some servers repeat the text there
            made["output_text"] = fed(self._make(), response["output_text"])
        return made, takers


def _put_text(data: Mapping[str, Any], key: str, text: str) -> Mapping[str, Any]:
    """A mapping with a text that may be shorter than it was, and no log-probabilities of what is gone."""
    if data.get(key) == text:
        return data
    return {**data, key: text, **({"logprobs": []} if data.get("logprobs") else {})}
