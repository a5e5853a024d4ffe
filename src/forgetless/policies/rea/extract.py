"""Compressing a text by whole sentences: what is left stands in it word for word.

Identifiers, numbers and spans of code are whole or gone: no sentence ends inside one. A text is compressed without
looking at a question, so that it reads the same in every later request.
"""

from __future__ import annotations

import re
from collections import Counter as Bag
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from forgetless.identifiers import identifiers
from forgetless.messages import Part, Result, Text
from forgetless.sentences import sentences
from forgetless.text import words
from forgetless.tokens import Counter
from forgetless.units import Unit

__all__ = ["Extracts", "extract", "shortened"]

SHARE = 0.35
"""Of a text's tokens, what is to be left of it."""

KNOWN = 20_000
"""Texts whose extracts are kept."""

LEFT_OUT = "[…]"

_NUMBER = re.compile(r"\d")
# What may hold the end of a sentence without ending one: code between backticks, an address, a Windows path.
_WHOLE = re.compile(
    r"(?<!`)(`+)(?!`)[^\n]+?(?<!`)\1(?!`)|[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'`<>()\[\]{}|\\^]+"
    r"|(?<!\w)[A-Za-z]:\\(?:[\w.\- ]+\\)*[\w.\-]+"
)


def extract(text: str, count: Callable[[str], int], share: float = SHARE) -> str:
    """The sentences of a text that say most for their length, with a mark where others stood.

    Args:
        text: what is to be shorter.
        count: text -> tokens.
        share: of its tokens, what may be left; one sentence always is.
    """
    spans = list(_pieces(text))
    if len(spans) < 2:
        return text
    pieces = [text[start:end] for start, end in spans]
    costs = [max(1, count(piece)) for piece in pieces]
    left = int(sum(costs) * share)
    kept: set[int] = set()
    for at in sorted(range(len(pieces)), key=_by_worth(pieces, costs)):
        if costs[at] <= left or not kept:
            kept.add(at)
            left -= costs[at]
    return _joined(text, [spans[at] if at in kept else None for at in range(len(spans))])


class Extracts:
    """Extracts of texts, each made once for what counts them."""

    def __init__(self) -> None:
        """Begin with none."""
        self._known: dict[str, tuple[object, str]] = {}

    def __call__(self, text: str, count: Callable[[str], int]) -> str:
        """As `extract`."""
        known = self._known.get(text)
        if known is not None and known[0] is count:
            return known[1]
        if len(self._known) >= KNOWN:
            self._known.clear()
        short = extract(text, count)
        self._known[text] = count, short
        return short


def shortened(unit: Unit, counter: Counter, extracts: Extracts) -> Unit:
    """A reply or a step with some of the sentences of its texts; the unit itself where that saves nothing."""

    def short(part: Part) -> Part:
        if type(part) is Text:
            return replace(part, text=extracts(part.text, counter.text))
        if type(part) is Result and not part.fixed:
            return replace(part, content=tuple(map(short, part.content)))
        return part

    messages = tuple(replace(message, parts=tuple(map(short, message.parts))) for message in unit.messages)
    tokens = sum(map(counter.message, messages))
    return replace(unit, messages=messages, tokens=tokens) if tokens < unit.tokens else unit


def _pieces(text: str) -> Iterator[tuple[int, int]]:
    """The sentences of a text, put together again where one would end inside what has to stay whole."""
    whole = [found.span() for found in _WHOLE.finditer(text)]
    first: int | None = None
    at = end = 0
    for start, end in sentences(text, code=True):
        while at < len(whole) and whole[at][1] <= end:
            at += 1
        begins = start if first is None else first
        if at < len(whole) and whole[at][0] < end:
            first = begins
        else:
            yield begins, end
            first = None
    if first is not None:
        yield first, end


def _by_worth(pieces: list[str], costs: list[int]) -> Callable[[int], tuple[float, int]]:
    """An order: what is rare in the text, names and numbers, for each token; the first sentence before its equals."""
    found = [words(piece) for piece in pieces]
    many = Bag(word for each in found for word in set(each))

    def worth(at: int) -> tuple[float, int]:
        said = sum(1 / many[word] for word in set(found[at]))
        exact = len(identifiers(pieces[at])) + len(_NUMBER.findall(pieces[at])) / 3
        return -(said + 3 * exact + (at == 0)) / (costs[at] + 4), at

    return worth


def _joined(text: str, spans: Sequence[tuple[int, int] | None]) -> str:
    """The spans of a text with what stood between them, and a mark for each run of others (None)."""
    out: list[str] = []
    end: int | None = None  # of the sentence before
    for span in spans:
        if span is None:
            out += [] if out and out[-1] == LEFT_OUT else [LEFT_OUT]
            end = None
            continue
        if end is not None:
            out[-1] += text[end : span[1]]
        else:
            out.append(text[span[0] : span[1]])
        end = span[1]
    return " ".join(out)
