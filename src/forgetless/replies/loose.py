"""What a server sent, read without trusting it: whatever is not of the kind that is asked for reads as nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["count", "fault", "listed", "mapping", "place", "string"]


def mapping(value: Any) -> Mapping[str, Any]:
    """`value`, or an empty mapping."""
    return value if isinstance(value, Mapping) else {}


def listed(value: Any) -> list[Mapping[str, Any]]:
    """The mappings that a list holds; none when it is no list."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list | tuple) else []


def string(value: Any) -> str:
    """`value`, or an empty string."""
    return value if isinstance(value, str) else ""


def count(value: Any) -> int | None:
    """`value` where it counts something, or None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def place(value: Any) -> int:
    """`value` as an index, or -1."""
    found = count(value)
    return -1 if found is None else found


def fault(data: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The error that a body or an event tells of, in the shapes that servers of all dialects use, or None."""
    error = data.get("error")
    if isinstance(error, Mapping) and error:
        return error
    if isinstance(error, str) and error:
        return {"message": error}
    # An event of Responses, and a body of some servers, is the error itself.
    return data if "error" in (data.get("type"), data.get("object")) else None
