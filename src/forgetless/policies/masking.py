"""Old tool results give way to a marker that names what stood there: the cheapest good baseline in the literature.

Calls, replies and user words stay. The reasoning of closed turns goes first, since providers ignore it anyway; then
results, oldest first; and only when all of that is not enough, whole units, oldest first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import is_
from typing import ClassVar

from forgetless.messages import Message, Part, Result, Text, Thinking
from forgetless.policies.base import Context, assemble, fits, floor, last_user, whole
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
                shorter = self._changed(unit, _without_thinking)
                if shorter is not None:
                    bare[unit.index] = shorter
                    yield shorter, "thinking_removed"
        for unit in units:
            if unit.kind == "step":
                masked = self._changed(bare.get(unit.index, unit), self._masking(unit))
                if masked is not None:
                    yield masked, "masked"

    def _masking(self, unit: Unit) -> Callable[[Message], Message]:
        """What masks the results in a message of `unit`; the calls give their markers the names."""
        names = {call.id: call.name for message in unit.messages for call in message.calls}

        def change(message: Message) -> Message:
            parts = (self._mask(p, names) if type(p) is Result and not p.fixed else p for p in message.parts)
            return replace(message, parts=tuple(parts))

        return change

    def _changed(self, unit: Unit, change: Callable[[Message], Message]) -> Unit | None:
        """`unit` with its messages changed, or None where that saves nothing."""
        messages = tuple(change(message) for message in unit.messages)
        if all(map(is_, messages, unit.messages)):  # most are: counting them again would cost most of the call
            return None
        tokens = sum(map(self.counter.message, messages))
        return replace(unit, messages=messages, tokens=tokens) if tokens < unit.tokens else None

    def _mask(self, result: Result, names: Mapping[str, str]) -> Part:
        cost = self.counter.part(result)
        marker = Text(f"[result of {names.get(result.id, 'a tool')} left out: {cost:,} tokens]")
        return replace(result, content=(marker,)) if self.counter.part(marker) < cost else result


def _without_thinking(message: Message) -> Message:
    parts = tuple(part for part in message.parts if type(part) is not Thinking)
    # A message of nothing else is an item of its own, which other items refer to: it stays.
    return replace(message, parts=parts) if 0 < len(parts) < len(message.parts) else message
