"""What the learned recogniser sees of a message: the concepts of each sentence, and what stands around it.

What stands in quotation marks counts as a quotation and as nothing else, and code between fences is not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

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

_CODE_BEGINS = re.compile(r"\s*(?:#|//|/\*|\*\s|--\s|;|(?:def|return|import|var|let|const)\b)")
_CODE_HAS = re.compile(r"[{}=<>\[\]|(](?:(?<!\()|(?<=\w\())")
_WIDE = re.compile("[\u3040-\u30ff\u4e00-\u9fff]")
_SHORT, _LONG = 30, 110
_SAYS = 3
"""Characters of alphabets that say as much as one of Chinese or Japanese."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What is seen of a message.

    Attributes:
        spans: its sentences.
        total: how many concepts there are.
        here: of each sentence, its concepts, each once.
        first: those that it starts with.
        steps: which concept comes next after which: the first's number x (concepts + 1) + the second's; the number of
            concepts itself stands for the start and the end.
    """

    spans: list[Span]
    total: int
    here: list[list[int]]
    first: list[Sequence[int]]
    steps: list[set[int]]

    @property
    def places(self) -> Floats:
        """1 where a sentence has a concept in a place: [places, sentences, concepts]."""
        places = np.zeros((len(PLACES), len(self.spans), self.total))
        here, first, before, after, around = places
        for at, (concepts, starts) in enumerate(zip(self.here, self.first, strict=True)):
            here[at, concepts] = 1
            first[at, list(starts)] = 1
        before[1:] = here[:-1]
        after[:-1] = here[1:]
        around[:] = here.sum(axis=0) - here > 0
        return places


def look(text: str, known: Lexicon) -> Seen:
    """See a message."""
    plain = hidden(text)
    spans = list(sentences(plain))
    total, last = len(known.names), len(spans) - 1
    hides = FILLER in plain
    seen = Seen(spans, total, [], [], [])
    colon = False
    for at, (start, end) in enumerate(spans):
        sentence = plain[start:end]
        if hides:
            sentence = sentence.replace(FILLER, "")
        words = known(sentence)
        first: Sequence[int] = words[0].concepts if words else ()
        spoken = [word.concepts for word in words if word.concepts]
        has = set(chain.from_iterable(spoken))
        if known.colon in has and known.said in has:
            spoken = _own([word.concepts for word in words], known)
            has = set(chain.from_iterable(spoken))
        place = "opens" if not at else "closes" if at == last else ""
        forms = _forms(sentence, place if last else "alone", after_colon=colon)
        has.update([known.form[form] for form in forms])
        seen.here.append(sorted(has))
        seen.first.append(first)
        seen.steps.append(_steps(spoken, total))
        colon = colon or sentence.endswith((":", "："))
    return seen


def _own(words: list[tuple[int, ...]], known: Lexicon) -> list[tuple[int, ...]]:
    """The concepts of the words up to a colon that gives somebody else the word; what follows is a quotation."""
    for at, (one, other) in enumerate(pairwise(words), 2):
        if known.colon in other and known.said in one:
            words = [*words[:at], (known.form["quote"],)]
            break
    return [concepts for concepts in words if concepts]


def _steps(spoken: Iterable[Sequence[int]], edge: int) -> set[int]:
    """Which concept comes next after which, of words that have some."""
    found: set[int] = set()
    before: Sequence[int] = (edge,)
    for concepts in spoken:
        for one in before:
            row = one * (edge + 1)
            for other in concepts:
                found.add(row + other)
        before = concepts
    found.update([one * (edge + 1) + edge for one in before])
    return found


def _forms(sentence: str, place: str, *, after_colon: bool) -> list[str]:
    forms = [place] if place else []
    wide = not sentence.isascii() and _WIDE.search(sentence) is not None
    size = len(sentence) * (_SAYS if wide else 1)
    if size < _SHORT:
        forms.append("short")
    elif size > _LONG:
        forms.append("long")
    if wide:
        forms.append("unspaced")
    if _CODE_BEGINS.match(sentence) or _CODE_HAS.search(sentence):
        forms.append("code")
    if after_colon:
        forms.append("after_colon")
    return forms
