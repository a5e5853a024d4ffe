"""Keep the units with the most TF-IDF weight (LRE's baseline "TF-IDF salience"): many words that few others have.

A token is worth the weight of its unit: by the weights alone, many short units would push out those with the most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from math import log, sqrt

from forgetless.policies.select import Select
from forgetless.text import words
from forgetless.units import Unit

__all__ = ["Salience", "salience", "weights"]


@dataclass(frozen=True)
class Salience:
    """Scores units by their TF-IDF weight and their tokens."""

    def __call__(self, units: Sequence[Unit], query: Unit | None = None) -> list[float]:
        """One score per unit, at least 0; `query` is not used."""
        found = weights([unit.text for unit in units])
        return [unit.tokens * weight for unit, weight in zip(units, found, strict=True)]


def weights(texts: Sequence[str]) -> list[float]:
    """The sum of each text's TF-IDF weights, after its vector was brought to length 1, as scikit-learn has them.

    The idf is that of `texts`: of a conversation as it stands. All words count, in any language, where the paper
    leaves English stop words out.
    """
    counts = [Counter(words(text)) for text in texts]
    held = Counter(chain.from_iterable(counts))
    idf = {word: log((1 + len(texts)) / (1 + many)) + 1 for word, many in held.items()}
    found: list[float] = []
    for count in counts:
        row = [many * idf[word] for word, many in count.items()]
        found.append(sum(row) / (sqrt(sum(weight * weight for weight in row)) or 1.0))
    return found


def salience() -> Select:
    """The policy `salience`."""
    return Select(Salience())
