"""Values that grow by the deltas of a stream, and are put together once at the end, in time linear in what came."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forgetless.replies.loose import place, string

__all__ = ["Record", "Rows", "Text", "grow", "whole"]

_NAMES = frozenset({"id", "type", "role", "index", "format"})
"""What names something comes whole, and some servers give it again, or anew, with every delta: the first one stays."""

DEPTH = 4
"""How deep records may lie in one another; what lies deeper came whole."""


class Text(list[str]):
    """The pieces of a text."""


class Record(dict[str, Any]):
    """An object whose values grow."""


class Rows(list[Any]):
    """A list whose items grow."""


def grow(record: Record, delta: Mapping[str, Any], depth: int = DEPTH) -> None:
    """Add a delta: texts get longer, objects and lists are entered, all else is replaced; null changes nothing."""
    for key, new in delta.items():
        old = record.get(key)
        if new is None:
            record.setdefault(key, None)
        elif key in _NAMES:
            record[key] = new if old in (None, "") else old
        elif key == "name" and isinstance(new, str):
            record[key] = new if new == old else string(old) + new  # in pieces, or again and again
        else:
            record[key] = _grown(old, new, depth)


def whole(value: Any) -> Any:
    """What has grown, as plain JSON of its own."""
    if isinstance(value, Text):
        return "".join(value)
    if isinstance(value, Record):
        return {key: whole(item) for key, item in value.items()}
    return [whole(item) for item in value] if isinstance(value, Rows) else value


def _grown(old: Any, new: Any, depth: int) -> Any:
    if isinstance(new, str):
        if isinstance(old, list) and not isinstance(old, Text):
            new = [{"type": "text", "text": new}]
        else:
            text = old if isinstance(old, Text) else Text([old] if isinstance(old, str) else ())
            text.append(new)
            return text
    if isinstance(new, Mapping) and depth:
        record = old if isinstance(old, Record) else Record(old if isinstance(old, Mapping) else ())
        grow(record, new, depth - 1)
        return record
    if isinstance(new, list) and depth:
        rows = old if isinstance(old, Rows) else _rows(old)
        for item in new:
            _add(rows, item, depth - 1)
        return rows
    return new


def _rows(old: Any) -> Rows:
    if isinstance(old, str | Text):
        return Rows([Record(type="text", text=old)] if old else ())
    return Rows(old if isinstance(old, list) else ())


def _add(rows: Rows, item: Any, depth: int) -> None:
    """Add an item of a list to the row that it goes on: that of its index, or the last one when both are one text."""
    if not isinstance(item, Mapping):
        rows.append(item)
        return
    index, kind = place(item.get("index")), item.get("type")
    if index >= 0:
        row = next((row for row in reversed(rows) if isinstance(row, Record) and row.get("index") == index), None)
    else:
        last = rows[-1] if rows else None
        row = last if kind in ("text", "thinking") and isinstance(last, Record) and last.get("type") == kind else None
    if row is None:
        row = Record()
        rows.append(row)
    grow(row, item, depth)
