"""From scores to a context: keep what must stay, then the best selection of the rest that fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import islice
from math import isfinite
from typing import ClassVar

from forgetless.errors import ConfigError
from forgetless.policies.base import Context, Scorer, assemble, capacity, fits, floor, last_user, opener, whole
from forgetless.policies.knapsack import by_density, solve
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
        recent: so many units at the end are kept before any other, the newest first, while they fit in half of what
            the floor leaves.
        outside: keep them beside the budget instead, as LRE's paper does: the context may then be over it.
        greedy: take units by falling score per token, as LRE's paper does, and not the best selection.
    """

    scorer: Scorer
    recent: int = 0
    outside: bool = False
    greedy: bool = False
    lazy: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.recent, int) or self.recent < 0:
            raise ConfigError(f"recent must be a whole number from 0, not {self.recent!r}")

    def __call__(self, units: Sequence[Unit], budget: int, query: Unit | None = None) -> Context:
        """Return the best selection that fits; everything when that fits."""
        if fits(units, budget):
            return whole(units, budget)
        pinned = floor(units)
        left = capacity(units, pinned, budget)
        scores = _scored(self.scorer(units, query or last_user(units)), len(units))
        kept = {**pinned, **self._newest(units, pinned, left)} if self.recent else pinned
        if not self.outside:
            left -= sum(units[index].tokens for index in kept if index not in pinned)
        first = next((u.index for u in units if u.kind != "system" and u.index in kept), -1)
        rest = [unit for unit in units if unit.index not in kept]
        # Behind a kept user unit anything may come; before it, only a user unit may open the context.
        opens = [unit.index > first or unit.kind == "user" for unit in rest]
        choose = by_density if self.greedy else solve
        chosen = choose([scores[u.index] for u in rest], [u.tokens for u in rest], left, opens=opens)
        kept = {**kept, **{rest[i].index: "selected" for i in chosen}}
        by_unit = {u.index: float(scores[u.index]) for u in units if u.index not in pinned}
        return assemble(units, kept, budget, pinned=pinned, scores=by_unit)

    def _newest(self, units: Sequence[Unit], pinned: Mapping[int, str], left: int) -> dict[int, str]:
        """The newest units, and what has to open the context before them: unit index -> reason."""
        start = next((u.index for u in units if u.kind == "user"), 0)  # nothing before it may open
        kept: dict[int, str] = {}
        spent = 0
        for unit in islice((u for u in reversed(units) if u.index not in pinned), self.recent):
            spent += unit.tokens
            if unit.index < start or (spent > left // 2 and not self.outside):
                break
            kept[unit.index] = "recent"
        while kept:
            first = opener(units, {**pinned, **kept})
            tokens = sum(units[index].tokens for index in kept) + (first.tokens if first else 0)
            if first is None or tokens <= left or self.outside:
                return kept if first is None else {**kept, first.index: "opener"}
            del kept[min(kept)]
        return kept
