"""One conversation over time: decisions frozen between evictions, so that what was sent stays a prefix of what is sent.

A session acts only when a request passes the high water mark (the budget): its policy then chooses anew for the low
mark, which frees a block, and until the mark is passed again those decisions hold and new messages are only appended.
That is what a provider's prompt cache needs (`reused_tokens` says how much of each request it can read). Eager
policies choose anew at every call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
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
        if dialect != "auto":
            load_dialect(dialect)
        self._take: dict[str, Any] = {
            "budget": budget,
            "dialect": dialect,
            "counter": counter,
            "model": model,
        }
        self._policy: Policy = load_policy(policy, **options)
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
        policy: Policy = load_policy(self._policy, counter=intake.counter)  # each request has its model's measure
        room = int(intake.budget / self.correction)
        frozen = self._standing(intake.units)
        context = _held(intake, frozen) if policy.lazy else None
        if context is None or context.tokens + intake.fixed > room:
            context = self._evict(intake, policy, room)
            frozen = _decisions(intake.units, context)
            self.evictions += 1
        self._frozen = frozen
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

    def _standing(self, units: list[Unit]) -> dict[bytes, _Decision]:
        """The decisions of the last eviction; none when the history was edited or wound back in what they changed."""
        gone = {key for key, decision in self._frozen.items() if decision.form != "raw"}
        return self._frozen if gone <= {unit.key for unit in units} else {}

    def _evict(self, intake: Intake, policy: Policy, room: int) -> Context:
        """Choose anew, for the low mark: that share of the room that what must stay leaves."""
        stays = intake.fixed + sum(intake.units[index].tokens for index in floor(intake.units))
        low = stays + int((room - stays) * self._low) if policy.lazy and stays <= room else room
        if self._truncate and stays > room:
            context = intake.run(policy, int(room * self._low), shorten=True)
        else:
            context = intake.run(policy, low)
        return replace(context, budget=intake.budget)


_NEW = _Decision("raw", None, "fits", None)


def _held(intake: Intake, frozen: Mapping[bytes, _Decision]) -> Context | None:
    """The context under frozen decisions, with all that is new appended; None when what they changed must now stay."""
    units, pinned = intake.units, floor(intake.units)
    kept: dict[int, str] = {}
    changed: dict[int, Unit] = {}
    scores: dict[int, float] = {}
    for unit in units:
        form, placed, reason, score = frozen.get(unit.key, _NEW)
        if form != "raw" and unit.index in pinned and reason != "truncated":
            return None
        if form != "omitted":
            kept[unit.index] = reason
        if placed is not None:
            changed[unit.index] = _again(unit, placed, intake.counter)
        if score is not None:
            scores[unit.index] = score
    return assemble(units, kept, intake.budget, pinned=pinned, scores=scores, changed=changed)


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
