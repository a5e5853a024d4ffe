"""Any policy, with the user's standing instructions kept word for word (REA, instructional memory).

Each stays in the place where it was given: short messages whole, of a long message the sentences that hold it. A
prompt keeps its roles and its order that way, and what was sent stays a prefix of what is sent next.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from forgetless.instructions.base import Recogniser
from forgetless.instructions.memory import Standing, ended, standing
from forgetless.messages import Text
from forgetless.policies.base import Context, Policy, fits, floor, over
from forgetless.tokens import Counter
from forgetless.units import Unit

__all__ = ["Instructed"]

SHARE = 0.5
"""Most of the room that what must stay leaves, which instructions may take; the newest come first."""

LEFT_OUT = "[…]"


@dataclass(frozen=True)
class Instructed:
    """A policy that keeps standing instructions.

    Attributes:
        policy: decides about all the rest.
        find: recognises instructions.
        counter: counts what is left of a message.
    """

    policy: Policy
    find: Recogniser
    counter: Counter

    @property
    def lazy(self) -> bool:
        """As the policy."""
        return self.policy.lazy

    def __call__(self, units: Sequence[Unit], budget: int, query: Unit | None = None) -> Context:
        """The policy's context, instructions included."""
        if self.lazy and fits(units, budget):
            return self.policy(units, budget, query)
        found = standing(units, self.find)
        if not found:
            return self.policy(units, budget, query)
        stays = floor(units)
        kept = self._kept(units, found, stays, budget - int(getattr(self.policy, "own", 0)))
        pinned = [replace(unit, pinned=True) if kept.get(unit.index) is unit else unit for unit in units]
        cut = {index: short for index, short in kept.items() if short is not units[index]}
        lost: set[int] = set()  # those that the policy has words of its own for
        while True:
            rest = sum(unit.tokens for index, unit in cut.items() if index not in lost)
            context = self.policy(pinned, budget - rest, query)
            if not (more := _lost(context, cut) - lost):
                break
            lost |= more
            pinned = [replace(cut[unit.index], pinned=True) if unit.index in more else unit for unit in pinned]
        context = _before(context, lost, units)
        context = _with(context, cut, budget)
        return replace(_told(context, found, kept), instructions=_words(found, kept, stays))

    def _kept(
        self, units: Sequence[Unit], found: Sequence[Standing], stays: Mapping[int, str], budget: int
    ) -> dict[int, Unit]:
        """What is to be kept of each unit that gives an instruction and would not stay anyway."""
        left = int((budget - sum(units[index].tokens for index in stays)) * SHARE)
        kept: dict[int, Unit] = {}
        given = groupby((one for one in reversed(found) if one.state == "instruction"), key=lambda one: one.unit)
        for index, group in given:
            if index in stays:
                if stays[index] == "opener":  # it need not stay any more once an instruction before it opens
                    kept[index] = units[index]
                continue
            short = self._short(units[index], sorted(group, key=lambda one: (one.part, one.span)))
            if short.tokens <= left:
                left -= short.tokens
                kept[index] = short
        return kept

    def _short(self, unit: Unit, given: Sequence[Standing]) -> Unit:
        """A unit with nothing but its instructions; the unit itself where that would save little."""
        (message, *_) = unit.messages
        parts = []
        for number, group in groupby(given, key=lambda one: one.part):
            part = message.parts[number]
            assert type(part) is Text
            parts.append(replace(part, text=_cut(part.text, [one.span for one in group])))
        short = replace(message, parts=tuple(parts))
        tokens = self.counter.message(short)
        if tokens * 2 > unit.tokens:
            return unit
        return replace(unit, messages=(short,), tokens=tokens)


def _cut(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """The spans of a text, with a mark where something between them is gone."""
    pieces: list[str] = []
    at = 0
    for start, end in spans:
        pieces += [LEFT_OUT] if text[at:start].strip() else []
        pieces.append(text[start:end])
        at = end
    return " ".join([*pieces, LEFT_OUT] if text[at:].strip() else pieces)


def _lost(context: Context, cut: Mapping[int, Unit]) -> set[int]:
    """The units that a policy has put into other words, and the instructions in them too."""
    stands = {unit.index: unit.text for unit in context.units}
    return {
        entry.unit
        for entry in context.ledger
        if entry.form == "compressed" and entry.unit in cut and not _holds(stands.get(entry.unit, ""), cut[entry.unit])
    }


def _holds(text: str, unit: Unit) -> bool:
    return all(piece.strip() in text for piece in unit.text.split(LEFT_OUT))


def _before(context: Context, lost: Collection[int], units: Sequence[Unit]) -> Context:
    """A context whose ledger tells that of some units only the instructions went in."""
    ledger = (
        replace(entry, form="compressed", reason="instruction", tokens_before=units[entry.unit].tokens)
        if entry.unit in lost
        else entry
        for entry in context.ledger
    )
    return replace(context, ledger=tuple(ledger))


def _with(context: Context, cut: Mapping[int, Unit], budget: int) -> Context:
    """A context with units put back in which only instructions are left, where the policy left the whole out."""
    gone = {entry.unit: cut[entry.unit] for entry in context.ledger if entry.form == "omitted" and entry.unit in cut}
    ledger = tuple(
        replace(entry, form="compressed", pinned=True, reason="instruction", tokens_after=gone[entry.unit].tokens)
        if entry.unit in gone
        else entry
        for entry in context.ledger
    )
    units = tuple(sorted((*context.units, *gone.values()), key=lambda unit: unit.index))
    return replace(context, units=units, ledger=ledger, tokens=sum(unit.tokens for unit in units), budget=budget)


def _told(context: Context, found: Sequence[Standing], kept: Mapping[int, Unit]) -> Context:
    """A context whose ledger tells which units give instructions, and which of these have ended."""
    states = ended(found)
    ledger = []
    for entry in context.ledger:
        if entry.unit in kept and entry.reason == "pinned":
            entry = replace(entry, reason="instruction")  # noqa: PLW2901
        ledger.append(over(entry, states))
    return replace(context, ledger=tuple(ledger))


def _words(found: Sequence[Standing], kept: Mapping[int, Unit], stays: Mapping[int, str]) -> tuple[str, ...]:
    return tuple(one.text for one in found if one.state == "instruction" and (one.unit in kept or one.unit in stays))
