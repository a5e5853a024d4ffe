"""From scores to a context: keep what must stay, then the best selection of the rest that fits."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from itertools import islice
from math import isfinite
from typing import ClassVar

from forgetless.errors import ConfigError
from forgetless.policies.base import Context, Scorer, assemble, capacity, fits, floor, last_user, opener, whole
from forgetless.policies.coverage import Shares, cover
from forgetless.policies.knapsack import by_density, solve
from forgetless.policies.markers import masked
from forgetless.tokens import Counter, for_model
from forgetless.units import Unit

__all__ = ["Select"]

KNOWN = 200_000  # masked units whose tokens are kept, at most


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
    non-system unit is a user unit has a higher total score (LRE, "Selectie (Knapsack Problem)"). Where scores are
    `Shares`, the choice is `cover`'s: what units carry counts once, a step may stay with its results masked, and the
    newest have no right of their own.

    Attributes:
        scorer: what each unit is worth.
        recent: so many units at the end are kept before any other, the newest first, while they fit in half of what
            the floor leaves.
        outside: keep them beside the budget instead, as LRE's paper does: the context may then be over it.
        greedy: take units by falling score per token, as LRE's paper does, and not the best selection.
        counter: counts the markers in the place of results.
        costs: what is known of masked units, by key: what counted them, and their tokens.
    """

    scorer: Scorer
    recent: int = 0
    outside: bool = False
    greedy: bool = False
    counter: Counter = field(default_factory=for_model)
    costs: dict[bytes, tuple[object, int | None]] = field(default_factory=dict, repr=False, compare=False)
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
        shares = scores if isinstance(scores, Shares) and not (self.outside or self.greedy) else None
        kept = {**pinned, **self._newest(units, pinned, left)} if self.recent and shares is None else pinned
        if not self.outside:
            left -= sum(units[index].tokens for index in kept if index not in pinned)
        first = min((index for index in kept if units[index].kind != "system"), default=-1)
        # Behind a kept user unit anything may come; before it, only a user unit may open the context.
        opens = [unit.kind == "user" for unit in units[: first + 1]] + [True] * (len(units) - first - 1)
        costs = [unit.tokens for unit in units]
        bare: Mapping[int, Unit] = {}
        if shares is not None:
            costs_masked = [None if unit.index in kept else self._masked(unit) for unit in units]
            chosen, without = cover(shares, costs, left, kept=kept, opens=opens, masked=costs_masked)
            bare = {index: shorter for index in without if (shorter := masked(units[index], self.counter))}
        else:
            chosen = self._best(scores, costs, left, kept, opens)
        kept = {**kept, **dict.fromkeys(chosen, "selected"), **dict.fromkeys(bare, "masked")}
        by_unit = dict(enumerate(map(float, scores)))
        for index in pinned:
            del by_unit[index]
        return assemble(units, kept, budget, pinned=pinned, scores=by_unit, changed=bare)

    def _masked(self, unit: Unit) -> int | None:
        """What a unit costs with its results masked; None where that is no form of it."""
        if unit.kind != "step":
            return None
        known = self.costs.get(unit.key)
        if known is None or known[0] is not self.counter.text:
            shorter = masked(unit, self.counter)
            known = self.counter.text, None if shorter is None else shorter.tokens
            if unit.key:
                if len(self.costs) >= KNOWN:
                    self.costs.clear()
                self.costs[unit.key] = known
        return known[1]

    def _best(
        self, scores: Sequence[float], costs: Sequence[int], left: int, kept: Collection[int], opens: Sequence[bool]
    ) -> list[int]:
        """The best selection beside what is kept: indices of units."""
        rest = [index for index in range(len(costs)) if index not in kept]
        choose = by_density if self.greedy else solve
        chosen = choose([scores[i] for i in rest], [costs[i] for i in rest], left, opens=[opens[i] for i in rest])
        return [rest[place] for place in chosen]

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
