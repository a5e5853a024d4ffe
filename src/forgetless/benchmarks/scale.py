"""A scale for what is sent: wire messages in pieces, each with its tokens and counted once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from json import dumps
from typing import Any, TypeAlias

from forgetless.registry import load_dialect
from forgetless.tokens import PER_MESSAGE, Counter

__all__ = ["Piece", "Scale", "common", "total"]

Piece: TypeAlias = tuple[str, int]
"""What stands on the wire, and its tokens."""


class Scale:
    """Weighs messages of Chat Completions. The blocks of a message are pieces of their own: a cache may end between."""

    def __init__(self, counter: Counter) -> None:
        self.counter = counter
        self._wire = load_dialect("chat")
        self._known: dict[str, int] = {}

    def weigh(self, messages: Iterable[Mapping[str, Any]]) -> list[Piece]:
        """The pieces of these messages, in order."""
        return [piece for message in messages for piece in self._pieces(message)]

    def _pieces(self, message: Mapping[str, Any]) -> Iterator[Piece]:
        content = message.get("content")
        blocks = content if isinstance(content, list) else []
        if message.get("role") == "tool" or len(blocks) < 2:
            yield self._piece(message)
            return
        yield self._piece({**message, "content": blocks[:1]})
        for block in blocks[1:]:
            text, tokens = self._piece({"role": message["role"], "content": [block]})
            yield text, tokens - PER_MESSAGE

    def _piece(self, message: Mapping[str, Any]) -> Piece:
        text = dumps(message)
        if text not in self._known:
            self._known[text] = sum(map(self.counter.message, self._wire.parse([message]).messages))
        return text, self._known[text]


def total(pieces: Iterable[Piece]) -> int:
    """Tokens of all pieces."""
    return sum(tokens for _, tokens in pieces)


def common(before: Sequence[Piece], now: Sequence[Piece]) -> int:
    """Tokens of the pieces at the start that are the same, byte for byte."""
    same = 0
    for one, other in zip(before, now, strict=False):
        if one != other:
            break
        same += one[1]
    return same
