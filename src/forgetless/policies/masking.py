"""Old tool results give way to a marker that names what stood there: the cheapest good baseline in the literature.

Calls, replies and user words stay. The reasoning of closed turns goes first, since providers ignore it anyway; then
results, oldest first; and only when all of that is not enough, whole units, oldest first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from forgetless.messages import Message, Thinking
from forgetless.policies.base import Context, assemble, fits, floor, last_user, whole
from forgetless.policies.markers import changed, masked
from forgetless.policies.recency import tail
from forgetless.tokens import Counter, for_model
from forgetless.units import Unit

__all__ = ["Masking"]


@dataclass(frozen=True)
class Masking:
    """Masks tool results from the oldest on until the rest fits.

    Attributes:
        counter: counts the markers.
    """

    counter: Counter = field(default_factory=for_model)
    lazy: ClassVar[bool] = True

    def __call__(self, units: Sequence[Unit], budget: int, query: Unit | None = None) -> Context:
        """Return the masked conversation; `query` is not used."""
        if fits(units, budget):
            return whole(units, budget)
        pinned = floor(units)
        changed: dict[int, Unit] = {}
        reasons: dict[int, str] = {}
        total = sum(unit.tokens for unit in units)
        for shorter, reason in self._shorter([u for u in units if u.index not in pinned], last_user(units)):
            index = shorter.index
            total -= changed.get(index, units[index]).tokens - shorter.tokens
            changed[index], reasons[index] = shorter, reason
            if total <= budget:
                break
        now = [changed.get(unit.index, unit) for unit in units]
        kept = tail(now, pinned, budget)
        kept.update((index, reason) for index, reason in reasons.items() if index in kept)
        return assemble(units, kept, budget, pinned=pinned, changed=changed)

    def _shorter(self, units: Sequence[Unit], user: Unit | None) -> Iterator[tuple[Unit, str]]:
        """Units to put in the place of others, in the order in which to give things up, with the reason."""
        bare: dict[int, Unit] = {}
        for unit in units:
            if user is not None and unit.index < user.index:
                shorter = changed(unit, _without_thinking, self.counter)
                if shorter is not None:
                    bare[unit.index] = shorter
                    yield shorter, "thinking_removed"
        for unit in units:
            if unit.kind == "step":
                shorter = masked(bare.get(unit.index, unit), self.counter)
                if shorter is not None:
                    yield shorter, "masked"


def _without_thinking(message: Message) -> Message:
    parts = tuple(part for part in message.parts if type(part) is not Thinking)
    # A message of nothing else is an item of its own, which other items refer to: it stays.
    return replace(message, parts=parts) if 0 < len(parts) < len(message.parts) else message
