"""The one-call door: a request in, a request of the same shape within its budget out, with a ledger."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from forgetless.dialects.base import Body
from forgetless.errors import ConfigError
from forgetless.instructions.base import Recogniser
from forgetless.instructions.load import UNKNOWN, recogniser
from forgetless.intake import Compaction, Terms, take
from forgetless.policies.base import Policy, reminds
from forgetless.registry import DEFAULT, load_policy
from forgetless.tokens import Counter

__all__ = ["compact"]


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
    instructions: str | Recogniser | None = None,
    remind: bool | None = None,
    **options: Any,
) -> Compaction:
    """Bring a request within a token budget.

    Args:
        request: a list of message dicts (items, for Responses) or a whole request body; never mutated.
        budget: most tokens of the whole request. By default the model's window less the reply's `max_tokens`
            (an eighth of the window where the request does not say).
        policy: a name, or a policy made before.
        dialect: `chat`, `responses`, `anthropic`, or `auto` to tell by the shape.
        counter: counts tokens: a `Counter`, or a function text -> tokens to which `PER_MESSAGE` is added per message.
            By default the built-in estimate, scaled for the model.
        model: whose tokens to count and whose window to fill; by default the one that the body names.
        pins: indices of messages that must stay.
        truncate: when what must stay is over the budget, cut inside its longest texts in place of an error.
        instructions: recognises standing instructions of the user, which then stay word for word: `learned`, `rules`,
            or a recogniser.
        remind: say the instructions again beside the newest question, where models follow them best, in place of
            keeping them where they were given. The question is then longer than it was, also under the budget. By
            default only the policy `rea` does.
        options: the policy's own.

    Raises:
        BudgetError: what must stay does not fit.
        RequestError: the request is not of its dialect, or (above the budget) has a result without a call.
        ConfigError: unknown policy, dialect or option, no usable budget, or nothing to be reminded of.
    """
    intake = take(request, Terms(budget, dialect, counter, model), pins)
    chosen: Policy = load_policy(policy, counter=intake.counter, **options)
    find = recogniser(instructions)
    if remind and find is None:
        raise ConfigError(UNKNOWN)
    again = intake.reminder(find, intake.budget) if reminds(chosen, remind) else None
    if again is None:
        return intake.finish(intake.run(chosen, intake.budget, find=find, shorten=truncate))
    return intake.finish(again.told(intake.run(chosen, intake.budget - again.tokens, shorten=truncate)))
