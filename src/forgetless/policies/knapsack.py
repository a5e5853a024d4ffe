"""Chooses the units with the highest total score that fit a budget: the 0/1 knapsack, solved exactly.

But for costs made to be hard: where more than `packing.MOST` partial selections compete, it is the best one found.

A selection may have to begin with a unit that can open a conversation (a user's). The knapsack is solved
without that rule first. If its answer breaks the rule, the first unit with the highest upper bound is tried,
and then all others whose bound is higher than what that gave: together, with the units behind the foremost of
them, and split up only where the answer is no valid selection.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from forgetless.policies.packing import (
    TOLERANCE,
    Floats,
    Ints,
    Items,
    Mask,
    Price,
    Search,
    Starts,
    States,
    lowest,
)


@dataclass(frozen=True, slots=True)
class _Packing:
    start: int
    taken: Mask | None  # none: nothing beats the floor
    prices: tuple[Price, ...]  # they bound the total


def _pack(items: Items, room: int, starts: Starts, floor: float) -> _Packing:
    """Picks one start and the items with the highest total score that fit the room with it."""
    search = Search(items, room, starts, floor)
    relaxed = search.relax()
    prices = [relaxed.price]
    done = search.settle(relaxed, swaps=False) or search.settle(search.relax(), swaps=True)
    if not done:
        item, most = _price_items(search)
        if item:
            relaxed = search.relax(item, most)
            prices.append(relaxed.price)
            before = np.count_nonzero(search.inside)
            done = search.settle(relaxed, swaps=True)
            most -= int(np.count_nonzero(search.inside) - before)
        if not done:
            States(search, search.relax(item, most), most).run()
    return _Packing(search.start, search.taken, tuple(prices))


def _price_items(search: Search) -> tuple[float, int]:
    """The price of an item that gives the lowest bound, and the number of items it rests on."""
    if not len(search.core):
        return 0.0, 0
    scores, costs = search.scores[search.core], search.costs[search.core]
    split, starts = search.relax().split, search.starts
    room = search.room + int(starts.costs[search.lead] - starts.costs.min())
    most = int(np.searchsorted(np.cumsum(np.sort(costs)), room, "right"))
    if split >= most:
        return lowest(scores, costs, search.room, most, 1.0), most
    # Fewer than this many items cannot beat the best packing.
    base = search.base + float(starts.scores.max() - starts.scores[search.lead])
    least = 1 + int(np.searchsorted(base + np.cumsum(np.sort(scores)[::-1]), search.cut, "right"))
    if split < least:
        return lowest(scores, costs, search.room, least, -1.0), least
    return 0.0, 0


@dataclass(frozen=True, slots=True)
class _Begun:
    prices: tuple[Price, ...]
    first: int | None  # none: nothing beats the floor
    chosen: Mask  # without the first


@dataclass(slots=True)
class _Knapsack:
    scores: Floats  # scaled to at most 1
    costs: Ints
    budget: int
    opens: Mask
    usable: Mask  # part of some valid selection
    grain: float = field(init=False)  # all scores are multiples of it
    order: Ints = field(init=False)  # units that score and cost something, by falling score per cost
    ranks: Ints = field(init=False)  # of equal pairs, in that order

    def __post_init__(self) -> None:
        self.grain = _grain(self.scores[self.usable])
        latest = np.flatnonzero(self.usable & (self.scores > 0) & (self.costs > 0))[::-1]
        scores, costs = self.scores[latest], self.costs[latest]
        self.order = latest[np.lexsort((costs, -scores / costs))]
        changed = (np.diff(self.scores[self.order]) != 0) | (np.diff(self.costs[self.order]) != 0)
        self.ranks = np.concatenate(([0], np.cumsum(changed)))[: len(self.order)]

    def cut(self, total: float) -> float:
        """Whatever is bounded by this is no better than a selection of this total."""
        return total + max(self.grain * 0.99, TOLERANCE * total)

    def begin(self, firsts: Ints, floor: float) -> _Begun:
        """The best of one of the first units (none: of no first unit) and units behind the foremost."""
        origin, starts = -1, Starts(np.zeros(1), np.zeros(1, np.int64))
        if len(firsts):
            origin, starts = int(firsts[0]), Starts(self.scores[firsts], self.costs[firsts])
        chosen = np.zeros(len(self.scores), bool)
        chosen[origin + 1 :] = (self.usable & (self.scores > 0) & (self.costs == 0))[origin + 1 :]
        free = float(self.scores[chosen].sum())
        behind = (self.order > origin) & (self.costs[self.order] <= self.budget - starts.costs.min())
        order = self.order[behind]
        items = Items(self.scores[order], self.costs[order], self.grain)
        packing = _pack(items, self.budget, starts, floor - free)
        if packing.taken is None:
            return _Begun(packing.prices, None, chosen)
        chosen[order[_latest(packing.taken, self.ranks[behind])]] = True
        return _Begun(packing.prices, int(firsts[packing.start]) if len(firsts) else -1, chosen)

    def bounds(self, price: Price, floor: float, firsts: Ints) -> Floats:
        """Upper bounds, by first unit, on the total of a selection that beats the floor."""
        paying = self.usable & (self.scores > 0)
        scores, costs = self.scores[paying], self.costs[paying]
        most = 0
        if price.item > 0:
            most = int(np.searchsorted(np.cumsum(np.sort(costs)), self.budget, "right"))
        elif price.item < 0:  # the least count that can beat the floor, without the first unit
            most = int(np.searchsorted(np.cumsum(np.sort(scores)[::-1]), floor, "right"))
        gains = np.where(paying, np.maximum(self.scores - price.item - price.cost * self.costs, 0.0), 0.0)
        behind = (gains.sum() - np.cumsum(gains))[firsts]
        left = self.budget - self.costs[firsts]
        result: Floats = self.scores[firsts] + behind + price.cost * left + price.item * most
        return result

    def opened(self, prices: tuple[Price, ...]) -> Mask:
        """The best selection that begins with an opening unit."""
        firsts = np.flatnonzero(self.opens & self.usable)
        bounds = np.min([self.bounds(price, 0.0, firsts) for price in prices], axis=0)
        at = int(np.argmax(bounds))
        # No later unit that costs as much and scores no more can do better.
        worse = self.costs[firsts] >= self.costs[firsts[at]]
        worse &= self.scores[firsts] <= self.scores[firsts[at]]
        worse[:at] = False
        total, best = 0.0, np.zeros(len(self.scores), bool)
        groups = [firsts[~worse], firsts[at : at + 1]]
        while groups:
            group = groups.pop()
            for price in prices:
                group = group[self.bounds(price, total, group) > self.cut(total)]
            if not len(group):
                continue
            begun = self.begin(group, total)
            prices = (*prices, *begun.prices)[-8:]
            if begun.first is None:
                continue
            foremost = int(np.argmax(begun.chosen[: begun.first + 1]))
            if begun.chosen[foremost]:
                # A unit before the first, or the first taken twice: neither half allows this again.
                apart = group == begun.first if foremost == begun.first else group > foremost
                groups += [group[apart], group[~apart]]
                continue
            best = begun.chosen
            best[self.latest_like(begun.first, best)] = True
            total = float(self.scores[best].sum())
        return best

    def latest_like(self, first: int, rest: Mask) -> int:
        """The latest opening unit before the rest with the score and the cost of the first."""
        alike = (self.scores == self.scores[first]) & (self.costs == self.costs[first])
        alike &= self.opens & self.usable
        return int(np.flatnonzero(alike[: int(np.argmax(rest)) if rest.any() else None])[-1])


def _grain(scores: Floats) -> float:
    """The greatest number that all scores are multiples of; 0 where it is too small to tell totals apart."""
    whole = scores * 2.0**40
    if np.any(whole != np.rint(whole)):
        return 0.0
    return float(np.gcd.reduce(whole.astype(np.int64)) * 2.0**-40)


def _latest(taken: Mask, ranks: Ints) -> Mask:
    """As many of each rank as are taken, the first of them."""
    counts = np.bincount(ranks[taken], minlength=int(ranks[-1]) + 1 if len(ranks) else 0)
    starts = np.searchsorted(ranks, ranks)
    result: Mask = np.arange(len(ranks)) - starts < counts[ranks]
    return result


def _usable(scores: Floats, costs: Ints, budget: int, opens: Mask) -> Mask:
    """Units that fit, alone if they open and else behind the cheapest opening unit before them."""
    usable = (scores >= 0) & (costs <= budget)
    opener = np.minimum.accumulate(np.where(usable & opens, costs, budget + 1))
    result: Mask = usable & (opens | (costs + opener <= budget))
    return result


def _complete(knapsack: _Knapsack, chosen: Mask) -> list[int]:
    """Adds units that still fit, which score nothing: the latest first, as far as the rule allows."""
    costs, opens = knapsack.costs, knapsack.opens
    left = knapsack.budget - int(costs[chosen].sum())
    first = int(np.argmax(chosen)) if chosen.any() else len(chosen)
    spare = np.flatnonzero(knapsack.usable & ~chosen & (costs <= left))[::-1]
    waiting: list[int] = []
    for at in spare[np.argsort(-knapsack.scores[spare], kind="stable")].tolist():
        if at < first and not opens[at]:
            waiting.append(at)
            continue
        freed = [at]
        if at < first and costs[at] <= left:
            first = at
            freed += [unit for unit in waiting if unit > at]
            waiting = [unit for unit in waiting if unit < at]
        for unit in freed:
            if costs[unit] <= left:
                chosen[unit] = True
                left -= int(costs[unit])
    return [int(at) for at in np.flatnonzero(chosen)]


def solve(
    scores: Sequence[float], costs: Sequence[int], budget: int, *, opens: Sequence[bool] | None = None
) -> list[int]:
    """Returns the indices, ascending, of a selection with the highest total score whose cost fits the budget.

    With `opens`, a selection must be empty or begin with a unit that opens, and the highest total among those
    is meant. Totals are optimal to one part in 10^10. Units with a score below 0 are never chosen; units that
    score 0 fill the room left, the latest first. Of units with equal scores and costs the latest are chosen,
    but where one of them must come first.
    """
    if not len(scores):
        return []
    values, prices = np.asarray(scores, np.float64), np.asarray(costs, np.int64)
    may_open = np.ones(len(values), bool) if opens is None else np.asarray(opens, bool)
    budget = min(budget, int(prices.sum()))
    usable = _usable(values, prices, budget, may_open)
    values = np.where(usable, values, 0.0)
    # A power of two changes no digit, and sums cannot overflow.
    values = np.ldexp(values, -int(np.frexp(values.max())[1]))
    knapsack = _Knapsack(values, prices, budget, may_open, usable)
    begun = knapsack.begin(np.zeros(0, np.int64), 0.0)
    chosen = begun.chosen
    if chosen.any() and not may_open[np.argmax(chosen)]:
        first = int(np.argmax(chosen))
        left = budget - int(prices[chosen].sum())
        spare = np.flatnonzero((knapsack.usable & may_open)[:first] & (prices[:first] <= left))
        if len(spare):
            chosen[spare[-1]] = True
        else:
            chosen = knapsack.opened(begun.prices)
    return _complete(knapsack, chosen)


def by_density(
    scores: Sequence[float], costs: Sequence[int], budget: int, *, opens: Sequence[bool] | None = None
) -> list[int]:
    """Returns the indices, ascending, that a greedy choice by falling score per cost takes (LRE's paper).

    Every unit that still fits is taken, one with a score below 0 excepted; of equal ones the latest. With `opens`,
    what is chosen before the first unit that opens is left out again.
    """
    chosen: list[int] = []
    order = sorted(range(len(scores)), key=lambda at: (-scores[at] / max(1, costs[at]), -at))
    for at in order:
        if scores[at] >= 0 and costs[at] <= budget:
            budget -= costs[at]
            chosen.append(at)
    chosen.sort()
    first = next((place for place, at in enumerate(chosen) if opens is None or opens[at]), len(chosen))
    return chosen[first:]
