"""Takes the memory out of a reply that is a JSON object, as Terminus-2's are, where it stands in a field of its own.

All else of the text stays as it is spelt. A text goes on as a whole once it is over: nobody can act on half an object.
Where the reply was cut off inside a field of memory, the text goes on up to that field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple

from forgetless.policies.ccm.blocks import Block

__all__ = ["FIELDS", "Field"]

FIELDS: Final[dict[str, Literal["whole", "edit"]]] = {"context_window": "whole", "context_window_edit": "edit"}

TRIES: Final = 64
"""Opening braces from which an object is looked for."""

_NAMED = re.compile(rf'"(?:{"|".join(FIELDS)})"[ \t\r\n]*:')
_SPACE = re.compile(r"[ \t\r\n]*")
_decoder = json.JSONDecoder(strict=False)  # models write newlines into strings


class _Member(NamedTuple):
    name: str
    value: Any
    start: int
    end: int


class Field:
    """Takes `context_window` and `context_window_edit` out of the first object that has them; see `Taker`."""

    def __init__(self) -> None:
        """Begin a text."""
        self.blocks: list[Block] = []
        self.broken = 0
        self._pieces: list[str] = []

    def feed(self, text: str) -> str:
        """Take a piece; nothing goes on before the end."""
        self._pieces.append(text)
        return ""

    @property
    def open(self) -> bool:
        """Whether there is a field that may not have ended."""
        return _NAMED.search("".join(self._pieces)) is not None

    def end(self, cut: bool | None = False) -> str:
        """The text without the fields; see `Taker`. As it was where it holds none that can be read."""
        if cut is None and self.open:
            return ""
        text = "".join(self._pieces)
        self._pieces.clear()
        return self._taken(text, bool(cut))

    def _taken(self, text: str, cut: bool) -> str:
        at = -1
        for _ in range(TRIES):
            at = text.find("{", at + 1)
            if at < 0:
                break
            members = list(_members(text, at))
            if any(member.name in FIELDS for member in members):
                self.blocks += [_block(member) for member in members if member.name in FIELDS]
                return _without(self._before(text, members[-1].end) if cut else text, members)
            at = members[-1].end if members else at
        before = self._before(text, 0)
        return before if cut else text

    def _before(self, text: str, start: int) -> str:
        """The text up to a field that was looked for from `start` on, and can't be read."""
        found = _NAMED.search(text, start)
        self.broken += found is not None
        return text[: found.start()] if found else text


def _members(text: str, start: int) -> Iterator[_Member]:
    """The members of the object that opens at `start`, up to its end or to where it can't be read."""
    at = _next(text, start + 1)
    while text[at : at + 1] == '"':
        try:
            name, end = _decoder.raw_decode(text, at)
            colon = _next(text, end)
            if text[colon : colon + 1] != ":":
                return
            value, end = _decoder.raw_decode(text, _next(text, colon + 1))
        except (ValueError, RecursionError):
            return
        comma = _next(text, end)
        if text[comma : comma + 1] not in {",", "}"}:
            return  # cut off, or a quote in the value ended it too early
        yield _Member(name, value, at, end)
        if text[comma] != ",":
            return
        at = _next(text, comma + 1)


def _next(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _block(member: _Member) -> Block:
    value, kind = member.value, FIELDS[member.name]
    if kind == "edit" and isinstance(value, list):
        value = "\n".join(map(str, value))
    return Block(kind, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _without(text: str, members: list[_Member]) -> str:
    """The text less the fields, each with a comma beside it."""
    last = max((at for at, member in enumerate(members) if member.name not in FIELDS), default=-1)
    cuts = [
        (member.start, members[at + 1].start) for at, member in enumerate(members[: last + 1]) if member.name in FIELDS
    ]
    if last < 0:
        end = _next(text, members[-1].end)
        cuts.append((members[0].start, _next(text, end + 1) if text[end : end + 1] == "," else members[-1].end))
    elif last < len(members) - 1:
        cuts.append((members[last].end, members[-1].end))
    pieces, at = [], 0
    for start, end in cuts:
        pieces.append(text[at:start])
        at = end
    return "".join([*pieces, text[at:]])
