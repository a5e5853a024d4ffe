"""What a seam is: replies out of which the calls of `recall` are cut, sewn together into the one that a client sees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from forgetless.proxy.bodies import decode, encode
from forgetless.replies import sse
from forgetless.replies.sse import Event

__all__ = ["GAP", "Seam", "emit", "load", "total"]

GAP = "\n\n"
"""What stands between two texts of Chat Completions, where one string holds both."""


class Seam(Protocol):
    """Sews replies of one dialect together. Events that need no change keep their bytes."""

    cut: bool
    """Whether a call of `recall` was cut out of the events since the last turn."""

    def whole(self, bodies: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """One reply body out of several: all that they say, and all the tokens that they took."""

    def feed(self, event: Event) -> bytes:
        """What may go on once an event has come. What ends a reply is held back."""

    def turn(self) -> bytes:
        """The reply is over, and another one follows it: what may go on of what was held back."""

    def end(self) -> bytes:
        """The reply was the last one: what was held back."""


def load(event: Event) -> Mapping[str, Any] | None:
    """The object in an event; None where there is none."""
    with suppress(ValueError, RecursionError):
        found = decode(event.data.encode("utf-8", "surrogatepass"))
        return found if isinstance(found, Mapping) else None
    return None


def emit(data: Mapping[str, Any], name: str = "") -> bytes:
    """An event as bytes."""
    return sse.encode(encode(data).decode("utf-8", "replace"), name)


def total(one: Any, other: Any) -> Any:
    """The sum of two counts of tokens: of numbers, and of the numbers in objects; of all else the later."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return {key: total(one.get(key), other.get(key)) for key in {**one, **other}}
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (one, other))
    return one + other if numbers else one if other is None else other
