"""What a reader of replies is: a body or an event stream in, messages and usage out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["Completion", "Reader", "Usage"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the provider counted them.

    Attributes:
        input: all that it read, cached or not.
        cached: of these, read from its cache.
        output: written, reasoning included.
    """

    input: int
    cached: int
    output: int


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole reply.

    Attributes:
        messages: what a client appends to its history: one assistant message, or items for Responses.
        usage: None where the provider did not say.
        finish: why the model stopped, in the provider's word; empty when the stream broke off.
        error: the provider's error, where one came in place of a reply or inside the stream.
    """

    messages: tuple[Mapping[str, Any], ...]
    usage: Usage | None
    finish: str
    error: Mapping[str, Any] | None = None


class Reader(Protocol):
    """Reads one reply, whole or event by event. It never raises on what a server may send: it reads what it can."""

    def body(self, body: Mapping[str, Any]) -> None:
        """Take a whole reply body, or an error body."""

    def event(self, name: str, data: Any) -> None:
        """Take one event of a stream: its name (empty where the dialect has none) and its decoded JSON data."""

    def done(self) -> Completion:
        """What was read so far, as one reply."""
