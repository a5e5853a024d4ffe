"""One conversation over time: decisions frozen between evictions, so that what was sent stays a prefix of what is sent.

A session acts only when a request passes the high water mark (the budget): its policy then chooses anew for the low
mark, which frees a block, and until the mark is passed again those decisions hold and new messages are only appended.
That is what a provider's prompt cache needs (`reused_tokens` says how much of each request it can read). Eager
policies choose anew at every call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from forgetless.dialects.base import Body, input_tokens
from forgetless.errors import ConfigError
from forgetless.frozen import Frozen, Held
from forgetless.history import History
from forgetless.instructions.base import Recogniser
from forgetless.instructions.load import UNKNOWN, recogniser
from forgetless.intake import Compaction, Intake, Terms
from forgetless.messages import Message, Result
from forgetless.policies.base import Context, Policy, floor, reminds, sayable
from forgetless.registry import DEFAULT, LASTING, load_dialect, load_policy
from forgetless.tokens import Counter
from forgetless.units import placed

if TYPE_CHECKING:
    from forgetless.policies.reminder import Reminder

__all__ = ["Reply", "Session"]

STATE = 1
"""Version of what `Session.dump` makes."""

LOW = 0.6
"""The low water mark, as a share of the room that what must stay leaves. docs/replay.md has what others cost."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's reply as the caller may see it.

    Attributes:
        message: the wire message; what a model writes for itself alone is taken out.
        input_tokens: what the provider counted for the request, or None.
    """

    message: Any
    input_tokens: int | None = None


class Session:
    """Keeps one conversation within a budget over many calls.

    Args:
        budget: the high water mark, most tokens of a whole request; by default as in `compact`.
        low: the low water mark, as a share of the room that what must stay leaves; above 0 and at most 1.
        policy: a name, or a policy made before; by default `lre`, or with `every_turn` `relevance`.
        dialect: the wire format of the requests.
        counter: as in `compact`.
        model: as in `compact`.
        truncate: as in `compact`.
        every_turn: choose anew for each request that would be over the budget whole. A policy that looks at the
            question then finds what it needs; the prompt cache is lost (docs/replay.md has the price).
        instructions: as in `compact`.
        remind: as in `compact`. What was said again is gone from the next request: a prompt cache reads up to the
            question before it.
        options: the policy's own.

    Raises:
        ConfigError: a name or an option is wrong.
    """

    def __init__(
        self,
        *,
        budget: int | None = None,
        low: float = LOW,
        policy: str | Policy | None = None,
        dialect: str = "auto",
        counter: Counter | Callable[[str], int] | None = None,
        model: str | None = None,
        truncate: bool = False,
        every_turn: bool = False,
        instructions: str | Recogniser | None = None,
        remind: bool | None = None,
        **options: Any,
    ) -> None:
        if not 0 < low <= 1:
            raise ConfigError(f"the low water mark must be above 0 and at most 1, not {low!r}")
        if dialect != "auto":
            load_dialect(dialect)
        self._history = History(Terms(budget, dialect, counter, model))
        self._named = (policy or (DEFAULT if every_turn else LASTING), options)
        self._policy: Policy = load_policy(self._named[0], **options)
        if dialect != "auto":
            sayable(self._policy, dialect)
        self.recogniser = recogniser(instructions)
        if remind and self.recogniser is None:
            raise ConfigError(UNKNOWN)
        self._reminds = reminds(self._policy, remind)
        self._find = None if self._reminds else self.recogniser
        self._low = low
        self._truncate = truncate
        self._every_turn = every_turn
        self._frozen = Frozen()
        self._sent = _Sent()
        self._estimated = 0
        self.correction = 1.0
        self.evictions = 0

    def prepare(
        self,
        request: Body,
        *,
        pins: Collection[int] = (),
        budget: int | None = None,
        policy: Policy | None = None,
    ) -> Compaction:
        """Bring the next request of this conversation within the budget.

        Messages that have not changed are in `Compaction.request` as the very objects that were given: copy what you
        want to change in it.

        Args:
            request: the whole history so far, as in `compact`.
            pins: indices of messages that must stay.
            budget: for this request only, in place of the session's.
            policy: the same.

        Raises:
            BudgetError: what must stay does not fit; nothing of the session has changed.
            RequestError: as in `compact`.
        """
        intake = self._history.take(request, pins)
        intake = intake if budget is None else replace(intake, budget=budget)
        policy = load_policy(policy or self._policy, counter=intake.counter)  # each request has its model's measure
        room = int(intake.budget / self.correction)
        again = intake.reminder(self.recogniser, room - int(getattr(policy, "own", 0))) if self._reminds else None
        room -= again.tokens if again is not None else 0
        frozen = self._frozen if self._frozen.hold(intake, self._history.generation) else Frozen()
        over = intake.tokens > room and (self._every_turn or not frozen.changed)
        anew = over or not policy.lazy
        held = None if anew else frozen.over(intake, self._history.generation)
        if held is None or held.tokens + intake.fixed > room:
            context = self._evict(intake, policy, room)
            frozen = Frozen.of(intake.units, context) if policy.lazy else Frozen()
            self.evictions += 1
            context = context if again is None else again.told(context)
            stay = placed(context.units)
            sent = _Sent([message for _, message in stay], context.tokens, intake.parsed.fixed)
            request = intake.shared(stay)
        else:
            context = Context((), held.ledger, held.tokens, intake.budget, frozen.instructions)
            if again is not None:
                context, held = again.told(context), _reminded(held, again, intake)
            sent = _Sent(held.messages, context.tokens, intake.parsed.fixed, held.settled, held.stable)
            wires = held.wires
            request = intake.dialect.emit(intake.parsed, held.messages) if wires is None else intake.put(wires)
        done = intake.compaction(context, request)
        done = replace(done, reused_tokens=self._sent.reused(sent, intake))
        self._frozen, self._sent, self._estimated = frozen, sent, done.tokens
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

    def take(self, request: Body) -> Intake:
        """Take a request apart and keep it as the last one, without preparing it.

        Raises:
            RequestError: as in `compact`.
        """
        return self._history.take(request)

    @property
    def vectors(self) -> bool:
        """Whether its policy puts memory vectors in the place of text, which few servers read."""
        return bool(getattr(self._policy, "vectors", False))

    @property
    def scorer(self) -> str:
        """Names the weights that units are scored with; empty where the policy has none."""
        return str(getattr(self._scorer, "version", ""))

    @property
    def _scorer(self) -> Any:
        return getattr(self._policy, "scorer", None)

    @property
    def taken(self) -> Intake | None:
        """The last request that was prepared, taken apart."""
        return self._history.last

    def same(self, wires: list[Any]) -> int:
        """How many of these wire messages, from the first, are those of the last request."""
        return self._history.same(wires)

    def dump(self) -> dict[str, Any]:
        """What another process needs to go on with this conversation, as plain JSON values."""
        taken = self._history.last
        frozen = self._frozen.dump(taken.dialect) if taken is not None and self._frozen.changed else None
        state = {"version": STATE, "correction": self.correction, "evictions": self.evictions, "frozen": frozen}
        weights = getattr(self._scorer, "weights", None)
        return state if weights is None else {**state, "weights": weights.dump()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what `dump` made; a state of another version is not used, which costs an eviction.

        Weights come along, so that a conversation keeps those that it began with, where this version can read them.
        """
        if state.get("version") != STATE:
            return
        if (learned := state.get("weights")) and hasattr(self._scorer, "weights"):
            with suppress(ConfigError):
                name, options = self._named
                weights = type(self._scorer.weights).loads(learned)
                self._policy = load_policy(name, **{**options, "scorer": weights})
        self.correction, self.evictions = state["correction"], state["evictions"]
        self._frozen = Frozen() if state["frozen"] is None else Frozen.load(state["frozen"])

    def _evict(self, intake: Intake, policy: Policy, room: int) -> Context:
        """Choose anew, for the low mark: that share of the room that what must stay leaves."""
        stays = intake.fixed + sum(intake.units[index].tokens for index in floor(intake.units))
        batch = policy.lazy and not self._every_turn and stays <= room
        low = stays + int((room - stays) * self._low) if batch else room
        if self._truncate and stays > room:
            context = intake.run(policy, int(room * self._low), find=self._find, shorten=True)
        else:
            context = intake.run(policy, low, find=self._find)
        return replace(context, budget=intake.budget)


def _reminded(held: Held, again: Reminder, intake: Intake) -> Held:
    """A request under frozen decisions, with the instructions beside its question."""
    asked = intake.parsed.messages[again.message - intake.parsed.start]
    own = [part for part in asked.parts if type(part) is not Result]  # results beside them may be gone
    place = next(
        at
        for at in reversed(range(len(held.messages)))
        if held.messages[at].role == asked.role and all(part in held.messages[at].parts for part in own)
    )
    said = again.beside(held.messages[place])
    messages = [*held.messages[:place], said, *held.messages[place + 1 :]]
    wires = held.wires
    if wires is not None:
        at = place + len(wires) - len(messages)  # system messages may stand outside the list
        wires = [*wires[:at], intake.dialect.wire(said), *wires[at + 1 :]]
    return replace(held, messages=messages, wires=wires, stable=min(held.stable, place))


@dataclass(frozen=True, slots=True)
class _Sent:
    """What a request of ours said: its messages, their tokens, and what else counts, such as tool schemas.

    The first `stable` messages come from `settled`, as in `Held`: they need not be compared with others from there.
    """

    messages: list[Message] = field(default_factory=list)
    tokens: int = 0
    fixed: tuple[Any, ...] = ()
    settled: object = None
    stable: int = 0

    def reused(self, now: _Sent, intake: Intake) -> int:
        """Tokens at the start of `now` that equal the start of this one. Tools stand before messages."""
        before = self.messages
        if not before or self.fixed != now.fixed:
            return 0
        same = self.stable if self.settled is not None and self.settled is now.settled else 0
        for one, other in zip(before[same:], now.messages[same : len(before)], strict=False):
            if one is not other and one != other:
                break
            same += 1
        if same == len(before):
            return self.tokens + intake.fixed
        known = {id(unit.messages[0]): unit.tokens for unit in intake.units if len(unit.messages) == 1}
        count = intake.counter.message
        return sum(known.get(id(m)) or count(m) for m in now.messages[:same]) + intake.fixed
