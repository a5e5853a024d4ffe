"""What the learned recogniser sees of a message: the concepts of each sentence, and what stands around it.

What stands in quotation marks counts as a quotation and as nothing else, and code between fences is not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from forgetless.instructions.base import Span
from forgetless.instructions.lexicon import Lexicon
from forgetless.instructions.marks import FILLER, hidden
from forgetless.sentences import sentences

__all__ = ["PLACES", "VERSION", "Seen", "look"]

Floats = NDArray[np.float64]

VERSION = 1
"""Of the features: weights that were fitted to one version do not serve another."""

PLACES = ("here", "first", "before", "after", "around")
"""Where a concept can be, seen from a sentence: in it, at its start, in the sentence before, after, in any other."""

_CODE = re.compile(r"^\s*(?:#|//|/\*|\*\s|--\s|;)|[{}=<>\[\]|]|\w\(|^\s*(?:def|return|import|var|let|const)\b")
_WIDE = re.compile("[\u3040-\u30ff\u4e00-\u9fff]")
_SHORT, _LONG = 30, 110
_SAYS = 3
"""Characters of alphabets that say as much as one of Chinese or Japanese."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What is seen of a message.

    Attributes:
        spans: its sentences.
        places: 1 where a sentence has a concept in a place: [places, sentences, concepts].
        steps: of each sentence, which concept comes next after which: the first's number x (concepts + 1) + the
            second's; the number of concepts itself stands for the start and the end.
    """

    spans: list[Span]
    places: Floats
    steps: list[set[int]]


def look(text: str, known: Lexicon) -> Seen:
    """See a message."""
    plain = hidden(text)
    spans = list(sentences(plain))
    places = np.zeros((len(PLACES), len(spans), len(known.names)))
    here, first, before, after, around = places
    steps: list[set[int]] = []
    colon = False
    for at, (start, end) in enumerate(spans):
        sentence = plain[start:end].replace(FILLER, "")
        words = _own([word.concepts for word in known(sentence)], known)
        has = [concept for concepts in words for concept in concepts]
        has += [known.form[form] for form in _forms(sentence, at, len(spans), after_colon=colon)]
        here[at, has] = 1
        if words and words[0]:
            first[at, list(words[0])] = 1
        steps.append(_steps(words, len(known.names)))
        colon = colon or sentence.endswith((":", "："))
    before[1:] = here[:-1]
    after[:-1] = here[1:]
    around[:] = here.sum(axis=0) - here > 0
    return Seen(spans, places, steps)


def _own(words: list[tuple[int, ...]], known: Lexicon) -> list[tuple[int, ...]]:
    """The words up to a colon that gives somebody else the word; what follows is a quotation."""
    for at, (one, other) in enumerate(pairwise(words), 2):
        if known.colon in other and known.said in one:
            return [*words[:at], (known.form["quote"],)]
    return words


def _steps(words: Iterable[Sequence[int]], edge: int) -> set[int]:
    found: set[int] = set()
    before: Sequence[int] = (edge,)
    for concepts in words:
        if concepts:
            found.update([one * (edge + 1) + other for one in before for other in concepts])
            before = concepts
    found.update([one * (edge + 1) + edge for one in before])
    return found


def _forms(sentence: str, at: int, total: int, *, after_colon: bool) -> Iterator[str]:
    if total == 1:
        yield "alone"
    elif at == 0:
        yield "opens"
    elif at == total - 1:
        yield "closes"
    wide = not sentence.isascii() and _WIDE.search(sentence) is not None
    size = len(sentence) * (_SAYS if wide else 1)
    if size < _SHORT:
        yield "short"
    elif size > _LONG:
        yield "long"
    if wide:
        yield "unspaced"
    if _CODE.search(sentence):
        yield "code"
    if after_colon:
        yield "after_colon"
