"""What a validator is: a provider's rules over wire JSON, each with a stable name for its breach."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["Fault", "Validator", "blocks_of", "canonical", "filled", "is_json", "listed", "sourced"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One breach of a provider's rule.

    Attributes:
        kind: the name of the rule, a key of the module's `RULES`.
        where: path in the request, such as `messages.3.content.0`.
        detail: what stands there.
    """

    kind: str
    where: str
    detail: str = ""


class Validator(Protocol):
    """The rules of one provider."""

    def __call__(self, body: Any, *, pending_ok: bool = False, origin: Any = None) -> list[Fault]:
        """All faults of a request, in order; none when the provider would accept it.

        Args:
            body: a whole body, or its bare list of messages.
            pending_ok: allow unanswered calls at the very end, for a caller between call and result.
            origin: the request that `body` was made from. A provider signs its reasoning and knows what it
                wrote together; from `origin` a validator knows the same.
        """


def listed(body: Any, key: str) -> Any:
    """The messages of a whole body, or the body when it is a bare list."""
    return body.get(key) if isinstance(body, Mapping) else body


def blocks_of(message: Any) -> Sequence[Mapping[str, Any]]:
    """The blocks of a message's content that are objects; none for a string."""
    content = message.get("content") if isinstance(message, Mapping) else None
    return [b for b in content if isinstance(b, Mapping)] if isinstance(content, list) else []


def sourced(kind: str, where: str, *values: object) -> Iterator[Fault]:
    """A `<kind>_without_source` fault unless one of the values is a non-empty string."""
    if not any(isinstance(value, str) and value for value in values):
        yield Fault(f"{kind}_without_source", where)


def canonical(value: object) -> str:
    """One text for equal JSON values, to compare and collect them by."""
    return json.dumps(value, sort_keys=True)


def filled(value: object) -> bool:
    """Whether a value is a string with something in it."""
    return isinstance(value, str) and bool(value)


def is_json(value: object) -> bool:
    """Whether a value is a string that parses as JSON."""
    if not isinstance(value, str):
        return False
    try:
        json.loads(value)
    except ValueError:
        return False
    return True
