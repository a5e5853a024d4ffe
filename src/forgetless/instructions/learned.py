"""The recogniser `learned`: a logistic regression over concepts, of some ten kilobytes, for six languages.

A sentence's log odds are a sum over the concepts in it, every pair of them, and those around it. A message holds an
instruction where any of its sentences does: its log odds are the log of the sum of their odds.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from itertools import chain
from math import inf, isfinite, log
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from forgetless.errors import ConfigError
from forgetless.instructions.base import Span
from forgetless.instructions.features import PLACES, VERSION, Seen, look
from forgetless.instructions.lexicon import FORMS, Lexicon, lexicon
from forgetless.sealed import checksum, read, unseal

__all__ = ["FORMAT", "Learned", "RecogniserWeights"]

Floats = NDArray[np.float64]

FORMAT = "forgetless-recogniser"

SLACK = 1e-9
"""How far sums of log odds may be off."""

_AGAIN = "train new ones with `forgetless train recognizer`, or take those that this version ships"


@dataclass(frozen=True)
class RecogniserWeights:
    """What was learned.

    Attributes:
        places: place -> concept -> what it adds to the log odds.
        pairs: two concepts of a sentence, with a blank between them -> what they add together.
        steps: two that follow one another, likewise; `^` and `$` are the sentence's start and end.
        bias: the log odds of a sentence with none of them.
        threshold: the log odds from which on a message counts.
        training: what it was fitted to: data, messages, figures on folds that were left out.
    """

    places: Mapping[str, Mapping[str, float]]
    pairs: Mapping[str, float]
    steps: Mapping[str, float]
    bias: float
    threshold: float
    training: Mapping[str, Any]

    @property
    def version(self) -> str:
        """Names these weights: the checksum of all that is in them."""
        return checksum(self._content())

    def dump(self) -> str:
        """The file's text; the same weights give the same bytes."""
        content = self._content()
        return json.dumps({**content, "checksum": checksum(content)}, ensure_ascii=False, indent=1) + "\n"

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file.

        Raises:
            ConfigError: it can't be read, was altered, or does not match the features of this version.
        """
        return cls.loads(read(path), f"the weights {str(path)!r}")

    @classmethod
    def loads(cls, text: str, named: str = "the weights") -> Self:
        """Read what `dump` wrote; errors call it `named`.

        Raises:
            ConfigError: it was altered, or does not match the features of this version.
        """
        content = unseal(text, named, of="recogniser 'learned'", form=FORMAT, revision=VERSION, again=_AGAIN)
        try:
            return cls(
                **{name: content[name] for name in ("places", "pairs", "steps", "bias", "threshold", "training")}
            )
        except KeyError as error:
            raise ConfigError(f"{named} lack {error}: {_AGAIN}") from None

    def _content(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "features_version": VERSION,
            "training": dict(self.training),
            "threshold": self.threshold,
            "bias": self.bias,
            "places": {place: dict(weights) for place, weights in self.places.items()},
            "pairs": dict(self.pairs),
            "steps": dict(self.steps),
        }


def _pooled(odds: Sequence[float]) -> float:
    """The log of the sum of odds; minus infinity of none."""
    return float(np.logaddexp.reduce(odds)) if odds else -inf


class _Weights(NamedTuple):
    """Weights as lists: of a sentence's few concepts, looking up and adding is quicker than arrays are."""

    here: list[float]
    first: list[float]
    before: list[float]
    after: list[float]
    around: list[float]
    pairs: list[list[float]]
    steps: list[float]


def _shipped() -> RecogniserWeights:
    text = files("forgetless.instructions").joinpath("weights.json").read_text(encoding="utf-8")
    return RecogniserWeights.loads(text, "the weights that ship")


@dataclass(frozen=True)
class Learned:
    """Finds the sentences that hold a standing instruction.

    Attributes:
        weights: those that ship, or others.

    Raises:
        ConfigError: the weights name a concept that the lexicon does not have.
    """

    weights: RecogniserWeights = field(default_factory=_shipped)
    known: Lexicon = field(default_factory=lexicon, repr=False)

    def __post_init__(self) -> None:
        self._sums  # noqa: B018  # what does not match shows here, not at the first message

    def __call__(self, text: str) -> list[Span]:
        """The sentences that hold an instruction: those above the threshold, or the likeliest one."""
        seen = look(text, self.known)
        odds = self._odds(seen)
        most, threshold = max(odds, default=-inf), self.weights.threshold
        # What sentences have together lies between what the likeliest has and as many times that.
        if most <= threshold and (most + log(len(odds) or 1) < threshold - SLACK or _pooled(odds) <= threshold):
            return []
        least = min(threshold, most)
        return [span for span, odd in zip(seen.spans, odds, strict=True) if odd >= least]

    def odds(self, text: str) -> float:
        """The log odds that a message holds an instruction; minus infinity where it has no sentence."""
        return _pooled(self._odds(look(text, self.known)))

    def sentences(self, seen: Seen) -> Floats:
        """The log odds of each sentence: [sentences]."""
        return np.array(self._odds(seen))

    def _odds(self, seen: Seen) -> list[float]:
        weights, last = self._sums, len(seen.here) - 1
        many = Counter(chain.from_iterable(seen.here))
        around = self.weights.bias + sum(map(weights.around.__getitem__, many))
        forms = seen.total - len(FORMS)
        odds = [-inf] * (last + 1)
        for at, concepts in enumerate(seen.here):
            if not concepts or concepts[0] >= forms:
                continue  # forms alone, such as being short, say nothing of what it is about
            odd = around + self._alone(concepts, seen.first[at], seen.steps[at])
            odd -= sum([weights.around[concept] for concept in concepts if many[concept] == 1])
            if at:
                odd += sum(map(weights.before.__getitem__, seen.here[at - 1]))
            if at < last:
                odd += sum(map(weights.after.__getitem__, seen.here[at + 1]))
            odds[at] = odd
        return odds

    def _alone(self, concepts: Sequence[int], first: Sequence[int], steps: Iterable[int]) -> float:
        """What a sentence's own concepts add to its log odds."""
        weights = self._sums
        odds = sum(map(weights.here.__getitem__, concepts)) + sum(map(weights.first.__getitem__, first))
        odds += sum(map(weights.steps.__getitem__, steps))
        for at, one in enumerate(concepts):
            odds += sum(map(weights.pairs[one].__getitem__, concepts[at:]))
        return odds

    @cached_property
    def _sums(self) -> _Weights:
        """The weights by number of concept."""
        number = {name: at for at, name in enumerate(self.known.names)}
        places = {place: [0.0] * len(number) for place in PLACES}
        pairs = [[0.0] * len(number) for _ in number]
        try:
            for place in PLACES:
                for name, weight in self.weights.places[place].items():
                    places[place][number[name]] = weight
            for names, weight in self.weights.pairs.items():
                one, other = sorted(number[name] for name in names.split())
                pairs[one][other] += weight
            number |= {"^": len(number), "$": len(number)}
            edge = number["$"]
            steps = [0.0] * (edge + 1) ** 2
            for names, weight in self.weights.steps.items():
                first, second = names.split()
                steps[number[first] * (edge + 1) + number[second]] = weight
        except (KeyError, ValueError) as error:
            raise ConfigError(
                f"the weights {self.weights.version!r} do not fit the lexicon: {error}; {_AGAIN}"
            ) from None
        numbers = chain((self.weights.bias, self.weights.threshold), *places.values(), *pairs, steps)
        if not all(map(isfinite, numbers)):
            raise ConfigError(f"the weights {self.weights.version!r}: a number in them is not finite; {_AGAIN}")
        return _Weights(**places, pairs=pairs, steps=steps)
