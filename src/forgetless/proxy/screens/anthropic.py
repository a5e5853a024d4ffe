"""Replies of Anthropic Messages without their memory blocks; thinking passes as it is, for it signs itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from forgetless.policies.ccm.blocks import Taker
from forgetless.proxy.screens.base import CUT, Make, fed, taken
from forgetless.proxy.seams.base import emit, load
from forgetless.replies.loose import mapping, place, string
from forgetless.replies.sse import Event

__all__ = ["AnthropicScreen"]

_Waiting: TypeAlias = list[tuple[Event | None, Mapping[str, Any]]]

_LASTS = frozenset({"message_delta", "message_stop", "error"})
"""Events behind which no block goes on."""


class AnthropicScreen:
    """The screen of the dialect `anthropic`. A text block waits until something of it may go on."""

    def __init__(self, make: Make) -> None:
        """Take what makes takers."""
        self._make = make
        self.takers: Sequence[Taker] = ()
        self._open: dict[int, Taker] = {}  # index of a text block that has not ended
        self._stopped: tuple[Event, Mapping[str, Any], int] | None = None  # the end of a text, until it is decided
        self._waiting: dict[int, _Waiting] = {}  # index of a text block -> how it began, while nothing has gone on
        self._at: dict[int, int] = {}  # index of a block -> the one that it goes on with

    def whole(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """A reply body as it may go on."""
        content = body.get("content")
        if not isinstance(content, list):
            return body
        cut = string(body.get("stop_reason")) in CUT
        last = len(content) - 1
        said = (self._said(block, cut and at == last) for at, block in enumerate(content))
        made = [block for block in said if block is not None]
        return {**body, "content": made} if any(map(taken, self.takers)) else body

    def feed(self, event: Event) -> bytes:
        """What may go on once an event has come."""
        data = load(event)
        if data is None:
            return event.raw
        index, kind = place(data.get("index")), string(data.get("type")) or event.name
        if kind in _LASTS:
            why = string(mapping(data.get("delta")).get("stop_reason"))
            return self._end(kind == "error" or why in CUT) + event.raw
        if not kind.startswith("content_block"):
            return event.raw
        out = self._decided(False)
        if kind == "content_block_start":
            return out + self._start(event, data, index)
        if index in self._open:
            return out + self._grown(event, data, index, kind)
        return out + self._put(event, data, index)

    def end(self) -> bytes:
        """What was held back of texts that have not ended."""
        return self._end(True)

    def _end(self, cut: bool) -> bytes:
        """No text goes on: what was held back of them."""
        out = self._decided(cut)
        out += b"".join(self._rest(index, cut) for index in self._open)
        self._open.clear()
        return out

    def _decided(self, cut: bool) -> bytes:
        """What was held back at the end of a text, now that it is known whether it was cut off."""
        if self._stopped is None:
            return b""
        (event, data, index), self._stopped = self._stopped, None
        return self._rest(index, cut) + self._over(event, data, index)

    def _taker(self) -> Taker:
        taker = self._make()
        self.takers = [*self.takers, taker]
        return taker

    def _said(self, block: Any, cut: bool) -> Any:
        """A block of a whole body; None where nothing is left of it."""
        if mapping(block).get("type") != "text":
            return block
        taker = self._taker()
        text = fed(taker, string(block.get("text")), cut)
        if not taken(taker):
            return block
        return {**block, "text": text} if text.strip() else None

    def _start(self, event: Event, data: Mapping[str, Any], index: int) -> bytes:
        block = mapping(data.get("content_block"))
        if block.get("type") != "text":
            return self._put(event, data, index)
        self._open[index] = self._taker()
        text = string(block.get("text"))
        self._waiting[index] = [(None if text else event, {**data, "content_block": {**block, "text": ""}})]
        return self._text(None, _delta(index, text), index, text) if text else b""

    def _grown(self, event: Event, data: Mapping[str, Any], index: int, kind: str) -> bytes:
        """An event about a text that has begun."""
        delta = mapping(data.get("delta"))
        if kind == "content_block_stop":
            return self._stop(event, data, index)
        if delta.get("type") == "text_delta":
            return self._text(event, data, index, string(delta.get("text")))
        if index in self._waiting:
            self._waiting[index].append((event, data))
            return b""
        return self._put(event, data, index)

    def _text(self, event: Event | None, data: Mapping[str, Any], index: int, text: str) -> bytes:
        """A piece of a text."""
        made = self._open[index].feed(text)
        if not made:
            return b""
        out = self._begin(index)
        return out + (self._put(event, data, index) if made == text else self._put(None, _delta(index, made), index))

    def _begin(self, index: int) -> bytes:
        """Let go how a block began."""
        return b"".join(self._put(event, data, index) for event, data in self._waiting.pop(index, ()))

    def _rest(self, index: int, cut: bool | None) -> bytes:
        """What was held back of a text, which is now over."""
        taker = self._open[index]
        rest = taker.end(cut)
        if not rest and (taker.open or taken(taker)):
            return b""
        out = self._begin(index)
        return out + self._put(None, _delta(index, rest), index) if rest else out

    def _stop(self, event: Event, data: Mapping[str, Any], index: int) -> bytes:
        out = self._rest(index, None)
        if self._open[index].open:
            self._stopped = (event, data, index)
            return out
        return out + self._over(event, data, index)

    def _over(self, event: Event, data: Mapping[str, Any], index: int) -> bytes:
        """The end of a text."""
        del self._open[index]
        if index in self._waiting:  # it was nothing but memory
            del self._waiting[index]
            return b""
        return self._put(event, data, index)

    def _put(self, event: Event | None, data: Mapping[str, Any], index: int) -> bytes:
        """An event under the index that is due; None as the event where its data are not those that came."""
        at = self._at.setdefault(index, len(self._at))
        same = index < 0 or index == at
        if event is not None and same:
            return event.raw
        return emit(data if same else {**data, "index": at}, string(data.get("type")))


def _delta(index: int, text: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": text}}
