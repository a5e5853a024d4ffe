"""Replies of Anthropic Messages without their memory blocks; thinking passes as it is, for it signs itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from forgetless.policies.ccm.blocks import Taker
from forgetless.proxy.screens.base import Make, fed, taken
from forgetless.proxy.seams.base import emit, load
from forgetless.replies.loose import mapping, place, string
from forgetless.replies.sse import Event

__all__ = ["AnthropicScreen"]

_Waiting: TypeAlias = list[tuple[Event | None, Mapping[str, Any]]]


class AnthropicScreen:
    """The screen of the dialect `anthropic`. A text block waits until something of it may go on."""

    def __init__(self, make: Make) -> None:
        """Take what makes takers."""
        self._make = make
        self.takers: Sequence[Taker] = ()
        self._open: dict[int, Taker] = {}  # index of a text block that has not ended
        self._waiting: dict[int, _Waiting] = {}  # index of a text block -> how it began, while nothing has gone on
        self._at: dict[int, int] = {}  # index of a block -> the one that it goes on with

    def whole(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """A reply body as it may go on."""
        content = body.get("content")
        if not isinstance(content, list):
            return body
        made = [block for block in map(self._said, content) if block is not None]
        return {**body, "content": made} if any(map(taken, self.takers)) else body

    def feed(self, event: Event) -> bytes:
        """What may go on once an event has come."""
        data = load(event)
        if data is None:
            return event.raw
        index, kind = place(data.get("index")), string(data.get("type")) or event.name
        if kind == "content_block_start":
            return self._start(event, data, index)
        if not kind.startswith("content_block"):
            return event.raw
        return self._grown(event, data, index, kind) if index in self._open else self._put(event, data, index)

    def end(self) -> bytes:
        """What was held back of texts that have not ended."""
        return b"".join(self._rest(index) for index in list(self._open))

    def _taker(self) -> Taker:
        taker = self._make()
        self.takers = [*self.takers, taker]
        return taker

    def _said(self, block: Any) -> Any:
        """A block of a whole body; None where nothing is left of it."""
        if mapping(block).get("type") != "text":
            return block
        taker = self._taker()
        text = fed(taker, string(block.get("text")))
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

    def _rest(self, index: int) -> bytes:
        """What was held back of a text, which is now over."""
        taker = self._open.pop(index)
        rest = taker.end()
        if not rest and taken(taker):
            return b""
        out = self._begin(index)
        return out + self._put(None, _delta(index, rest), index) if rest else out

    def _stop(self, event: Event, data: Mapping[str, Any], index: int) -> bytes:
        out = self._rest(index)
        if index in self._waiting:  # it was nothing but memory
            del self._waiting[index]
            return b""
        return out + self._put(event, data, index)

    def _put(self, event: Event | None, data: Mapping[str, Any], index: int) -> bytes:
        """An event under the index that is due; None as the event where its data are not those that came."""
        at = self._at.setdefault(index, len(self._at))
        same = index < 0 or index == at
        if event is not None and same:
            return event.raw
        return emit(data if same else {**data, "index": at}, string(data.get("type")))


def _delta(index: int, text: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": text}}
