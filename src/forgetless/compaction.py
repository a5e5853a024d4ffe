"""The one-call door: a request in, a request of the same shape within its budget out, with a ledger."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from forgetless.dialects.base import Body, Request, detect
from forgetless.errors import BudgetError, ConfigError
from forgetless.policies.base import Context, Entry, Policy, floor
from forgetless.policies.truncate import truncate as shorten
from forgetless.registry import load_dialect, load_policy
from forgetless.tokens import Counter, for_model, model_facts
from forgetless.units import Unit, check, split

__all__ = ["DEFAULT", "Compaction", "compact"]

DEFAULT = "bm25"
"""The policy that is used where none is named."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """A compacted request and what became of each of its messages.

    Attributes:
        request: of the same shape as the request that came in.
        messages: the message list of `request`.
        ledger: an entry for each unit; its `messages` are indices of input messages, -1 for a system prompt field.
        tokens: of the whole request, tool schemas included.
        tokens_before: of the request that came in.
        budget: most tokens allowed for the whole request.
        instructions: standing instructions found, word for word.
        dialect: name of the wire format.
    """

    request: Any
    messages: list[Any]
    ledger: tuple[Entry, ...]
    tokens: int
    tokens_before: int
    budget: int
    instructions: tuple[str, ...]
    dialect: str

    def as_dict(self) -> dict[str, Any]:
        """Everything but `messages`, as plain JSON values."""
        return {
            "request": self.request,
            "ledger": [asdict(entry) for entry in self.ledger],
            "tokens": self.tokens,
            "tokens_before": self.tokens_before,
            "budget": self.budget,
            "instructions": list(self.instructions),
            "dialect": self.dialect,
        }


def compact(
    request: Body,
    *,
    budget: int | None = None,
    policy: str | Policy = DEFAULT,
    dialect: str = "auto",
    counter: Counter | Callable[[str], int] | None = None,
    model: str | None = None,
    pins: Collection[int] = (),
    truncate: bool = False,
    **options: Any,
) -> Compaction:
    """Bring a request within a token budget.

    Args:
        request: a list of message dicts (items, for Responses) or a whole request body; never mutated.
        budget: most tokens of the whole request. By default the model's window less the reply's `max_tokens`.
        policy: a name, or a policy made before.
        dialect: `chat`, `responses`, `anthropic`, or `auto` to tell by the shape.
        counter: counts tokens: a `Counter`, or a function text -> tokens to which `PER_MESSAGE` is added per message.
            By default the built-in estimate, scaled for the model.
        model: whose tokens to count and whose window to fill; by default the one that the body names.
        pins: indices of messages that must stay.
        truncate: when what must stay is over the budget, cut inside its longest texts in place of an error.
        options: the policy's own.

    Raises:
        BudgetError: what must stay does not fit.
        RequestError: the request is not of its dialect, or (above the budget) has a result without a call.
        ConfigError: unknown policy, dialect or option, or no usable budget.
    """
    dialect = detect(request) if dialect == "auto" else dialect
    wire = load_dialect(dialect)
    parsed: Request = wire.parse(request)
    model = model or parsed.model
    count = _counter(counter, model)
    budget = _budget(budget, model, parsed.reply_tokens)
    chosen: Policy = load_policy(policy, counter=count, **options) if isinstance(policy, str) else policy
    units = split(parsed.messages, count, start=parsed.start, pins=pins)
    fixed = sum(map(count.json, parsed.fixed))
    before = fixed + sum(unit.tokens for unit in units)
    if before > budget:
        check(units)
    context = _run(chosen, units, budget - fixed, fixed, count if truncate else None)
    body = wire.emit(parsed, context.messages)
    messages = body if not isinstance(body, Mapping) else body["input" if dialect == "responses" else "messages"]
    return Compaction(
        body, messages, context.ledger, context.tokens + fixed, before, budget, context.instructions, dialect
    )


def _counter(counter: Counter | Callable[[str], int] | None, model: str | None) -> Counter:
    if counter is None:
        return for_model(model)
    return counter if isinstance(counter, Counter) else Counter(counter)


def _budget(budget: int | None, model: str | None, reply_tokens: int) -> int:
    if budget is None:
        facts = model_facts(model) if model else None
        if facts is None:
            raise ConfigError(f"the window of model {model!r} is not known: give a budget in tokens")
        budget = facts.window - reply_tokens
    if budget <= 0:
        raise ConfigError(f"the budget must be above 0 tokens, not {budget!r}")
    return budget


def _run(policy: Policy, units: list[Unit], room: int, fixed: int, counter: Counter | None) -> Context:
    """Run the policy, on shortened units where truncation is allowed and needed."""
    try:
        if counter is None:
            return policy(units, room)
        shorter = shorten(units, floor(units), room, counter)
        if not shorter or sum(unit.tokens for unit in units) <= room:
            return policy(units, room)
        context = policy([shorter.get(unit.index, unit) for unit in units], room)
    except BudgetError as error:
        total = error.budget + fixed
        raise BudgetError(
            error.floor + fixed, total, largest=error.largest, largest_tokens=error.largest_tokens
        ) from None
    ledger = tuple(
        replace(e, form="compressed", reason="truncated", tokens_before=units[e.unit].tokens)
        if e.unit in shorter
        else e
        for e in context.ledger
    )
    return replace(context, ledger=ledger)
