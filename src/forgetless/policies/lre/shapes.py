"""What the characters of texts look like: counts of character classes and of patterns where two of them meet.

All texts go through numpy as one array of code points, so that a character costs a few nanoseconds.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

__all__ = ["SHAPES", "shapes"]

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

SHAPES = ("numbers", "names", "mixed", "questions", "quotes", "code", "paths", "urls", "dates", "lines")
"""Columns of `shapes`: runs of digits, capitalised words within a sentence, borders of letters and digits and inner
capitals (which identifiers have), question marks, quotation marks, characters of code, slashes behind a word, `://`,
digits joined to digits by a mark, line breaks."""

_OTHER, _BLANK, _DIGIT, _LOWER, _UPPER, _LETTER, _QUESTION, _QUOTE, _CODE, _SLASH, _JOIN, _BREAK = range(12)

_MARKS = {
    _BREAK: "\n",
    _QUESTION: "?？؟",
    _QUOTE: "\"'`“”‘’«»「」『』",
    _CODE: "{}[]()<>=;|&$#*~^%+",
    _SLASH: "/\\",
    _JOIN: "_-.@:",
}
_MARK = {character: kind for kind, characters in _MARKS.items() for character in characters}


def _class(character: str) -> int:
    if character in _MARK:
        return _MARK[character]
    category = unicodedata.category(character)
    if category == "Nd":
        return _DIGIT
    if category in ("Lu", "Lt"):
        return _UPPER
    if category in ("Ll", "Mn", "Mc"):
        return _LOWER
    if category[0] == "L":
        return _LETTER  # of a script without capitals
    return _BLANK if character.isspace() else _OTHER


@cache
def _table(size: int) -> NDArray[np.uint8]:
    return np.array([_class(chr(code)) for code in range(size)], np.uint8)


def _classes(text: str) -> NDArray[np.uint8]:
    if text.isascii():
        return _table(0x80)[np.frombuffer(text.encode("ascii"), np.uint8)]
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    return _table(0x10000)[np.minimum(codes, 0xFFFF)]


def _patterns(kinds: NDArray[np.uint8]) -> list[Flags]:
    """A flag for each character and shape; only what stands before a character is looked at."""
    last, before = np.roll(kinds, 1), np.roll(kinds, 2)  # texts end with two breaks, so that none sees another
    digit, upper, lower = kinds == _DIGIT, kinds == _UPPER, kinds == _LOWER
    was_digit, was_lower = last == _DIGIT, last == _LOWER
    was_letter = was_lower | (last == _UPPER)
    slash = kinds == _SLASH
    return [
        digit & ~was_digit,
        upper & (last == _BLANK) & ((before == _LOWER) | (before == _DIGIT) | (before == _OTHER)),
        (was_digit & (lower | upper)) | (was_letter & digit) | (was_lower & upper),
        kinds == _QUESTION,
        kinds == _QUOTE,
        kinds == _CODE,
        slash & (was_letter | was_digit),
        slash & (last == _SLASH) & (before == _JOIN),
        digit & ((last == _JOIN) | (last == _SLASH)) & (before == _DIGIT),
        kinds == _BREAK,
    ]


def shapes(texts: Sequence[str]) -> Ints:
    """The counts of each text: [texts, SHAPES]."""
    joined = "\n\n".join([*texts, ""])
    edges = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(text) + 2 for text in texts], out=edges[1:])
    found = (np.flatnonzero(flags) for flags in _patterns(_classes(joined)))
    counts = np.column_stack([np.diff(np.searchsorted(places, edges)) for places in found])
    counts[:, -1] -= 2
    return counts
