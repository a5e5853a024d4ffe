"""Keep the units that share words with what is asked (BM25), and the newest.

A token is worth how well its unit matches, plus a share that halves every few units back; a unit is worth
its tokens. So the budget goes to the best matches token by token, whatever the length of the units, and what
is left goes to the newest. Scored by the match alone, many short units that match a little would push out
the one that answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from forgetless.errors import ConfigError
from forgetless.policies.select import Select
from forgetless.text import bm25 as match
from forgetless.units import Unit

__all__ = ["Bm25", "bm25"]


@dataclass(frozen=True)
class Bm25:
    """Scores units by BM25 and age.

    Attributes:
        recency: what a token of the newest unit is worth beside one of the best match.
        half_life: units after which recency is worth half.
    """

    recency: float = 0.3
    half_life: float = 10.0

    def __post_init__(self) -> None:
        if not (isinstance(self.recency, int | float) and 0 <= self.recency < inf):
            raise ConfigError(f"recency must be a number from 0, not {self.recency!r}")
        if not (isinstance(self.half_life, int | float) and 0 < self.half_life < inf):
            raise ConfigError(f"half_life must be a number of units above 0, not {self.half_life!r}")

    def __call__(self, units: Sequence[Unit], query: Unit | None = None) -> list[float]:
        """One score per unit, at least 0."""
        asked = _asked(units, query)
        matches = match([unit.text for unit in units], asked.text if asked else "")
        # What is asked matches itself best of all and stays anyway: it is no measure for the others.
        others = (m for m, unit in zip(matches, units, strict=True) if unit is not asked)
        best = max(others, default=0.0) or 1.0
        newest = len(units) - 1
        return [
            unit.tokens * (min(m / best, 1.0) + self.recency * 0.5 ** ((newest - place) / self.half_life))
            for place, (unit, m) in enumerate(zip(units, matches, strict=True))
        ]


def _asked(units: Sequence[Unit], query: Unit | None) -> Unit | None:
    """What the next reply works from: the query, or the newest step when the agent has acted on it since."""
    if query is not None and units[query.index : query.index + 1] == [query] and units[-1].kind == "step":
        return units[-1]
    return query


def bm25(recency: float = 0.3, half_life: float = 10.0) -> Select:
    """The policy `bm25`."""
    return Select(Bm25(recency, half_life))
