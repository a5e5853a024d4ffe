"""Cutting inside what must stay, for a newest message that alone is over the budget.

The longest texts of user words and tool results give way first, each to a visible marker in its middle; both ends stay.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace

from forgetless.messages import Message, Part, Result, Text
from forgetless.tokens import Counter
from forgetless.units import Unit

__all__ = ["cut", "truncate"]

REACH = 64
"""Code points to look for a good place to cut; a longer run of joined ones is cut all the same."""

MIN_TOKENS = 48
"""A text is never cut below this: less than this says nothing beside its marker."""


def truncate(units: Sequence[Unit], pinned: Mapping[int, str], budget: int, counter: Counter) -> dict[int, Unit]:
    """Shorten what must stay until it fits.

    Args:
        units: the whole conversation.
        pinned: unit index -> reason, for what must stay.
        budget: most tokens of what must stay.
        counter: counts the tokens.

    Returns:
        Unit index -> its shorter form. What must stay may still not fit: system prompts, calls and media are not cut.
    """
    stay = [units[index] for index in sorted(pinned)]
    texts = sorted((counter.text(t.text) for u in stay if u.kind != "system" for t in _cuttable(u)), reverse=True)
    excess = sum(unit.tokens for unit in stay) - budget
    limit = max(_level(texts, excess), MIN_TOKENS)
    shorter = {unit.index: _unit(unit, limit, counter) for unit in stay if unit.kind != "system"}
    return {index: unit for index, unit in shorter.items() if unit.tokens < units[index].tokens}


def _cuttable(unit: Unit) -> list[Text]:
    """The texts of a unit that may be cut: a user's, and a tool's."""
    found: list[Text] = []
    for message in unit.messages:
        if message.role == "user":
            found.extend(part for part in message.parts if isinstance(part, Text))
        for result in message.results:
            found.extend(part for part in result.content if isinstance(part, Text) and not result.fixed)
    return found


def _level(costs: Sequence[int], excess: int) -> int:
    """The cost to cut the largest texts down to, so that `excess` is saved in all.

    Args:
        costs: descending.
        excess: tokens to save; when the texts do not hold that many, 0 comes out.
    """
    saved = 0
    for many, (cost, following) in enumerate(zip(costs, [*costs[1:], 0], strict=False), 1):
        step = many * (cost - following)
        if saved + step >= excess:
            return cost - -(-(excess - saved) // many)
        saved += step
    return 0


def _unit(unit: Unit, limit: int, counter: Counter) -> Unit:
    messages = tuple(_message(message, limit, counter) for message in unit.messages)
    return replace(unit, messages=messages, tokens=sum(map(counter.message, messages)))


def _message(message: Message, limit: int, counter: Counter) -> Message:
    def short(part: Part) -> Part:
        if isinstance(part, Text) and message.role == "user":
            return replace(part, text=cut(part.text, limit, counter))
        if isinstance(part, Result) and not part.fixed:
            inner = (replace(p, text=cut(p.text, limit, counter)) if isinstance(p, Text) else p for p in part.content)
            return replace(part, content=tuple(inner))
        return part

    return replace(message, parts=tuple(map(short, message.parts)))


def cut(text: str, limit: int, counter: Counter) -> str:
    """`text` within `limit` tokens: both ends, and between them a marker that says how much is gone.

    Cuts fall between words where there are blanks near, and never inside a character as a reader sees it.
    """
    tokens = counter.text(text)
    if tokens <= limit:
        return text
    keep = len(text) * limit // tokens
    while keep > 0:
        head = _boundary(text, keep - keep // 3, -1)
        tail = _boundary(text, len(text) - keep // 3, 1)
        middle = counter.text(text[head:tail])
        short = f"{text[:head]}\n[... {middle:,} tokens left out here ...]\n{text[tail:]}"
        over = counter.text(short) - limit
        if over <= 0:
            return short
        keep -= max(1, keep * over // (limit + over))
    return f"[... {tokens:,} tokens left out here ...]"


def _boundary(text: str, at: int, step: int) -> int:
    """The nearest good place to cut from `at` on: a blank within reach, else a border of characters."""
    for near in range(at, max(0, min(len(text), at + step * REACH)), step):
        if text[near].isspace():
            return near
    for near in range(at, max(0, min(len(text), at + step * REACH)), step):
        if near == 0 or not _joined(text[near - 1], text[near]):
            return near
    return max(0, min(len(text), at))


def _joined(left: str, right: str) -> bool:
    """Whether two code points belong to one visible character: marks, selectors, joiners, modifiers, flags."""
    return (
        unicodedata.combining(right) != 0
        or unicodedata.category(right) in ("Mn", "Mc", "Me")
        or right in "\u200d\ufe0e\ufe0f"
        or left == "\u200d"
        or "\U0001f3fb" <= right <= "\U0001f3ff"
        or ("\U0001f1e6" <= left <= "\U0001f1ff" and "\U0001f1e6" <= right <= "\U0001f1ff")
        or (left == "\r" and right == "\n")
        or "\udc00" <= right <= "\udfff"
    )
