"""Drop words that a trained classifier finds dispensable (LLMLingua-2): old texts become telegrams.

The method is the paper's: in each text the words above a percentile of the probabilities stay, the percentile being
the same everywhere and such that the whole fits. What must stay is not touched, nor are calls. Identifiers may
lose parts, since the classifier knows nothing of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import numpy as np

from forgetless.errors import ConfigError
from forgetless.messages import Message, Part, Result, Text
from forgetless.models.remembered import Remembered
from forgetless.models.token_classifier import Classifier, TokenClassifier, Word
from forgetless.policies.base import Context, assemble, fits, floor, whole
from forgetless.policies.recency import tail
from forgetless.tokens import Counter, for_model
from forgetless.units import Unit

__all__ = ["LLMLingua2", "llmlingua2"]

REASON = "llmlingua2"

KEPT = 4_096
"""Texts whose words are kept at most."""


@dataclass(frozen=True)
class LLMLingua2:
    """Compresses the texts of all that need not stay until the rest fits.

    Attributes:
        classifier: says of each word how likely it has to stay.
        rate: the least share of each text to keep; where that is too much, units go whole, oldest first.
        counter: counts what is left.
    """

    classifier: Classifier
    rate: float = 0.3
    counter: Counter = field(default_factory=for_model)
    lazy: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not (isinstance(self.rate, int | float) and 0 < self.rate < 1):
            raise ConfigError(f"rate must be a share above 0 and below 1, not {self.rate!r}")

    def __call__(self, units: Sequence[Unit], budget: int, query: Unit | None = None) -> Context:
        """Return the compressed conversation; `query` is not used."""
        if fits(units, budget):
            return whole(units, budget)
        pinned = floor(units)
        rest = [unit for unit in units if unit.index not in pinned]
        texts = list(dict.fromkeys(text for unit in rest for text in _texts(unit)))
        words = dict(zip(texts, self.classifier(texts), strict=True))
        total = sum(unit.tokens for unit in units)

        @cache
        def shorter(percent: int) -> dict[int, Unit]:
            made = (self._unit(unit, words, percent) for unit in rest)
            return {unit.index: unit for unit in made if unit.tokens < units[unit.index].tokens}

        def over(percent: int) -> bool:
            changed = shorter(percent)
            return total - sum(units[at].tokens - unit.tokens for at, unit in changed.items()) > budget

        rates = range(min(round(self.rate * 100), 99), 100)
        changed = shorter(rates[max(0, bisect_left(rates, True, key=over) - 1)])
        kept = tail([changed.get(unit.index, unit) for unit in units], pinned, budget)
        kept.update(dict.fromkeys(kept.keys() & changed.keys(), REASON))
        return assemble(units, kept, budget, pinned=pinned, changed=changed)

    def _unit(self, unit: Unit, words: Mapping[str, Sequence[Word]], percent: int) -> Unit:
        def part(found: Part) -> Part:
            if type(found) is Text:
                return replace(found, text=_compressed(found.text, words[found.text], percent))
            if type(found) is Result and not found.fixed:
                return replace(found, content=tuple(map(part, found.content)))
            return found

        messages = tuple(replace(message, parts=tuple(map(part, message.parts))) for message in unit.messages)
        return replace(unit, messages=messages, tokens=sum(map(self.counter.message, messages)))


def _texts(unit: Unit) -> Iterator[str]:
    """The texts of a unit that may be compressed."""

    def inside(parts: Sequence[Part]) -> Iterator[str]:
        for part in parts:
            if type(part) is Text:
                yield part.text
            elif type(part) is Result and not part.fixed:
                yield from inside(part.content)

    messages: Sequence[Message] = unit.messages
    for message in messages:
        yield from inside(message.parts)


def _compressed(text: str, words: Sequence[Word], percent: int) -> str:
    """The words above the percentile, at least one, as they stand in the text; a blank where something is gone."""
    if not words:
        return text
    probabilities = np.array([word.probability for word in words])
    weighed = np.repeat(probabilities, [word.tokens for word in words])
    threshold = np.percentile(weighed, min(100, 101 - percent))  # one more than the rate says, as the authors have it
    stay = np.flatnonzero((probabilities > threshold) | (probabilities == 1.0)).tolist()
    first, *others = stay or [int(probabilities.argmax())]
    end = words[first].end
    pieces = [text[words[first].start : end]]
    for before, at in pairwise([first, *others]):
        pieces.append(text[end : words[at].start] if at == before + 1 else " ")
        end = words[at].end
        pieces.append(text[words[at].start : end])
    return "".join(pieces)


def llmlingua2(
    checkpoint: str | Path | Classifier | None = None, rate: float = 0.3, counter: Counter | None = None
) -> LLMLingua2:
    """The policy `llmlingua2`.

    Args:
        checkpoint: the folder of a copy of `microsoft/llmlingua-2-xlm-roberta-large-meetingbank`, or of its smaller
            sibling on multilingual BERT, with `model.safetensors` and `tokenizer.json`; or a classifier.
        rate: the least share of each text to keep; LRE's and ACON's papers keep 0.3.
        counter: counts what is left.

    Raises:
        ConfigError: no checkpoint is named, or it can't be read.
        MissingExtra: the library that reads the tokenizer is not installed.
    """
    if checkpoint is None:
        raise ConfigError(
            "the policy 'llmlingua2' needs a checkpoint: give checkpoint=FOLDER, a copy of "
            "'microsoft/llmlingua-2-xlm-roberta-large-meetingbank'"
        )
    classifier = _loaded(checkpoint) if isinstance(checkpoint, str | Path) else Remembered(checkpoint, KEPT)
    return LLMLingua2(classifier, rate, counter or for_model())


@lru_cache(2)
def _loaded(checkpoint: str | Path) -> Classifier:
    """One for all sessions of a process, since it holds the model."""
    return Remembered(TokenClassifier(checkpoint), KEPT)
