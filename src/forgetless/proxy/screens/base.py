"""What a screen is: a reply passes through it, and memory blocks stay behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from forgetless.policies.ccm.blocks import Taker
from forgetless.replies.sse import Event

__all__ = ["Make", "Screen", "fed", "taken"]

Make: TypeAlias = Callable[[], Taker]
"""Makes what takes memory blocks out of one text."""


class Screen(Protocol):
    """Screens one reply of one dialect. Events that need no change keep their bytes, as does a reply without blocks.

    A text that was nothing but blocks is gone as a part of the reply, for providers take no empty ones back.
    """

    @property
    def takers(self) -> Sequence[Taker]:
        """What took blocks out of the texts of the reply that its client goes on from."""

    def whole(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """A reply body as it may go on; the same object where nothing was in it."""

    def feed(self, event: Event) -> bytes:
        """What may go on once an event has come."""

    def end(self) -> bytes:
        """The stream is over: what was held back, where nothing has released it."""


def fed(taker: Taker, text: str) -> str:
    """What goes on of a whole text."""
    return taker.feed(text) + taker.end()


def taken(taker: Taker) -> bool:
    """Whether anything was taken out of a text."""
    return bool(taker.blocks or taker.broken)
