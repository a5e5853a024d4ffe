"""From a request to units, and from a context back to a request: what `compact` and `Session` share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from forgetless.dialects.base import Body, Dialect, Request, detect
from forgetless.errors import BudgetError, ConfigError, RequestError
from forgetless.instructions.base import Recogniser
from forgetless.messages import Message
from forgetless.policies.base import Context, Entry, Policy, assemble, floor, sayable
from forgetless.policies.truncate import truncate
from forgetless.registry import load_dialect
from forgetless.splitting import split
from forgetless.tokens import Counter, for_model, model_facts
from forgetless.units import Unit, check, placed

if TYPE_CHECKING:
    from forgetless.policies.reminder import Reminder

__all__ = ["Compaction", "Intake", "Terms", "listed", "pinned", "take"]


@dataclass(frozen=True)
class Compaction:
    """A compacted request and what became of each of its messages.

    Attributes:
        request: of the same shape as the request that came in.
        ledger: an entry for each unit; its `messages` are indices of input messages, -1 for a system prompt field.
        tokens: of the whole request, tool schemas included.
        tokens_before: of the request that came in.
        budget: most tokens allowed for the whole request.
        instructions: standing instructions found, word for word.
        dialect: name of the wire format.
        reused_tokens: tokens at the start that equal the start of the session's previous request.
    """

    request: Any
    ledger: tuple[Entry, ...]
    tokens: int
    tokens_before: int
    budget: int
    instructions: tuple[str, ...]
    dialect: str
    reused_tokens: int = 0

    @property
    def messages(self) -> list[Any]:
        """The message list (items, for Responses) of `request`."""
        if isinstance(self.request, Mapping):
            found = self.request["input" if self.dialect == "responses" else "messages"]
            return found if isinstance(found, list) else [found]
        return list(self.request)

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain JSON values."""
        return {
            **vars(self),
            "ledger": [asdict(e) for e in self.ledger],
            "instructions": list(self.instructions),
        }


@dataclass(frozen=True)
class Intake:
    """A request taken apart.

    Attributes:
        dialect: its wire format.
        parsed: its messages and body.
        counter: what counted it.
        units: its messages as units.
        fixed: tokens of tool schemas and the like, which no policy can change.
        budget: most tokens of the whole request.
        tokens: of the whole request as it came.
        settled: how many of `units` are those of the conversation's request before, and will not change.
    """

    dialect: Dialect
    parsed: Request
    counter: Counter
    units: list[Unit]
    fixed: int
    budget: int
    tokens: int
    settled: int = 0

    def run(self, policy: Policy, budget: int, *, find: Recogniser | None = None, shorten: bool = False) -> Context:
        """Run a policy for a whole-request budget.

        Args:
            policy: what decides.
            budget: most tokens of the whole request.
            find: recognises the standing instructions that are to stay where they were given.
            shorten: cut inside what must stay where that alone is over the budget.

        Raises:
            BudgetError: what must stay does not fit; its numbers are those of the whole request.
            RequestError: above the budget, a result answers no call.
            ConfigError: the request's dialect can't say what the policy makes.
        """
        sayable(policy, self.dialect.name)
        if self.tokens > budget and not self.parsed.held:
            check(self.units)
        room = budget - self.fixed
        if find is not None:
            from forgetless.policies.instructed import Instructed

            policy = Instructed(policy, find, self.counter)
        try:
            if not shorten or self.tokens <= budget:
                return policy(self.units, room)
            shorter = truncate(self.units, floor(self.units), room, self.counter)
            return _marked(policy([shorter.get(u.index, u) for u in self.units], room), self.units, shorter)
        except BudgetError as error:
            largest, tokens = self._largest()
            raise BudgetError(
                error.floor + self.fixed, budget, largest=largest, largest_tokens=tokens, fixed=self.fixed
            ) from None

    def reminder(self, find: Recogniser | None, budget: int) -> Reminder | None:
        """The standing instructions that are to be said again beside the question of a request of `budget` tokens."""
        if find is None:
            return None
        from forgetless.policies.reminder import reminder

        return reminder(self.units, find, self.counter, budget - self.fixed)

    def _largest(self) -> tuple[int, int]:
        """Index and tokens of the longest message that must stay."""
        stays = (self.units[index] for index in floor(self.units))
        sizes = (
            (self.counter.message(message), at[0]) for u in stays for at, message in zip(u.at, u.messages, strict=True)
        )
        tokens, index = max(sizes, default=(0, 0))
        return index, tokens

    def least(self) -> Context:
        """What must stay and nothing else, whatever it takes."""
        kept = floor(self.units)
        return assemble(self.units, kept, self.budget, pinned=kept)

    def finish(self, context: Context, *, share: bool = False) -> Compaction:
        """Put a context back into the shape of the request.

        Args:
            context: what a policy made of it.
            share: hand on messages that have not changed as the very objects that came, not as copies.
        """
        request = self.shared(placed(context.units)) if share else self.dialect.emit(self.parsed, context.messages)
        return self.compaction(context, request)

    def compaction(self, context: Context, request: Any) -> Compaction:
        """The compaction to `request`, with the figures and the ledger of `context`."""
        return Compaction(
            request,
            context.ledger,
            context.tokens + self.fixed,
            self.tokens,
            self.budget,
            context.instructions,
            self.dialect.name,
            context.reused_tokens,
        )

    def shared(self, stay: list[tuple[int, Message]]) -> Any:
        """The request with these messages, each with its index, in place of its own.

        What has not changed is the very object that came.
        """
        parsed, head = self.parsed, -self.parsed.start
        outside = [message for index, message in stay[:head] if index < 0]
        if self.wires is None or list(parsed.messages[:head]) != outside:
            return self.dialect.emit(parsed, [message for _, message in stay])
        return self.put([self.wire(index, message) for index, message in stay if index >= 0])

    def put(self, wires: list[Any]) -> Any:
        """The request with these wire messages in the place of its own."""
        body = self.parsed.body
        return {**body, self.dialect.key: wires} if isinstance(body, Mapping) else wires

    def wire(self, index: int, message: Message) -> Any:
        """The wire of a message that stood at `index`."""
        if self.wires is not None and message is self.parsed.messages[index - self.parsed.start]:
            return self.wires[index]
        return self.dialect.wire(message)

    @cached_property
    def wires(self) -> Sequence[Any] | None:
        """The list of wire messages that came; None where the request holds none, such as an `input` of plain text."""
        return listed(self.parsed.body, self.dialect.key)


def listed(body: Body, key: str) -> Sequence[Any] | None:
    """The list of messages in a request; None where it holds none."""
    found = body.get(key) if isinstance(body, Mapping) else body
    return found if isinstance(found, Sequence) and not isinstance(found, str | bytes) else None


def _marked(context: Context, units: list[Unit], shorter: Mapping[int, Unit]) -> Context:
    """`context` with a ledger that tells which units were cut before the policy saw them."""
    ledger = tuple(
        replace(entry, form="compressed", reason="truncated", tokens_before=units[entry.unit].tokens)
        if entry.unit in shorter
        else entry
        for entry in context.ledger
    )
    return replace(context, ledger=ledger)


@dataclass(frozen=True)
class Terms:
    """How requests are to be taken apart; the attributes are arguments of `compact`."""

    budget: int | None = None
    dialect: str = "auto"
    counter: Counter | Callable[[str], int] | None = None
    model: str | None = None

    def count(self, request: Request) -> Counter:
        """What counts a request."""
        if self.counter is None:
            return for_model(self.model or request.model)
        return self.counter if isinstance(self.counter, Counter) else Counter(self.counter)

    def room(self, request: Request) -> int:
        """Most tokens of a request.

        Raises:
            ConfigError: no usable budget.
        """
        return _budget(self.budget, self.model or request.model, request.reply_tokens)

    def wire(self, request: Body) -> Dialect:
        """The dialect of a request.

        Raises:
            RequestError: it is no request.
        """
        if not isinstance(request, Mapping | Sequence) or isinstance(request, str | bytes):
            raise RequestError(f"a request is a dict, or a list of message dicts, not {type(request).__name__}")
        found: Dialect = load_dialect(detect(request) if self.dialect == "auto" else self.dialect)
        return found


def take(request: Body, terms: Terms, pins: Collection[int] = ()) -> Intake:
    """Take a request apart.

    Raises:
        RequestError: the request is not of its dialect.
        ConfigError: unknown dialect, no usable budget, or a pin on no message.
    """
    wire = terms.wire(request)
    parsed = wire.parse(request)
    counter, room = terms.count(parsed), terms.room(parsed)
    units = split(parsed.messages, counter, start=parsed.start, pins=pinned(parsed, pins))
    fixed = sum(map(counter.json, parsed.fixed))
    return Intake(wire, parsed, counter, units, fixed, room, fixed + sum(unit.tokens for unit in units))


def pinned(request: Request, pins: Collection[int]) -> frozenset[int]:
    """The messages that the caller and the dialect pin.

    Raises:
        ConfigError: `pins` names a message that is not there.
    """
    end = request.start + len(request.messages)
    if not isinstance(pins, Collection) or not all(isinstance(pin, int) for pin in pins):
        raise ConfigError(f"pins must be indices of messages, not {pins!r}")
    if missing := [pin for pin in pins if not request.start <= pin < end]:
        raise ConfigError(f"there is no message {missing[0]!r} to pin: the last one is {end - 1}")
    return request.pins.union(pins)


def _budget(budget: int | None, model: str | None, reply_tokens: int) -> int:
    if budget is None:
        budget = _window(model, reply_tokens)
    if not isinstance(budget, int) or isinstance(budget, bool):
        raise ConfigError(f"the budget must be a whole number of tokens, not {budget!r}")
    if budget <= 0:
        raise ConfigError(f"the budget must be above 0 tokens, not {budget!r}")
    return budget


def _window(model: str | None, reply_tokens: int) -> int:
    """The model's window less the reply: what the request says that it may take, else an eighth of the window."""
    facts = model_facts(model) if model else None
    if facts is None:
        named = f"the window of model {model!r} is not known" if model else "the request names no model"
        raise ConfigError(f"{named}: give a budget in tokens")
    if reply_tokens >= facts.window:
        raise ConfigError(
            f"a reply of {reply_tokens:,} tokens leaves nothing of the window of {model!r}, {facts.window:,}"
        )
    return facts.window - (reply_tokens if reply_tokens > 0 else facts.window // 8)
