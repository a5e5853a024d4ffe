"""What every policy stands on: the protocols, the ledger, what must stay, and how a context is put together.

A policy is lazy when it acts only above the budget: under it the output is the input, and its own output is a fixed
point. An eager policy (the papers' own forms) rewrites at every call. `Policy.lazy` says which.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeAlias

from forgetless.errors import BudgetError, ConfigError
from forgetless.messages import Message
from forgetless.units import Unit, join

__all__ = [
    "Context",
    "Entry",
    "Form",
    "Policy",
    "Rewriter",
    "Scorer",
    "assemble",
    "capacity",
    "fits",
    "floor",
    "held",
    "last_user",
    "opener",
    "over",
    "reminds",
    "sayable",
    "whole",
]

Form: TypeAlias = Literal["raw", "compressed", "omitted"]


@dataclass(slots=True, unsafe_hash=True)  # a value like the others; frozen ones take four times as long to make
class Entry:
    """What became of one unit.

    Attributes:
        unit: index of the unit.
        messages: indices of the input messages that it holds; -1 is a system prompt outside the list.
        form: `raw`, `compressed` or `omitted`.
        pinned: whether it had to stay.
        score: what the policy thought of it, where it scores.
        reason: why: `system`, `pinned`, `last_user`, `open`, `opener` for what had to stay, `fits` where nothing
            had to go, `instruction` for what holds a standing instruction (`replaced`, `withdrawn` and `expired` for
            what held one that has ended), else the policy's own word, such as `masked` or `over_budget`.
        tokens_before: what it cost.
        tokens_after: what it costs now; 0 when omitted.
    """

    unit: int
    messages: tuple[int, ...]
    form: Form
    pinned: bool
    score: float | None
    reason: str
    tokens_before: int
    tokens_after: int


@dataclass(frozen=True, slots=True)
class Context:
    """What the model will see, with its ledger.

    Attributes:
        units: what stays, in order: as it was, or the unit in its place.
        ledger: one entry for each unit, in the order of the units.
        tokens: of all `units`.
        budget: most tokens allowed for them.
        instructions: standing instructions found and pinned, word for word.
        reused_tokens: tokens at the start that equal the start of the session's previous context.
    """

    units: tuple[Unit, ...]
    ledger: tuple[Entry, ...]
    tokens: int
    budget: int
    instructions: tuple[str, ...] = ()
    reused_tokens: int = 0

    @property
    def messages(self) -> list[Message]:
        """The messages in order, put together from the units, ready for a dialect to emit."""
        return join(self.units)


class Policy(Protocol):
    """Units and a budget in, a context within the budget out. A stateless value."""

    @property
    def lazy(self) -> bool:
        """Whether it leaves everything as it is under the budget."""

    def __call__(self, units: Sequence[Unit], budget: int, query: Unit | None = None) -> Context:
        """Build the context.

        Args:
            units: the whole conversation, oldest first; never mutated.
            budget: most tokens of the messages, tool schemas not included.
            query: what to select for; the last user unit when None.

        Raises:
            BudgetError: what must stay does not fit.
        """


def reminds(policy: Policy, wanted: bool | None) -> bool:
    """Whether standing instructions are said again beside the question: as is wanted, or else as the policy does."""
    return bool(getattr(policy, "reminds", False)) if wanted is None else wanted


def sayable(policy: Policy, dialect: str) -> None:
    """Refuse a policy whose contexts hold memory vectors for a dialect that has no way to send them.

    Raises:
        ConfigError: says so.
    """
    if dialect != "chat" and getattr(policy, "vectors", False):
        raise ConfigError(
            f"memory vectors can't be sent in dialect {dialect!r}, only in 'chat' to a server that takes prompt "
            "embeddings: compress replies by sentences or by a model that writes"
        )


def over(entry: Entry, ended: Mapping[int, str]) -> Entry:
    """An entry that tells how its unit's instructions ended: unless it must stay anyway, or holds a summary of others.

    Args:
        entry: of the ledger.
        ended: unit index -> how, for units all of whose instructions have ended.
    """
    if entry.unit not in ended or entry.pinned or (entry.form, entry.reason) == ("compressed", "summary"):
        return entry
    return replace(entry, reason=ended[entry.unit])


class Scorer(Protocol):
    """One score per unit, higher is worth more; `Select` does the rest."""

    def __call__(self, units: Sequence[Unit], query: Unit | None = None) -> Sequence[float]:
        """Scores in the order of `units`, finite; a unit with a score below 0 is never kept for its score."""


class Rewriter(Protocol):
    """A policy whose model keeps its own memory, such as CCM: one step before a model call, one after."""

    def prompt(self, units: Sequence[Unit], memory: str, budget: int) -> Context:
        """The context for the next call: task, memory and newest observation."""

    def absorb(self, reply: Message, memory: str) -> tuple[Message, str]:
        """Split a model's reply into what the caller sees and the new memory."""


def last_user(units: Sequence[Unit]) -> Unit | None:
    """The newest user message, which is the query unless the caller names another.

    Words beside tool results come after that: agents' clients put reminders of their own there.
    """
    newest: Unit | None = None
    for unit in reversed(units):
        if unit.kind == "user":
            if not _beside(unit):
                return unit
            newest = newest or unit
    return newest


def _beside(unit: Unit) -> bool:
    """Whether a user unit is the words of a message whose results belong to a step."""
    return unit.at[0][1] > 0


def opener(units: Sequence[Unit], kept: Mapping[int, str]) -> Unit | None:
    """The user unit that has to stay so that a kept context opens with a user message.

    None when nothing is missing: the first kept unit that is not a system message is a user unit, or no user
    unit stands before it that could open.
    """
    first = min((index for index in kept if units[index].kind != "system"), default=None)
    if first is None or units[first].kind == "user":
        return None
    return next((units[index] for index in reversed(range(first)) if units[index].kind == "user"), None)


def floor(units: Sequence[Unit], settled: Mapping[int, str] | None = None, start: int = 0) -> dict[int, str]:
    """What must stay, as unit index -> reason.

    System and developer messages, what the caller pinned, the last user message and the user's newest words beside
    results, the open step with its pending calls, and the user message that opens the turn of the first of these.

    Args:
        units: the whole conversation.
        settled: what `held` found among the units before `start`, none of which is open.
        start: where to look from.
    """
    kept = {**(settled or {}), **held(units[start:] if start else units)}
    newest = next((unit for unit in reversed(units) if unit.kind == "user"), None)
    for user in (last_user(units), newest):
        if user is not None:
            kept.setdefault(user.index, "last_user")
    first = opener(units, kept)
    if first is not None:
        kept[first.index] = "opener"
    return kept


def held(units: Iterable[Unit]) -> dict[int, str]:
    """What must stay for what it is itself, wherever it stands: unit index -> reason."""
    kept: dict[int, str] = {}
    for unit in units:
        if unit.kind == "system":
            kept[unit.index] = "system"
        elif unit.pinned:
            kept[unit.index] = "pinned"
        elif unit.open:
            kept[unit.index] = "open"
    return kept


def capacity(units: Sequence[Unit], kept: Mapping[int, str], budget: int) -> int:
    """Tokens left for the rest once what must stay is in.

    Raises:
        BudgetError: nothing is left, not even for what must stay.
    """
    used = sum(units[index].tokens for index in kept)
    if used > budget:
        raise BudgetError(used, budget)
    return budget - used


def fits(units: Sequence[Unit], budget: int) -> bool:
    """Whether everything fits as it is."""
    return sum(unit.tokens for unit in units) <= budget


def whole(units: Sequence[Unit], budget: int) -> Context:
    """A context that holds everything."""
    return assemble(units, dict.fromkeys(range(len(units)), "fits"), budget, pinned=floor(units))


def assemble(
    units: Sequence[Unit],
    kept: Mapping[int, str],
    budget: int,
    *,
    pinned: Mapping[int, str],
    scores: Mapping[int, float] | None = None,
    changed: Mapping[int, Unit] | None = None,
    dropped: str | Mapping[int, str] = "over_budget",
) -> Context:
    """Put the kept units together in their old order and write the ledger.

    Args:
        units: the whole conversation.
        kept: unit index -> reason, for every unit that stays, pinned or not.
        budget: what the context was built for.
        pinned: unit index -> reason, for those that had to stay.
        scores: unit index -> score, where the policy scores.
        changed: unit index -> the unit that stands in its place, shorter than it was.
        dropped: the reason for what is left out, one for all or by unit index.
    """
    changed = changed or {}
    gone, other = ({}, dropped) if isinstance(dropped, str) else (dropped, "over_budget")
    score_of, reason_of = (scores or {}).get, kept.get
    ledger: list[Entry] = []
    stay: list[Unit] = []
    for unit in units:  # a history may have ten thousand: what is looked up here is looked up that often
        index, at, tokens = unit.index, unit.at, unit.tokens
        messages = (at[0][0],) if len(at) == 1 else tuple(dict.fromkeys([span[0] for span in at]))
        reason = reason_of(index)
        if reason is None:
            why = gone.get(index, other)
            ledger.append(Entry(index, messages, "omitted", index in pinned, score_of(index), why, tokens, 0))
        elif index in changed:
            now = changed[index]
            stay.append(now)
            held = index in pinned
            ledger.append(Entry(index, messages, "compressed", held, score_of(index), reason, tokens, now.tokens))
        elif index in pinned:
            stay.append(unit)
            ledger.append(Entry(index, messages, "raw", True, score_of(index), pinned[index], tokens, tokens))
        else:
            stay.append(unit)
            ledger.append(Entry(index, messages, "raw", False, score_of(index), reason, tokens, tokens))
    return Context(tuple(stay), tuple(ledger), sum([unit.tokens for unit in stay]), budget)
