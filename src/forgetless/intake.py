"""From a request to units, and from a context back to a request: what `compact` and `Session` share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from forgetless.dialects.base import Body, Dialect, Request, detect
from forgetless.errors import BudgetError, ConfigError, RequestError
from forgetless.policies.base import Context, Entry, Policy, floor
from forgetless.policies.truncate import truncate
from forgetless.registry import load_dialect
from forgetless.tokens import Counter, for_model, model_facts
from forgetless.units import Unit, check, split

__all__ = ["Compaction", "Intake", "take"]


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
    """

    dialect: Dialect
    parsed: Request
    counter: Counter
    units: list[Unit]
    fixed: int
    budget: int

    @cached_property
    def tokens(self) -> int:
        """Tokens of the whole request as it came."""
        return self.fixed + sum(unit.tokens for unit in self.units)

    def run(self, policy: Policy, budget: int, *, shorten: bool = False) -> Context:
        """Run a policy for a whole-request budget.

        Args:
            policy: what decides.
            budget: most tokens of the whole request.
            shorten: cut inside what must stay where that alone is over the budget.

        Raises:
            BudgetError: what must stay does not fit; its numbers are those of the whole request.
            RequestError: above the budget, a result answers no call.
        """
        if self.tokens > budget and not self.parsed.held:
            check(self.units)
        room = budget - self.fixed
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

    def _largest(self) -> tuple[int, int]:
        """Index and tokens of the longest message that must stay."""
        stays = (self.units[index] for index in floor(self.units))
        sizes = (
            (self.counter.message(message), at[0]) for u in stays for at, message in zip(u.at, u.messages, strict=True)
        )
        tokens, index = max(sizes, default=(0, 0))
        return index, tokens

    def finish(self, context: Context) -> Compaction:
        """Put a context back into the shape of the request."""
        return Compaction(
            self.dialect.emit(self.parsed, context.messages),
            context.ledger,
            context.tokens + self.fixed,
            self.tokens,
            self.budget,
            context.instructions,
            self.dialect.name,
            context.reused_tokens,
        )


def _marked(context: Context, units: list[Unit], shorter: Mapping[int, Unit]) -> Context:
    """`context` with a ledger that tells which units were cut before the policy saw them."""
    ledger = tuple(
        replace(entry, form="compressed", reason="truncated", tokens_before=units[entry.unit].tokens)
        if entry.unit in shorter
        else entry
        for entry in context.ledger
    )
    return replace(context, ledger=ledger)


def take(
    request: Body,
    *,
    budget: int | None = None,
    dialect: str = "auto",
    counter: Counter | Callable[[str], int] | None = None,
    model: str | None = None,
    pins: Collection[int] = (),
) -> Intake:
    """Take a request apart; the arguments are those of `compact`.

    Raises:
        RequestError: the request is not of its dialect.
        ConfigError: unknown dialect, or no usable budget.
    """
    if not isinstance(request, Mapping | Sequence) or isinstance(request, str | bytes):
        raise RequestError(f"a request is a dict, or a list of message dicts, not {type(request).__name__}")
    wire = load_dialect(detect(request) if dialect == "auto" else dialect)
    parsed = wire.parse(request)
    model = parsed.model if model is None else model
    if counter is None:
        counter = for_model(model)
    elif not isinstance(counter, Counter):
        counter = Counter(counter)
    room = _budget(budget, model, parsed.reply_tokens)
    end = parsed.start + len(parsed.messages)
    if not isinstance(pins, Collection) or not all(isinstance(pin, int) for pin in pins):
        raise ConfigError(f"pins must be indices of messages, not {pins!r}")
    if missing := [pin for pin in pins if not parsed.start <= pin < end]:
        raise ConfigError(f"there is no message {missing[0]!r} to pin: the last one is {end - 1}")
    units = split(parsed.messages, counter, start=parsed.start, pins={*pins, *parsed.pins})
    return Intake(wire, parsed, counter, units, sum(map(counter.json, parsed.fixed)), room)


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
