"""Replies of Anthropic Messages sewn together: blocks follow blocks, thinking included, which signs for itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forgetless.proxy.asking import NAME
from forgetless.proxy.seams.base import emit, load, total
from forgetless.replies.loose import listed, mapping, place
from forgetless.replies.sse import Event

__all__ = ["AnthropicSeam"]


class AnthropicSeam:
    """The seam of the dialect `anthropic`."""

    def __init__(self) -> None:
        """Begin before the first reply."""
        self.cut = False
        self._own = False  # a tool of the client's was called
        self._at: dict[int, int | None] = {}  # index of a block -> the one that it goes on with; None when it is cut
        self._next = 0
        self._tail: list[tuple[Event, Mapping[str, Any]]] = []
        self._later = False
        self._before: Mapping[str, Any] = {}  # tokens of the replies before
        self._usage: dict[str, Any] = {}

    def whole(self, bodies: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """One reply body out of several."""
        usage: Any = {}
        content: list[Any] = []
        for body in bodies:
            usage = total(usage, mapping(body.get("usage")))
            content += [block for block in listed(body.get("content")) if not _ours(block)]
        last = listed(bodies[-1].get("content"))
        why = bodies[-1].get("stop_reason")
        if any(map(_ours, last)) and not any(map(_acts, last)) and why == "tool_use":
            why = "end_turn"
        return {**bodies[-1], "content": content, "stop_reason": why, "usage": usage}

    def feed(self, event: Event) -> bytes:
        """Take one event; `message_delta` and what follows it are held back."""
        data = load(event)
        if data is None:
            return event.raw
        match data.get("type") or event.name:
            case "message_start":
                self._count(mapping(mapping(data.get("message")).get("usage")))
                return b"" if self._later else event.raw
            case "content_block_start":
                return self._start(event, data)
            case "content_block_delta" | "content_block_stop":
                index = place(data.get("index"))
                return self._put(event, data, self._at.get(index, index))
            case "message_delta" | "message_stop":
                self._count(mapping(data.get("usage")))
                self._tail.append((event, data))
                return b""
            case _:
                return event.raw

    def turn(self) -> bytes:
        """Go on to the next reply."""
        self._before = total(self._before, self._usage)
        self._usage, self._tail, self._at = {}, [], {}
        self.cut = self._own = False
        self._later = True
        return b""

    def end(self) -> bytes:
        """Let the end of the last reply go."""
        return b"".join(self._ended(event, data) for event, data in self._tail)

    def _start(self, event: Event, data: Mapping[str, Any]) -> bytes:
        block = mapping(data.get("content_block"))
        index = place(data.get("index"))
        if _ours(block):
            self.cut = True
            self._at[index] = None
            return b""
        self._own = self._own or _acts(block)
        self._at[index], self._next = self._next, self._next + 1
        return self._put(event, data, self._at[index])

    def _put(self, event: Event, data: Mapping[str, Any], index: int | None) -> bytes:
        if index is None:
            return b""
        return event.raw if data.get("index") == index or index < 0 else emit({**data, "index": index}, event.name)

    def _ended(self, event: Event, data: Mapping[str, Any]) -> bytes:
        delta = mapping(data.get("delta"))
        made = dict(data)
        if self.cut and not self._own and delta.get("stop_reason") == "tool_use":
            made["delta"] = {**delta, "stop_reason": "end_turn"}
        if self._before and isinstance(data.get("usage"), Mapping):
            made["usage"] = total(self._before, self._usage)
        return event.raw if made == data else emit(made, event.name)

    def _count(self, usage: Mapping[str, Any]) -> None:
        self._usage |= {key: value for key, value in usage.items() if value is not None}


def _acts(block: Mapping[str, Any]) -> bool:
    return block.get("type") == "tool_use" and block.get("name") != NAME


def _ours(block: Mapping[str, Any]) -> bool:
    return block.get("type") == "tool_use" and block.get("name") == NAME
