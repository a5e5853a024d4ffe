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
from forgetless.errors import ConfigError
from forgetless.intake import Compaction, Intake, take
from forgetless.messages import Media, Message, Opaque, Part
from forgetless.policies.base import Context, Form, Policy, assemble, floor
from forgetless.registry import DEFAULT, load_dialect, load_policy
from forgetless.tokens import Counter
from forgetless.units import Unit

__all__ = ["Reply", "Session"]

LOW = 0.6
"""The low water mark, as a share of the room that what must stay leaves."""


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
    """What became of a unit at the last eviction."""

    form: Form
    unit: Unit | None  # what stands in its place, where it was compressed
    reason: str
    score: float | None


class Session:
    """Keeps one conversation within a budget over many calls.

    Args:
        budget: the high water mark, most tokens of a whole request; by default as in `compact`.
        low: the low water mark, as a share of the room that what must stay leaves; above 0 and at most 1.
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
        load_policy(policy, **options)  # wrong names and options are told here, not at the first request
        if dialect != "auto":
            load_dialect(dialect)
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
        sent = [(u.key, e.tokens_after) for u, e in zip(intake.units, context.ledger, strict=True) if e.tokens_after]
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

    def _held(self, intake: Intake) -> Context | None:
        """The context under the decisions of the last eviction, with all that is new appended.

        None when they hold no longer: what they left out must stay now, or stands there no more because the history
        was edited or wound back.
        """
        units, pinned = intake.units, floor(intake.units)
        gone = {key for key, decision in self._frozen.items() if decision.form != "raw"}
        if not gone <= {unit.key for unit in units}:
            self._frozen = {}
        kept: dict[int, str] = {}
        changed: dict[int, Unit] = {}
        scores: dict[int, float] = {}
        for unit in units:
            form, placed, reason, score = self._frozen.get(unit.key, _NEW)
            if score is not None:
                scores[unit.index] = score
            if form == "raw" or (unit.index in pinned and reason != "truncated"):
                if form != "raw":
                    return None
                kept[unit.index] = pinned.get(unit.index, "fits" if unit.key not in self._frozen else reason)
            elif placed is not None:
                kept[unit.index] = reason
                changed[unit.index] = _again(unit, placed, intake.counter)
        return assemble(units, kept, intake.budget, pinned=pinned, scores=scores, changed=changed)

    def _evict(self, intake: Intake, policy: Policy, room: int) -> Context:
        """Choose anew, for the low mark: that share of the room that what must stay leaves."""
        stays = intake.fixed + sum(intake.units[index].tokens for index in floor(intake.units))
        low = stays + int((room - stays) * self._low) if policy.lazy and stays <= room else room
        if self._truncate and stays > room:
            context = intake.run(policy, int(room * self._low), shorten=True)
        else:
            context = intake.run(policy, low)
        self.evictions += 1
        self._frozen = _decisions(intake.units, context)
        return replace(context, budget=intake.budget)


_NEW = _Decision("raw", None, "fits", None)


def _decisions(units: list[Unit], context: Context) -> dict[bytes, _Decision]:
    placed = {unit.index: unit for unit in context.units}
    return {
        unit.key: _Decision(
            entry.form, placed[unit.index] if entry.form == "compressed" else None, entry.reason, entry.score
        )
        for unit, entry in zip(units, context.ledger, strict=True)
    }


def _again(unit: Unit, placed: Unit, counter: Counter) -> Unit:
    """What once took the place of `unit`, over the unit's wire of today: clients move cache marks about."""
    messages = tuple(_over(now, then) for now, then in zip(unit.messages, placed.messages, strict=True))
    return replace(unit, messages=messages, tokens=sum(map(counter.message, messages)))


def _over(now: Message, then: Message) -> Message:
    """`then` with the wire of `now`, which reads the same but for what was shortened or removed."""
    today = iter(now.parts)
    parts: list[Part] = []
    for part in then.parts:
        match = next(p for p in today if type(p) is type(part))
        parts.append(match if isinstance(part, Media | Opaque) else replace(part, wire=match.wire))  # type: ignore[union-attr, arg-type]
    return replace(now, parts=tuple(parts))


def _common(before: list[tuple[bytes, int]], now: list[tuple[bytes, int]]) -> int:
    """Tokens of the longest common start of two lists of (key, tokens)."""
    same = 0
    for one, other in zip(before, now, strict=False):
        if one != other:
            break
        same += one[1]
    return same
