"""From scores to a context: keep what must stay, then the best selection of the rest that fits."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass
from math import isfinite
from typing import ClassVar

from forgetless.errors import ConfigError
from forgetless.policies.base import Context, Scorer, assemble, capacity, fits, floor, last_user, whole
from forgetless.policies.knapsack import solve
from forgetless.units import Unit

__all__ = ["Select"]


def _scored(scores: Sequence[float], many: int) -> Sequence[float]:
    """Scores of a scorer that anyone may have written.

    Raises:
        ConfigError: they are not one finite number for each unit.
    """
    if not isinstance(scores, Sequence) or len(scores) != many:
        given = f"{len(scores)} scores" if isinstance(scores, Sized) else f"a {type(scores).__name__}"
        raise ConfigError(f"the scorer gave {given} for {many} units: it must give a list with one score for each")
    try:
        if all(map(isfinite, scores)):
            return scores
    except TypeError:
        pass
    raise ConfigError("the scorer gave a score that is no finite number")


@dataclass(frozen=True)
class Select:
    """A selecting policy from a scorer.

    Keeps the floor, then solves the 0/1 knapsack over the rest: no selection of the same cost whose first
    non-system unit is a user unit has a higher total score (LRE, "Selectie (Knapsack Problem)").

    Attributes:
        scorer: what each unit is worth.
    """

    scorer: Scorer
    lazy: ClassVar[bool] = True

    def __call__(self, units: Sequence[Unit], budget: int, query: Unit | None = None) -> Context:
        """Return the best selection that fits; everything when that fits."""
        if fits(units, budget):
            return whole(units, budget)
        pinned = floor(units)
        left = capacity(units, pinned, budget)
        scores = _scored(self.scorer(units, query or last_user(units)), len(units))
        first = next((u.index for u in units if u.kind != "system" and u.index in pinned), -1)
        rest = [unit for unit in units if unit.index not in pinned]
        # Behind a kept user unit anything may come; before it, only a user unit may open the context.
        opens = [unit.index > first or unit.kind == "user" for unit in rest]
        chosen = solve([scores[u.index] for u in rest], [u.tokens for u in rest], left, opens=opens)
        kept = dict(pinned)
        kept.update((rest[i].index, "selected") for i in chosen)
        by_unit = {u.index: float(scores[u.index]) for u in rest}
        return assemble(units, kept, budget, pinned=pinned, scores=by_unit)
