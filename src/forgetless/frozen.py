"""Decisions that hold between evictions, and what they make of a conversation that has grown since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from forgetless.dialects.base import Dialect
from forgetless.intake import Intake
from forgetless.messages import Media, Message, Opaque, Part
from forgetless.policies.base import Context, Entry, Form, assemble, floor, held
from forgetless.registry import load_dialect
from forgetless.tokens import Counter
from forgetless.units import Unit, placed

__all__ = ["Frozen", "Held"]


@dataclass(frozen=True, slots=True)
class Held:
    """A request under frozen decisions.

    Attributes:
        ledger: an entry for each unit.
        messages: what stays, in order.
        wires: the same as wire messages; None where the request holds no list of them.
        tokens: of `messages`.
        settled: what the first `stable` messages come from; the same object only ever adds to them.
        stable: how many that are.
    """

    ledger: tuple[Entry, ...]
    messages: list[Message]
    wires: list[Any] | None
    tokens: int
    settled: object
    stable: int


@dataclass
class _Settled:
    """What the decisions make of the settled units: worked out once, and only added to."""

    generation: int
    count: int = 0
    pinned: dict[int, str] = field(default_factory=dict)
    ledger: list[Entry] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    pieces: list[list[int] | Any] = field(default_factory=list)  # [start, stop] of wire messages that stay, or a wire
    tokens: int = 0

    def wires(self, now: Sequence[Any]) -> list[Any]:
        """What stays of the wire messages that came."""
        wires: list[Any] = []
        for piece in self.pieces:
            if type(piece) is list:
                wires.extend(now[piece[0] : piece[1]])
            else:
                wires.append(piece)
        return wires

    def keep(self, index: int) -> None:
        """One more wire message stays."""
        last = self.pieces[-1] if self.pieces else None
        if type(last) is list and last[1] == index:
            last[1] += 1
        else:
            self.pieces.append([index, index + 1])


class Frozen:
    """The decisions of the last eviction, by the place of each unit.

    They hold as long as the conversation is the same up to the last unit that was changed or left out. Keys of
    units are rolling, so one key tells. What has been said since is new, and stays.

    Attributes:
        decisions: the ledger of the eviction, by index of the unit.
        stands: index of a unit that was compressed -> the messages in its place.
        key: of the last unit that was changed or left out, if any was.
        end: of the last unit of all that were decided on.
        instructions: standing instructions that were found.
    """

    def __init__(
        self,
        decisions: Sequence[Entry] = (),
        stands: Mapping[int, tuple[Message, ...]] | None = None,
        key: bytes = b"",
        end: bytes = b"",
        instructions: tuple[str, ...] = (),
    ) -> None:
        """Freeze decisions."""
        self.instructions = instructions
        self.decisions = decisions
        self.stands = stands or {}
        self.key = key
        self.end = end
        self.changed = last_change(decisions) + 1
        self._settled: _Settled | None = None
        self._found = -1  # generation of the conversation in which all that was decided on is settled and the same

    @classmethod
    def of(cls, units: Sequence[Unit], context: Context) -> Frozen:
        """The decisions in a context."""
        last = last_change(context.ledger)
        if last < 0:
            return cls()
        changed = {entry.unit for entry in context.ledger if entry.form == "compressed"}
        stands = {unit.index: unit.messages for unit in context.units if unit.index in changed} if changed else None
        return cls(context.ledger, stands, units[last].key, units[-1].key, context.instructions)

    def dump(self, dialect: Dialect) -> dict[str, Any]:
        """All of it as plain JSON values."""
        wires = {index: [dialect.wire(m) for m in messages] for index, messages in self.stands.items()}
        rows = [[entry.form, entry.reason, entry.score, wires.get(entry.unit)] for entry in self.decisions]
        return {
            "dialect": dialect.name,
            "key": self.key.hex(),
            "end": self.end.hex(),
            "instructions": list(self.instructions),
            "decisions": rows,
        }

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> Frozen:
        """What `dump` made."""
        dialect = load_dialect(state["dialect"])
        rows = state["decisions"]
        entries = [Entry(n, (), form, False, score, reason, 0, 0) for n, (form, reason, score, _) in enumerate(rows)]
        stands = {n: dialect.parse(wires).messages for n, (*_, wires) in enumerate(rows) if wires is not None}
        told = tuple(state.get("instructions", ()))
        return cls(entries, stands, bytes.fromhex(state["key"]), bytes.fromhex(state["end"]), told)

    def hold(self, intake: Intake, generation: int) -> bool:
        """Whether the conversation is still the one that was decided on."""
        if not self.changed or self._found == generation:
            return True
        units, known = intake.units, len(self.decisions)
        if len(units) < self.changed or units[self.changed - 1].key != self.key:
            return False
        if known > self.changed and (len(units) < known or units[known - 1].key != self.end):
            self.decisions, self.end = self.decisions[: self.changed], self.key
            self._settled = None  # it was made of those decisions
        if intake.settled >= known:
            self._found = generation
        return True

    def over(self, intake: Intake, generation: int) -> Held | None:
        """What they make of a request that they hold for; None when something that was left out must now stay."""
        settled = self._settle(intake, generation)
        units, start = intake.units, settled.count
        pinned = floor(units, settled.pinned, start)
        ledger = settled.ledger
        if again := {i: reason for i, reason in pinned.items() if i < start and i not in settled.pinned}:
            ledger = ledger.copy()
            for index, reason in again.items():
                entry = ledger[index]
                if not _may_stand(entry.form, entry.reason):
                    return None
                ledger[index] = replace(entry, pinned=True, reason=reason if entry.form == "raw" else entry.reason)
        tail = self._context(intake, units[start:], pinned)
        if tail is None:
            return None
        new = placed(tail.units)
        wires = None if intake.wires is None else settled.wires(intake.wires)
        if wires is not None:
            wires.extend(intake.wire(index, message) for index, message in new if index >= 0)
        messages = [*settled.messages, *(message for _, message in new)]
        ledgers = (*ledger, *tail.ledger)
        return Held(ledgers, messages, wires, settled.tokens + tail.tokens, settled, len(settled.messages))

    def _settle(self, intake: Intake, generation: int) -> _Settled:
        """What they make of the settled units, those included that have settled since the last request."""
        settled = self._settled
        if settled is None or settled.generation != generation or settled.count > intake.settled:
            settled = self._settled = _Settled(generation)
        new = intake.units[settled.count : intake.settled]
        if new:
            pinned = held(new)
            context = self._context(intake, new, pinned, strict=False)
            assert context is not None
            settled.pinned.update(pinned)
            settled.ledger.extend(context.ledger)
            settled.tokens += context.tokens
            for index, message in placed(context.units):
                settled.messages.append(message)
                if index < 0:
                    continue
                if message is intake.parsed.messages[index - intake.parsed.start]:
                    settled.keep(index)
                else:
                    settled.pieces.append(intake.dialect.wire(message))
            settled.count = intake.settled
        return settled

    def _context(
        self, intake: Intake, units: Sequence[Unit], pinned: dict[int, str], *, strict: bool = True
    ) -> Context | None:
        """The context of some of the units; None when something that was changed has to stay as it is."""
        kept: dict[int, str] = {}
        changed: dict[int, Unit] = {}
        scores: dict[int, float] = {}
        gone: dict[int, str] = {}
        known = len(self.decisions)
        for unit in units:
            index = unit.index
            if index >= known:
                kept[index] = "fits"
                continue
            entry = self.decisions[index]
            form, reason = entry.form, entry.reason
            if strict and index in pinned and not _may_stand(form, reason):
                return None
            (gone if form == "omitted" else kept)[index] = reason
            if form == "compressed":
                changed[index] = _again(unit, self.stands[index], intake.counter)
            if entry.score is not None:
                scores[index] = entry.score
        return assemble(units, kept, intake.budget, pinned=pinned, scores=scores, changed=changed, dropped=gone)


def last_change(decisions: Sequence[Entry]) -> int:
    """The place of the last unit that is not as it was; -1 when all are."""
    return next((place for place in reversed(range(len(decisions))) if decisions[place].form != "raw"), -1)


def _may_stand(form: Form, reason: str) -> bool:
    """Whether a unit that must stay may stand as it was decided on: whole, or cut because it is too long."""
    return form == "raw" or reason == "truncated"


def _again(unit: Unit, messages: Sequence[Message], counter: Counter) -> Unit:
    """What once took the place of `unit`, over the unit's wire of today: clients move cache marks about."""
    made = tuple(_over(now, then) for now, then in zip(unit.messages, messages, strict=True))
    return replace(unit, messages=made, tokens=sum(map(counter.message, made)))


def _over(now: Message, then: Message) -> Message:
    """`then` with the wire of `now`, which reads the same but for what was shortened or removed."""
    today = iter(now.parts)
    parts: list[Part] = []
    for part in then.parts:
        match = next(p for p in today if type(p) is type(part))
        parts.append(match if isinstance(part, Media | Opaque) else replace(part, wire=match.wire))  # type: ignore[union-attr, arg-type]
    return replace(now, parts=tuple(parts))
