"""The error tree: what a caller can catch, and what each error says.

`ForgetlessError` is the root. `BudgetError` carries the numbers; `RequestError` names the message or field at
fault; `ConfigError` names the option. Every message says what is wrong, with the thing itself in quotes, and
what to do about it. Nothing below the two boundaries (a proxy request, a benchmark record) catches these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = [
    "BudgetError",
    "ConfigError",
    "ForgetlessError",
    "MissingExtra",
    "ModelError",
    "RequestError",
    "StoreError",
]


class ForgetlessError(Exception):
    """Root of every error that forgetless raises on purpose."""


class BudgetError(ForgetlessError, ValueError):
    """What must stay does not fit in the budget.

    Attributes:
        floor: tokens of what must stay (system, pins, last user message, open step, tool schemas).
        budget: tokens allowed for the whole request.
        largest: index of the input message that takes most of the floor, or None.
        largest_tokens: tokens of that message.
        fixed: the part of the floor that is no message: tool schemas and the like.
    """

    def __init__(
        self, floor: int, budget: int, *, largest: int | None = None, largest_tokens: int = 0, fixed: int = 0
    ) -> None:
        self.floor = floor
        self.budget = budget
        self.largest = largest
        self.largest_tokens = largest_tokens
        self.fixed = fixed
        told = [f"message {largest} alone has {largest_tokens:,}"] if largest is not None else []
        told += [f"tool schemas have {fixed:,}"] if fixed else []
        which = f" ({', '.join(told)})" if told else ""
        super().__init__(
            f"what must stay takes {floor:,} tokens{which}, the budget is {budget:,}: raise the budget or send less; "
            "truncate=True (--truncate) cuts inside user texts and tool results"
        )


class RequestError(ForgetlessError, ValueError):
    """The request is not one that a provider would accept, or not in a known dialect.

    Attributes:
        message: index of the input message at fault, or None when the fault lies elsewhere.
    """

    def __init__(self, text: str, *, message: int | None = None) -> None:
        self.message = message
        super().__init__(text if message is None else f"message {message}: {text}")


class ConfigError(ForgetlessError, ValueError):
    """An option, a name or a file of settings is wrong."""


class ModelError(ForgetlessError):
    """A model could not be reached or answered with something unusable.

    Attributes:
        status: of the HTTP answer, or what it would be; None when no answer came.
        body: the error as the server gave it, or None.
    """

    def __init__(self, text: str, *, status: int | None = None, body: Mapping[str, Any] | None = None) -> None:
        self.status = status
        self.body = body
        super().__init__(text)


class StoreError(ForgetlessError):
    """A store could not be opened, read or written."""


class MissingExtra(ForgetlessError, ImportError):
    """An optional dependency is not installed; the message holds the install command."""

    def __init__(self, extra: str, package: str) -> None:
        self.extra = extra
        super().__init__(f"{package!r} is not installed: pip install 'forgetless[{extra}]'")
