"""Replies of Responses without their memory blocks; reasoning items pass as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forgetless.policies.ccm.blocks import Taker
from forgetless.proxy.screens.base import CUT, Make, fed, taken
from forgetless.proxy.seams.base import emit, load
from forgetless.replies.loose import count, listed, mapping, place, string
from forgetless.replies.sse import Event

__all__ = ["ResponsesScreen"]

_DELTA, _TEXT = "response.output_text.delta", "response.output_text.done"
_BROKEN = frozenset({"response.incomplete", "response.failed", "error"})
_LASTS = frozenset({"response.completed", *_BROKEN})
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

    def end(self, text: str, cut: bool | None) -> str:
        """The part is over; `text` is the whole of it, for servers that send no deltas."""
        if self.over:
            return ""
        more = "" if self.came else self.taker.feed(text)
        self.came = True
        more += self.taker.end(cut)
        self.over = not self.taker.open
        return self._more(more)

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
        self._held: list[tuple[Event, Mapping[str, Any], str, int]] = []  # the end of a message, until it is decided
        self._cut: bool | None = None  # whether the reply was cut off at the end of its text, once that is known
        self._at: dict[int, int] = {}  # place of an item -> the one that it goes on with
        self._number: int | None = None  # of the next event

    def whole(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """A reply body as it may go on."""
        return self._made(body, _cut(body))

    def feed(self, event: Event) -> bytes:
        """What may go on once an event has come."""
        data = load(event)
        if data is None:
            return event.raw
        if self._number is None:
            self._number = count(data.get("sequence_number"))
        kind, index = string(data.get("type")) or event.name, place(data.get("output_index"))
        if kind in _LASTS:
            response = mapping(data.get("response"))
            cut = kind in _BROKEN or _cut(response)
            out = self._end(cut)
            made = {**data, "response": self._made(response, cut)} if response else data
            return out + self._changed(event, data, made, index)
        if not self._held or index < 0:
            return self._any(event, data, kind, index)
        if index == self._held[0][-1] and kind.endswith(".done"):
            self._held.append((event, data, kind, index))
            return b""
        return self._decided(False) + self._any(event, data, kind, index)

    def end(self) -> bytes:
        """What was held back of texts that have not ended."""
        return self._end(True)

    def _end(self, cut: bool) -> bytes:
        """No text goes on: what was held back of them."""
        out = self._decided(cut)
        for (index, part), said in self._texts.items():
            if rest := said.end("", cut):
                data = {"type": _DELTA, "output_index": index, "content_index": part, "delta": rest}
                out += self._begin(index) + self._put(None, data, index)
        return out

    def _decided(self, cut: bool) -> bytes:
        """The end of a message that was held back, now that it is known whether its text was cut off."""
        held, self._held, self._cut = self._held, [], cut
        out = b"".join(self._any(*one) for one in held)
        self._cut = None
        return out

    def _any(self, event: Event, data: Mapping[str, Any], kind: str, index: int) -> bytes:
        """An event before the last one."""
        message = mapping(data.get("item")).get("type") == "message"
        if message and kind == "response.output_item.added":
            self._waiting[index] = [(event, data)]
            return b""
        if message and kind == "response.output_item.done":
            return self._done(event, data, index)
        return self._inside(event, data, kind, (index, max(0, place(data.get("content_index")))))

    def _made(self, response: Mapping[str, Any], cut: bool) -> Mapping[str, Any]:
        made, takers = self._bare(response, cut)
        if not self.takers:
            self.takers = takers
        return made

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
            if rest := said.end(string(data.get("text")), self._cut):
                place_ = {key: data[key] for key in _PLACE if key in data}
                out = self._begin(index) + self._put(None, {"type": _DELTA, **place_, "delta": rest}, index)
            if said.taker.open:
                self._held.append((event, data, kind, index))
                return out
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
        content = listed(item.get("content"))
        for at, part in enumerate(content):
            made = part
            if part.get("type") == "output_text":
                said = self._said((index, at))
                said.end(string(part.get("text")), self._cut if at == len(content) - 1 else False)
                if said.taker.open:
                    self._held.append((event, data, "response.output_item.done", index))
                    return b""
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

    def _bare(self, response: Mapping[str, Any], cut: bool) -> tuple[Mapping[str, Any], list[Taker]]:
        """A response without memory blocks, and what took them; `cut` where it was cut off."""
        takers: list[Taker] = []
        items = listed(response.get("output"))
        last = mapping(next(reversed(listed(items[-1].get("content"))), None) if items else None)
        cut = cut and last.get("type") == "output_text"

        def text(part: Mapping[str, Any]) -> Mapping[str, Any]:
            if part.get("type") != "output_text":
                return part
            takers.append(taker := self._make())
            made = fed(taker, string(part.get("text")), cut and part is last)
            return _put_text(part, "text", made) if taken(taker) else part

        output = []
        for item in items:
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
            made["output_text"] = fed(self._make(), response["output_text"], cut)
        return made, takers


def _cut(response: Mapping[str, Any]) -> bool:
    return string(response.get("status")) in CUT


def _put_text(data: Mapping[str, Any], key: str, text: str) -> Mapping[str, Any]:
    """A mapping with a text that may be shorter than it was, and no log-probabilities of what is gone."""
    if data.get(key) == text:
        return data
    return {**data, key: text, **({"logprobs": []} if data.get("logprobs") else {})}
