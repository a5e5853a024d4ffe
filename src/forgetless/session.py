"""One conversation over time: decisions frozen between evictions, so that what was sent stays a prefix of what is sent.

A session acts only when a request passes the high water mark (the budget): its policy then chooses anew for the low
mark, which frees a block, and until the mark is passed again those decisions hold and new messages are only appended.
That is what a provider's prompt cache needs (`reused_tokens` says how much of each request it can read). Eager
policies choose anew at every call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from forgetless.dialects.base import Body, input_tokens
from forgetless.errors import BudgetError, ConfigError
from forgetless.intake import Compaction, Intake, take
from forgetless.policies.base import Context, Policy, assemble, floor
from forgetless.registry import DEFAULT, load_policy
from forgetless.tokens import Counter
from forgetless.units import Unit

__all__ = ["Reply", "Session"]

LOW = 0.6
"""The low water mark as a share of the budget."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's reply as the caller may see it.

    Attributes:
        message: the wire message; what a model writes for itself alone is taken out.
        input_tokens: what the provider counted for the request, or None.
    """

    message: Any
    input_tokens: int | None = None


class _Decision(NamedTuple):
    """What became of a unit at the last eviction: the unit in its place, or None when it is out."""

    unit: Unit | None
    reason: str
    score: float | None


class Session:
    """Keeps one conversation within a budget over many calls.

    Args:
        budget: the high water mark, most tokens of a whole request; by default as in `compact`.
        low: the low water mark as a share of the budget, above 0 and at most 1.
        policy: a name, or a policy made before.
        dialect: the wire format of the requests.
        counter: as in `compact`.
        model: as in `compact`.
        truncate: as in `compact`.
        options: the policy's own.

    Raises:
        ConfigError: a name or an option is wrong.
    """

    def __init__(
        self,
        *,
        budget: int | None = None,
        low: float = LOW,
        policy: str | Policy = DEFAULT,
        dialect: str = "auto",
        counter: Counter | Callable[[str], int] | None = None,
        model: str | None = None,
        truncate: bool = False,
        **options: Any,
    ) -> None:
        if not 0 < low <= 1:
            raise ConfigError(f"the low water mark must be above 0 and at most 1, not {low!r}")
        self._take: dict[str, Any] = {
            "budget": budget,
            "dialect": dialect,
            "counter": counter,
            "model": model,
        }
        self._policy: Policy | None = None  # loaded with the first request, whose model tells how to count
        self._named = (policy, options)
        self._low = low
        self._truncate = truncate
        self._frozen: dict[bytes, _Decision] = {}
        self._sent: list[tuple[bytes, int]] = []
        self._estimated = 0
        self.correction = 1.0
        self.evictions = 0

    def prepare(self, request: Body, *, pins: Collection[int] = ()) -> Compaction:
        """Bring the next request of this conversation within the budget.

        Args:
            request: the whole history so far, as in `compact`.
            pins: indices of messages that must stay.

        Raises:
            BudgetError: what must stay does not fit; nothing of the session has changed.
            RequestError: as in `compact`.
        """
        intake = take(request, pins=pins, **self._take)
        policy = self._loaded(intake.counter)
        room = int(intake.budget / self.correction)
        context = self._held(intake) if policy.lazy else None
        if context is None or context.tokens + intake.fixed > room:
            context = self._evict(intake, policy, room)
        sent = [(unit.key, entry.tokens_after) for unit, entry in zip(intake.units, context.ledger, strict=False)]
        sent = [pair for pair in sent if pair[1]]
        reused = _common(self._sent, sent)
        self._sent = sent
        done = intake.finish(replace(context, reused_tokens=reused + intake.fixed if reused else 0))
        self._estimated = done.tokens
        return done

    def observe(self, reply: Any, usage: object = None) -> Reply:
        """Take note of the reply to the request that was prepared last.

        Args:
            reply: the wire message that came back; handed on, less what a model writes for itself alone.
            usage: the provider's usage, a dict or an SDK's object, by which later counts are corrected.
        """
        counted = input_tokens(usage)
        if counted and self._estimated:
            ratio = min(2.0, max(0.5, counted / self._estimated))
            self.correction += (ratio - self.correction) / 2
        return Reply(reply, counted)

    def _loaded(self, counter: Counter) -> Policy:
        if self._policy is None:
            policy, options = self._named
            self._policy = load_policy(policy, counter=counter, **options)
        return self._policy

    def _held(self, intake: Intake) -> Context:
        """The context under the decisions of the last eviction, with all that is new appended."""
        units, pinned = intake.units, floor(intake.units)
        kept: dict[int, str] = dict(pinned)
        changed: dict[int, Unit] = {}
        scores: dict[int, float] = {}
        for unit in units:
            decision = self._frozen.get(unit.key)
            if unit.index in pinned:
                continue
            if decision is None:
                kept[unit.index] = "fits"
                continue
            if decision.score is not None:
                scores[unit.index] = decision.score
            if decision.unit is not None:
                kept[unit.index] = decision.reason
                if decision.unit.tokens != unit.tokens:
                    changed[unit.index] = decision.unit
        return assemble(units, kept, intake.budget, pinned=pinned, scores=scores, changed=changed)

    def _evict(self, intake: Intake, policy: Policy, room: int) -> Context:
        """Choose anew, for the low mark where what must stay leaves that much room, else for the high one."""
        low = int(room * self._low) if policy.lazy else room
        try:
            context = intake.run(policy, low)
        except BudgetError:
            try:
                context = intake.run(policy, room)
            except BudgetError:
                if not self._truncate:
                    raise
                context = intake.run(policy, low, shorten=True)
        self.evictions += 1
        self._frozen = _decisions(intake.units, context)
        return replace(context, budget=intake.budget)


def _decisions(units: list[Unit], context: Context) -> dict[bytes, _Decision]:
    placed = {unit.index: unit for unit in context.units}
    return {
        unit.key: _Decision(placed.get(unit.index), entry.reason, entry.score)
        for unit, entry in zip(units, context.ledger, strict=False)
    }


def _common(before: list[tuple[bytes, int]], now: list[tuple[bytes, int]]) -> int:
    """Tokens of the longest common start of two lists of (key, tokens)."""
    same = 0
    for one, other in zip(before, now, strict=False):
        if one != other:
            break
        same += one[1]
    return same
