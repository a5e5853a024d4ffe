"""Scores of units that are worth what they carry, and a selection in which what two of them carry counts once.

To cover most within a budget is hard, and a greedy choice by what a unit adds for its cost comes close. It fails where
one unit takes most of the budget; so where units are few, it is also tried behind each of those that are worth most
(Khuller, Moss and Naor, "The budgeted maximum coverage problem").
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

import numpy as np
from numpy.typing import NDArray

__all__ = ["Shares", "cover"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

FEW = 64
"""Up to so many units are chosen one by one, with what the others add found anew after each; of more, some at once."""

FIRSTS = 8
"""Forms that are tried first."""

MASKED, WHOLE = 0, 1


@dataclass(frozen=True, eq=False)
class Shares(Sequence[float]):
    """Scores of units: what each is worth by itself, and all that it carries.

    Attributes:
        own: of each unit, without what it carries.
        worth: of each thing that can be carried.
        unit: with `part`, a pair for each unit and thing that it carries, by unit.
        part: the thing.
        called: of each pair, whether the thing stands outside the results of tools.
    """

    own: Floats
    worth: Floats
    unit: Ints
    part: Ints
    called: Mask

    @cached_property
    def scores(self) -> list[float]:
        """What each unit is worth with all that it carries."""
        found: list[float] = (self.own + np.bincount(self.unit, self.worth[self.part], len(self.own))).tolist()
        return found

    def __len__(self) -> int:
        return len(self.own)

    @overload
    def __getitem__(self, at: int) -> float: ...
    @overload
    def __getitem__(self, at: slice) -> list[float]: ...
    def __getitem__(self, at: int | slice) -> float | list[float]:
        return self.scores[at]


def cover(
    shares: Shares,
    costs: Sequence[int],
    budget: int,
    *,
    kept: Collection[int],
    opens: Sequence[bool],
    masked: Sequence[int | None] | None = None,
) -> tuple[list[int], list[int]]:
    """Returns the indices, ascending, of units to keep beside those that stay anyway, and of units to keep masked.

    Units that add nothing fill the room left, the latest first.

    Args:
        shares: what the units of a conversation are worth.
        costs: of all of them.
        budget: what the chosen may cost in all.
        kept: units that stay anyway; what they carry adds nothing in others.
        opens: of each unit, whether nothing has to stand before it; the others take the latest that opens with them,
            unless one before them is chosen.
        masked: what units cost with their results masked; None for those of which that is no form.
    """
    greedy = _Greedy(shares, costs, masked or [None] * len(costs), opens, kept)
    chosen = greedy.choose(budget)
    if len(costs) <= FEW:
        found = (greedy.choose(budget, first) for first in greedy.best(budget))
        chosen = max((chosen, *found), key=greedy.worth)
    return np.flatnonzero(chosen[WHOLE::2]).tolist(), np.flatnonzero(chosen[MASKED::2]).tolist()


class _Greedy:
    """Chooses among forms: two of each unit, `MASKED` and `WHOLE`; the whole one can take the other's place."""

    def __init__(
        self,
        shares: Shares,
        costs: Sequence[int],
        masked: Sequence[int | None],
        opens: Sequence[bool],
        kept: Collection[int],
    ) -> None:
        many = len(costs)
        self.own = np.zeros(2 * many)
        self.own[WHOLE::2] = shares.own
        self.value = shares.worth
        self.form = np.concatenate((2 * shares.unit[shares.called] + MASKED, 2 * shares.unit + WHOLE))
        self.part = np.concatenate((shares.part[shares.called], shares.part))
        self.costs = np.zeros(2 * many, np.int64)
        self.costs[WHOLE::2] = costs
        self.costs[MASKED::2] = [0 if cost is None else cost for cost in masked]
        stay = np.zeros(many, bool)
        stay[list(kept)] = True
        may_open = np.asarray(opens, bool)
        opener = np.maximum.accumulate(np.where(may_open & ~stay, np.arange(many), -1))  # the latest up to a unit
        self.opens, self.unit = may_open.repeat(2), np.arange(many).repeat(2)
        self.opener = (2 * opener + WHOLE).repeat(2)
        self.free = (~stay & (opener >= 0)).repeat(2)
        self.free[MASKED::2] &= [cost is not None for cost in masked]
        self.open = np.ones(len(shares.worth), bool)  # things that are not there yet
        self.open[shares.part[stay[shares.unit]]] = False

    def worth(self, chosen: Mask) -> float:
        """What chosen forms add to what stays."""
        parts = np.unique(self.part[chosen[self.form]])
        return float(self.own[chosen].sum() + self.value[parts[self.open[parts]]].sum())

    def best(self, budget: int) -> list[int]:
        """The forms that add most by themselves, of those that fit."""
        price = self.costs + np.where(self.opens, 0, self.costs[self.opener])
        free = self.free & (price <= budget)
        live = free[self.form] & self.open[self.part]
        adds = np.where(free, self.adds(self.form[live], self.part[live]), 0.0)
        return [at for at in np.argsort(-adds, kind="stable")[:FIRSTS].tolist() if adds[at] > 0]

    def adds(self, form: Ints, part: Ints) -> Floats:
        """What forms add that carry these things."""
        found: Floats = self.own + np.bincount(form, self.value[part], len(self.own))
        return found

    def choose(self, budget: int, first: int | None = None) -> Mask:
        """The forms that a greedy choice takes, `first` before all others."""
        chosen, free, open_ = np.zeros(len(self.own), bool), self.free.copy(), self.open.copy()
        form, part = self.form, self.part
        paid = np.zeros_like(self.costs)  # by form: for the one whose place it would take
        while True:
            alone = self.opens | (self.unit > _first(chosen))
            cost = self.costs - paid
            price = cost + np.where(alone, 0, cost[self.opener])
            free &= cost <= budget
            fitting = np.flatnonzero(free & (price <= budget))[::-1]  # of equal ones the latest come first
            if not len(fitting):
                return chosen
            live = free[form] & open_[part]
            form, part = form[live], part[live]
            batch = self.next(fitting, alone, price, form, part) if first is None else np.array([first])
            first = None
            batch = batch[np.cumsum(price[batch]) <= budget]
            taken = np.zeros(len(free), bool)
            taken[batch] = True
            taken[self.opener[batch[~alone[batch]]]] = True
            open_[part[taken[form]]] = False
            budget -= int(cost[taken].sum())
            whole, masked = taken[WHOLE::2], taken[MASKED::2]
            chosen |= taken
            chosen[MASKED::2] &= ~whole
            free &= ~taken
            free[MASKED::2] &= ~whole
            paid[WHOLE::2] += np.where(masked, self.costs[MASKED::2], 0)

    def next(self, fitting: Ints, alone: Mask, price: Ints, form: Ints, part: Ints) -> Ints:
        """The forms to take next of those that fit, in their order: by what they add for their price."""

        def rates(form: Ints, part: Ints) -> Floats:
            adds = self.adds(form, part)
            found: Floats = (adds + np.where(alone, 0, adds[self.opener])) / np.maximum(price, 1)
            return found

        rate = rates(form, part)
        order = fitting[np.argsort(-rate[fitting], kind="stable")]
        batch = order[: max(1, len(order) // 2 - FEW)]
        if rate[batch[0]] > 0:
            batch = batch[rate[batch] > 0]  # what adds nothing has to wait for all that adds something
        if len(batch) == 1:
            return batch
        batch = batch[np.sort(np.unique(self.unit[batch], return_index=True)[1])]  # of each unit one form
        # What one of them has is worth nothing in those behind it: what that makes worse than the last has to wait.
        place = np.full(len(rate), len(rate))
        place[batch] = np.arange(len(batch))
        among = place[form] < len(rate)
        form, part = form[among], part[among]
        earliest = np.full(len(self.open), len(rate))
        np.minimum.at(earliest, part, place[form])
        new = earliest[part] == place[form]
        found: Ints = batch[rates(form[new], part[new])[batch] >= rate[batch[-1]]]
        return found


def _first(chosen: Mask) -> int:
    """The unit of the first chosen form."""
    return int(np.argmax(chosen)) // 2 if chosen.any() else len(chosen)
