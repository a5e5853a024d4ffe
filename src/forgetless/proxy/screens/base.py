"""What a screen is: a reply passes through it, and memory blocks stay behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

from forgetless.policies.ccm.blocks import Taker
from forgetless.replies.sse import Event

__all__ = ["CUT", "Make", "Screen", "fed", "taken"]

Make: TypeAlias = Callable[[], Taker]
"""Makes what takes memory blocks out of one text."""


CUT: Final = frozenset(
    {"length", "content_filter", "max_tokens", "model_context_window_exceeded", "refusal", "incomplete", "failed"}
)
"""Words of all dialects by which a reply says that it was cut off."""


class Screen(Protocol):
    """Screens one reply of one dialect. Events that need no change keep their bytes, as does a reply without blocks.

    A text that was nothing but blocks is gone as a part of the reply, for providers take no empty ones back. Where a
    reply was cut off in a block, what stands in it is dropped. The text of a block that is open at the end of its text,
    and the events that end it, wait for the event that tells.
    """

    @property
    def takers(self) -> Sequence[Taker]:
        """What took blocks out of the texts of the reply that its client goes on from."""

    def whole(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """A reply body as it may go on; the same object where nothing was in it."""

    def feed(self, event: Event) -> bytes:
        """What may go on once an event has come."""

    def end(self) -> bytes:
        """The stream is over: what was held back, where nothing has released it. It broke off if it has not ended."""


def fed(taker: Taker, text: str, cut: bool = False) -> str:
    """What goes on of a whole text; `cut` where the reply was cut off at its end."""
    return taker.feed(text) + taker.end(cut)


def taken(taker: Taker) -> bool:
    """Whether anything was taken out of a text."""
    return bool(taker.blocks or taker.broken)
