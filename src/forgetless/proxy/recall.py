"""What was left out of a request, offered to the model by number and read back to it word for word.

What is offered depends on the decisions alone, which change at evictions only, so that a provider's prompt cache holds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forgetless.intake import Intake
from forgetless.messages import Media, Message
from forgetless.policies.base import Entry
from forgetless.policies.truncate import MIN_TOKENS, cut
from forgetless.proxy.asking import form, takes
from forgetless.text import bm25
from forgetless.tokens import Counter
from forgetless.units import Unit, text_of

__all__ = ["LEAST", "Answer", "Offer", "answer", "asked", "offer", "reserve"]

TOOL_TOKENS = 600
"""Most tokens of the tool, and at most a sixteenth of the budget."""

LIST_CHARS = 1_500
"""Most characters of the list of what was left out."""

MIN_LINE = 12
"""Characters of a line of it that says anything."""

FOUND = 5
"""Most units that a query finds."""

LEAST = 2 * MIN_TOKENS
"""Tokens of an answer below which none is worth its call."""

_ABOUT = (
    "Parts of this conversation were left out of this prompt, or shortened, to save room. When you need what one of "
    "them says, call this by `ids` from the list, or by a `query` of words that it may hold, and read it word for "
    "word. Do not tell the user about it.\n\n"
)
_PARAMETERS: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "ids": {"type": "array", "items": {"type": "integer"}, "description": "Numbers from the list."},
        "query": {"type": "string", "description": "Words to look for."},
    },
}
_KINDS = {"step": "tool call"}


@dataclass(frozen=True, slots=True)
class Offer:
    """The tool as it is offered.

    Attributes:
        evictions: how many the conversation had had.
        units: indices of the units that can be had back.
        tool: in the dialect's form.
        tokens: of the tool.
    """

    evictions: int
    units: tuple[int, ...]
    tool: Mapping[str, Any]
    tokens: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call is answered with: a text, and the indices of the units that are in it."""

    text: str
    units: tuple[int, ...]


def reserve(budget: int) -> int:
    """Tokens of a budget that are kept free for the tool and what it reads back."""
    return budget // 8


def offer(
    taken: Intake, ledger: Sequence[Entry], budget: int, evictions: int = 0, before: Offer | None = None
) -> Offer | None:
    """The tool for a request out of which something was left; None when nothing was, or when it can't be offered.

    Args:
        taken: the request.
        ledger: what became of its units.
        budget: most tokens of the request.
        evictions: how many its conversation has had; what was left out is the same until the next.
        before: what the conversation's last request offered.
    """
    if not takes(taken.dialect.name, taken.parsed.body):
        return None
    if before is not None and before.evictions == evictions and any(map(_left_out, ledger[before.units[-1] :][:1])):
        return before
    left = list(filter(_left_out, ledger))
    if not left:
        return None
    most = min(TOOL_TOKENS, budget // 16)
    for text in _lists(taken.units, left):
        if len(text) > LIST_CHARS:
            continue
        tool = form(taken.dialect.name, _ABOUT + text, _PARAMETERS)
        if (tokens := taken.counter.json([tool])) <= most:
            return Offer(evictions, tuple(entry.unit for entry in left), tool, tokens)
    return None


def _left_out(entry: Entry) -> bool:
    return entry.form in ("omitted", "compressed") and entry.reason != "thinking_removed"


def _lists(units: Sequence[Unit], left: Sequence[Entry]) -> Iterator[str]:
    """Lists of what was left out, from the fullest to the barest."""
    ids = [entry.unit for entry in left]
    shortened = {entry.unit for entry in left if entry.form == "compressed"}
    spans = _spans(ids)
    most = 1
    while True:
        pieces = [(at, min(at + most, end + 1) - 1) for first, end in spans for at in range(first, end + 1, most)]
        if len(pieces) * MIN_LINE <= LIST_CHARS:
            for many in (12, 6):
                yield "\n".join(_line(units, piece, shortened, many) for piece in pieces)
        if len(pieces) == len(spans):
            break
        most *= 2
    yield ", ".join(map(_span, spans))
    for many in (40, 10):
        if len(spans) > many:
            yield f"{', '.join(map(_span, spans[-many:]))}, and many before, to be had by `query`"
    yield f"{len(left)} parts, to be had by `query`"


def _line(units: Sequence[Unit], piece: tuple[int, int], shortened: Collection[int], many: int) -> str:
    """A line of the list: a unit, or a run of them with the first that a user said."""
    first, end = piece
    unit = next((unit for unit in units[first : end + 1] if unit.kind == "user"), units[first])
    kind = f" {_KINDS.get(unit.kind, unit.kind)}" if first == end else ""
    return f"{_span(piece)}{kind}{' (shortened)' if first in shortened else ''}: {_opening(unit, many)}"


def _opening(unit: Unit, many: int) -> str:
    """The first words of a unit."""
    return " ".join(unit.text[: 20 * many].split()[:many])[: 7 * many]


def _spans(ids: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending numbers as runs: the first and the last of each."""
    spans: list[tuple[int, int]] = []
    for index in ids:
        if spans and spans[-1][1] == index - 1:
            spans[-1] = (spans[-1][0], index)
        else:
            spans.append((index, index))
    return spans


def _span(span: tuple[int, int]) -> str:
    return str(span[0]) if span[0] == span[1] else f"{span[0]}-{span[1]}"


def asked(made: Offer, units: Sequence[Unit], arguments: str | Mapping[str, Any]) -> tuple[list[int], str]:
    """The units that a call asks for, the most wanted first, and what to say of those that there are not."""
    given = _arguments(arguments)
    ids = _numbers(given.get("ids"))
    found = [index for index in ids if index in set(made.units)]
    notes = []
    if wrong := sorted(set(ids) - set(found)):
        notes.append(f"Not among what was left out: {', '.join(map(_span, _spans(wrong)[:20]))}.")
    query = given.get("query")
    if isinstance(query, str) and query.strip():
        rest = [index for index in made.units if index not in set(found)]
        scores = bm25([units[index].text for index in rest], query)
        best = sorted(range(len(rest)), key=lambda at: (-scores[at], -rest[at]))[:FOUND]
        matches = [rest[at] for at in best if scores[at] > 0]
        found += matches
        if not matches:
            notes.append("Nothing that was left out has words of the query.")
    elif not ids:
        notes.append("Give `ids` from the list in this tool's description, or a `query`.")
    return found, " ".join(notes)


def _arguments(arguments: str | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return {}
    return arguments if isinstance(arguments, Mapping) else {}


def _numbers(given: Any) -> list[int]:
    """Numbers as models write them: 7, "7", "7-9", alone or in a list; each once."""
    found: dict[int, None] = {}
    for item in given if isinstance(given, list) else [given]:
        if isinstance(item, int) and not isinstance(item, bool):
            found[item] = None
        elif isinstance(item, str):
            for first, end in re.findall(r"(\d{1,9})(?:\s*-\s*(\d{1,9}))?", item):
                found.update(dict.fromkeys(range(int(first), min(int(end or first), int(first) + 1_000) + 1)))
    return list(found)


def answer(
    made: Offer, units: Sequence[Unit], arguments: str | Mapping[str, Any], counter: Counter, room: int
) -> Answer:
    """Answer a call.

    Args:
        made: what was offered.
        units: of the request that it was offered in.
        arguments: of the call.
        counter: counts the tokens.
        room: most tokens of the answer, at least `LEAST`.
    """
    found, note = asked(made, units, arguments)
    pieces = [note] if note else []
    shown: list[int] = []
    left = room - MIN_TOKENS - counter.text(note)  # so much is kept for the note on what finds no room
    for index in found:
        text = _reading(units[index])
        tokens = counter.text(text) + 1
        if tokens > left:
            if left >= MIN_TOKENS:
                pieces.append(cut(text, left, counter))
                shown.append(index)
            break
        pieces.append(text)
        shown.append(index)
        left -= tokens
    if missed := sorted(found[len(shown) :]):
        pieces.append(f"No room now for {', '.join(map(_span, _spans(missed)[:8]))}.")
    return Answer(cut("\n\n".join(pieces), room, counter), tuple(shown))


def _reading(unit: Unit) -> str:
    """The messages of a unit as text."""
    return "\n".join(f"--- {unit.index} {_speaker(message)} ---\n{_said(message)}" for message in unit.messages)


def _speaker(message: Message) -> str:
    return "tool" if message.results else message.role


def _said(message: Message) -> str:
    """All that can be read in a message, word for word; what can't be is named."""
    parts = (f"[{part.kind}]" if isinstance(part, Media) else text_of(part) for part in message.parts)
    return "\n".join(filter(None, parts))
