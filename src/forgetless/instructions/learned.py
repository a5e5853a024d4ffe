"""The recogniser `learned`: a logistic regression over concepts, of some ten kilobytes, for six languages.

A sentence's log odds are a sum over the concepts in it, every pair of them, and those around it. A message holds an
instruction where any of its sentences does: its log odds are the log of the sum of their odds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from math import isfinite
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from forgetless.errors import ConfigError
from forgetless.instructions.base import Span
from forgetless.instructions.features import PLACES, VERSION, Seen, look
from forgetless.instructions.lexicon import FORMS, Lexicon, lexicon
from forgetless.sealed import checksum, unseal

__all__ = ["FORMAT", "Learned", "RecogniserWeights"]

Floats = NDArray[np.float64]

FORMAT = "forgetless-recogniser"
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
        try:
            return cls.loads(Path(path).read_text(encoding="utf-8"), f"the weights {str(path)!r}")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the weights {str(path)!r}: {error}") from None

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
        self._arrays  # noqa: B018  # what does not match shows here, not at the first message

    def __call__(self, text: str) -> list[Span]:
        """The sentences that hold an instruction: those above the threshold, or the likeliest one."""
        seen = look(text, self.known)
        odds = self.sentences(seen)
        if not len(odds) or np.logaddexp.reduce(odds) <= self.weights.threshold:
            return []
        least = min(self.weights.threshold, odds.max())
        return [span for span, odd in zip(seen.spans, odds, strict=True) if odd >= least]

    def odds(self, text: str) -> float:
        """The log odds that a message holds an instruction; minus infinity where it has no sentence."""
        odds = self.sentences(look(text, self.known))
        return float(np.logaddexp.reduce(odds)) if len(odds) else -np.inf

    def sentences(self, seen: Seen) -> Floats:
        """The log odds of each sentence: [sentences]."""
        places, pairs, steps = self._arrays
        here = seen.places[0]
        odds: Floats = self.weights.bias + np.einsum("psc,pc->s", seen.places, places)
        odds += ((here @ pairs) * here).sum(axis=1)
        odds += [sum([steps[step] for step in taken]) for taken in seen.steps]
        # Forms alone, such as being short, say nothing of what it is about.
        return np.where(here[:, : len(self.known.names) - len(FORMS)].any(axis=1), odds, -np.inf)

    @cached_property
    def _arrays(self) -> tuple[Floats, Floats, list[float]]:
        """The weights by number of concept: [places, concepts], of pairs [concepts, concepts], and of steps."""
        number = {name: at for at, name in enumerate(self.known.names)}
        places, pairs = np.zeros((len(PLACES), len(number))), np.zeros((len(number), len(number)))
        try:
            for at, place in enumerate(PLACES):
                for name, weight in self.weights.places[place].items():
                    places[at, number[name]] = weight
            for names, weight in self.weights.pairs.items():
                one, other = names.split()
                pairs[number[one], number[other]] = weight
            number |= {"^": len(number), "$": len(number)}
            edge = number["$"]
            steps = [0.0] * (edge + 1) ** 2
            for names, weight in self.weights.steps.items():
                one, other = names.split()
                steps[number[one] * (edge + 1) + number[other]] = weight
        except (KeyError, ValueError) as error:
            raise ConfigError(
                f"the weights {self.weights.version!r} do not fit the lexicon: {error}; {_AGAIN}"
            ) from None
        if not all(map(isfinite, (self.weights.bias, self.weights.threshold, places.sum(), pairs.sum(), sum(steps)))):
            raise ConfigError(f"the weights {self.weights.version!r}: a number in them is not finite; {_AGAIN}")
        return places, pairs, steps
