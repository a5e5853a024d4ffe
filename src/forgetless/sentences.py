"""Cutting a text into sentences, in any language and without a model."""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["sentences"]

Span = tuple[int, int]
"""First character, end."""

# A line break ends a sentence, and so do these marks: the full-width ones anywhere, the others before a blank.
# The pattern begins with the marks themselves: the engine then skips to the next one.
_END = re.compile(
    r"[\n。！？.!?…](?:(?<=\n)\n*|(?<=[。！？])[。！？]*[”」』）\"']*|(?<=[.!?…])[.!?…]*[\"'”’»)\]]*(?=\s|$))"
)
_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_SHORT = re.compile(r"(?:\b(?:e\.g|i\.e|etc|vs|Mr|Mrs|Ms|Dr|St|No|approx|z\.B|d\.h|bzw|usw|Nr|p\.ej|Sr|Sra)|\b\w)\.$")
_NUMBERED = re.compile(r"\s*\d+\.$")
_REACH = 8
"""Characters of the longest abbreviation: there is no need to look through the whole sentence for one."""


def sentences(text: str, *, code: bool = False) -> Iterator[Span]:
    """The sentences of a text without the blanks around them, in order.

    Args:
        text: any text.
        code: give each block of code between fences as one sentence; without, they are none.
    """
    start = 0
    for fence in _FENCE.finditer(text):
        yield from _prose(text, start, fence.start())
        if code:
            yield fence.span()
        start = fence.end()
    yield from _prose(text, start, len(text))


def _prose(text: str, start: int, end: int) -> Iterator[Span]:
    at = start
    for mark in _END.finditer(text, start, end):
        stop = mark.end()
        if mark[0] == "." and (
            _SHORT.search(text, max(at, stop - _REACH), stop) or (not at and _NUMBERED.match(text, 0, stop))
        ):
            continue  # an abbreviation, an initial, the number of a list
        yield from _trimmed(text, at, stop)
        at = stop
    yield from _trimmed(text, at, end)


def _trimmed(text: str, start: int, end: int) -> Iterator[Span]:
    piece = text[start:end]
    bare = piece.strip()
    if bare:
        start += len(piece) - len(piece.lstrip())
        yield start, start + len(bare)
