"""Keep the units that share words with the last user message (BM25), newer ones first where words say nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from forgetless.errors import ConfigError
from forgetless.policies.select import Select
from forgetless.text import bm25 as score_texts
from forgetless.units import Unit

__all__ = ["Bm25", "bm25"]


@dataclass(frozen=True)
class Bm25:
    """Scores units by BM25 against the query.

    Attributes:
        recency: what the newest unit is worth beside the best match, per unit of its cost.
    """

    recency: float = 0.3

    def __post_init__(self) -> None:
        if self.recency < 0:
            raise ConfigError(f"recency must not be negative, not {self.recency!r}")

    def __call__(self, units: Sequence[Unit], query: Unit | None = None) -> list[float]:
        """One score per unit, at least 0."""
        texts = [unit.text for unit in units]
        scores = score_texts(texts, query.text if query else "")
        return scores


def bm25(recency: float = 0.3) -> Select:
    """The policy `bm25`."""
    return Select(Bm25(recency))
