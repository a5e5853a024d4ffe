"""Replies of Anthropic Messages: one assistant message of content blocks, each of which may come in deltas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from forgetless.replies.base import Completion, Usage
from forgetless.replies.growing import Record, Text, grow, whole
from forgetless.replies.loose import count, fault, listed, mapping, place, string

__all__ = ["AnthropicReader"]

_COUNTS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")


class AnthropicReader:
    """Reads a reply of the dialect `anthropic`."""

    def __init__(self) -> None:
        self._role = ""
        self._blocks: dict[int, Record] = {}
        self._inputs: dict[int, Text] = {}
        self._counts: dict[str, int] = {}
        self._finish = ""
        self._error: Mapping[str, Any] | None = None

    def body(self, body: Mapping[str, Any]) -> None:
        """Take a whole reply body, or an error body."""
        body = mapping(body)
        self._error = fault(body) or self._error
        self._start(body)

    def event(self, name: str, data: Any) -> None:
        """Take one event; the counts of `message_delta` are totals."""
        data = mapping(data)
        match data.get("type") or name:
            case "message_start":
                self._start(mapping(data.get("message")))
            case "content_block_start":
                self._begin(place(data.get("index")), mapping(data.get("content_block")))
            case "content_block_delta":
                index = place(data.get("index"))
                self._delta(index if index >= 0 else len(self._blocks) - 1, mapping(data.get("delta")))
            case "message_delta":
                self._finish = string(mapping(data.get("delta")).get("stop_reason")) or self._finish
                self._count(mapping(data.get("usage")))
            case _:
                self._error = fault(data) or self._error

    def done(self) -> Completion:
        """What was read so far, as one reply. A call that broke off has the input that it began with."""
        blocks = [_block(whole(self._blocks[at]), self._inputs.get(at)) for at in sorted(self._blocks)]
        message = {"role": self._role or "assistant", "content": blocks}
        usage = None
        if self._counts:
            fresh, read, made, written = (self._counts.get(name, 0) for name in _COUNTS)
            usage = Usage(fresh + read + made, read, written)
        return Completion((message,) if blocks or self._finish else (), usage, self._finish, self._error)

    def _start(self, message: Mapping[str, Any]) -> None:
        self._role = string(message.get("role")) or self._role
        for block in listed(message.get("content")):
            self._begin(-1, block)
        self._finish = string(message.get("stop_reason")) or self._finish
        self._count(mapping(message.get("usage")))

    def _begin(self, index: int, block: Mapping[str, Any]) -> None:
        index = index if index >= 0 else len(self._blocks)
        self._blocks[index] = Record(block)
        self._inputs.pop(index, None)

    def _delta(self, index: int, delta: Mapping[str, Any]) -> None:
        block = self._blocks.get(index)
        if block is None:
            return
        for key, value in delta.items():
            match key:
                case "type":
                    continue
                case "partial_json":
                    self._inputs.setdefault(index, Text()).append(string(value))
                case "citation":
                    block["citations"] = [*listed(block.get("citations")), value]
                case "signature":
                    block[key] = value
                case _ if isinstance(value, str):  # text, thinking, and what is to come
                    grow(block, {key: value})

    def _count(self, usage: Mapping[str, Any]) -> None:
        self._counts |= {name: found for name in _COUNTS if (found := count(usage.get(name))) is not None}


def _block(block: dict[str, Any], pieces: Text | None) -> dict[str, Any]:
    if not block.get("citations", True):
        del block["citations"]  # null or empty: a stream opens every text with it, a body may leave it out
    try:
        return {**block, "input": json.loads("".join(pieces))} if pieces else block
    except (ValueError, RecursionError):
        return block
