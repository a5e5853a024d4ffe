"""Compressing a text by whole sentences: what is left stands in it word for word, numbers and code included.

A text is compressed once and without looking at a question, so that it reads the same in every later request.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

from forgetless.identifiers import identifiers
from forgetless.sentences import sentences
from forgetless.text import words

__all__ = ["extract"]

SHARE = 0.35
"""Of a text's tokens, what is to be left of it."""

LEFT_OUT = "[…]"

_NUMBER = re.compile(r"\d")


def extract(text: str, count: Callable[[str], int], share: float = SHARE) -> str:
    """The sentences of a text that say most for their length, with a mark where others stood.

    Args:
        text: what is to be shorter.
        count: text -> tokens.
        share: of its tokens, what may be left; one sentence always is.
    """
    spans = list(sentences(text, code=True))
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


def _by_worth(pieces: list[str], costs: list[int]) -> Callable[[int], tuple[float, int]]:
    """An order: what is rare in the text, names and numbers, for each token; the first sentence before its equals."""
    found = [words(piece) for piece in pieces]
    many = Counter(word for each in found for word in set(each))

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
