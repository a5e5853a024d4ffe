"""The parts of an exact packing, the 0/1 knapsack without any rule of order: a search and its bounds.

The method is that of Martello, Pisinger and Toth ("Dynamic programming and strong bounds for the 0-1
knapsack problem", 1999): a greedy packing improved by swaps; an upper bound from the linear relaxation,
which fixes most items; a second bound from the number of items that can fit, or must be there, which settles
equal scores, equal costs and scores that are a cost plus a constant; and a dynamic programme over the few
items left, from the break item outward. Equal items are counted instead of told apart, and a packing may
begin with one of several starts.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

TOLERANCE = 1e-11  # sums of 10,000 floats are wrong in the 12th digit: a bound this close counts as reached
SWAPS = 60
TANGENTS = 24
PRUNE = 4  # steps between two prunings of all states
MOST = 1 << 17  # states followed at once; with more than that the best packing found may not be the best there is
TRAIL_BITS = np.uint64(40)  # of 64; the rest names the ancestor


@dataclass(frozen=True, slots=True)
class Items:
    """Scores and costs above 0 in falling order of score per cost, equal pairs together.

    Every total differs from the floor by a multiple of the grain (0: of nothing known).
    """

    scores: Floats
    costs: Ints
    grain: float


@dataclass(frozen=True, slots=True)
class Price:
    """What the relaxation charges: for a unit of cost, and for an item."""

    cost: float
    item: float = 0.0


@dataclass(frozen=True, slots=True)
class Starts:
    """What a packing may begin with; exactly one of them is taken, outside the items."""

    scores: Floats
    costs: Ints

    def best(self, rate: float) -> tuple[int, float]:
        """The start worth most where a unit of cost is worth the rate, and that worth."""
        worth = self.scores - rate * self.costs
        at = int(np.argmax(worth))
        return at, float(worth[at])


@dataclass(frozen=True, slots=True)
class Relaxed:
    """A linear relaxation: items by falling priced score per cost, the first `split` of them whole."""

    order: Ints
    split: int
    price: Price
    bound: float
    lean: Floats  # what an item adds beyond its price, by item


def relax(scores: Floats, costs: Ints, room: int, item: float = 0.0, most: int = 0) -> Relaxed:
    """Solves the relaxation in which every item costs `item` of score, given back `most` times."""
    priced = scores - item
    order = np.arange(len(scores)) if item == 0.0 else _by_rate(priced, costs)
    spent = np.cumsum(costs[order])
    split = min(int(np.searchsorted(spent, room, "right")), int(np.count_nonzero(priced > 0)))
    rate = 0.0
    if split < len(order):
        rate = max(0.0, float(priced[order[split]] / costs[order[split]]))
    left = room - (int(spent[split - 1]) if split else 0)
    bound = float(priced[order[:split]].sum()) + rate * left + item * most
    return Relaxed(order, split, Price(rate, item), bound, priced - rate * costs)


def _by_rate(priced: Floats, costs: Ints) -> Ints:
    """The order of falling priced score per cost; rates equal but for rounding keep their order."""
    part, exponent = np.frexp(-priced / costs)
    return np.argsort(np.ldexp(np.rint(part * 2.0**43), exponent), kind="stable")


class Search:
    """The best packing so far, and the items whose place is still open (`core`)."""

    def __init__(self, items: Items, room: int, starts: Starts, floor: float) -> None:
        self.scores, self.costs, self.grain, self.starts = items.scores, items.costs, items.grain, starts
        # The start that the relaxation leads to; the bounds allow for the others.
        rate = relax(items.scores, items.costs, room - int(starts.costs.min())).price.cost
        self.lead, _ = starts.best(rate)
        self.start = self.lead
        self.room = room - int(starts.costs[self.lead])
        self.core: Ints = np.arange(len(items.scores))
        self.inside: Mask = np.zeros(len(items.scores), bool)
        self.base = float(starts.scores[self.lead])
        self.total = floor
        self.taken: Mask | None = None

    @property
    def cut(self) -> float:
        """Whatever is bounded by this is no better than the best packing."""
        return self.total + max(self.grain * 0.99, TOLERANCE * abs(self.total))

    def relax(self, item: float = 0.0, most: int = 0) -> Relaxed:
        """The relaxation of the core."""
        # Costs that are all multiples of a number leave a part of the room empty.
        if len(self.starts.costs) == 1 and len(self.core):
            self.room -= self.room % int(np.gcd.reduce(self.costs[self.core]))
        relaxed = relax(self.scores[self.core], self.costs[self.core], self.room, item, most)
        rate = relaxed.price.cost
        lead = float(self.starts.scores[self.lead]) - rate * int(self.starts.costs[self.lead])
        return replace(relaxed, bound=relaxed.bound + self.starts.best(rate)[1] - lead)

    def offer(self, picked: Mask) -> None:
        """Takes the fixed items and the picked ones of the core for the best packing if they are."""
        total = self.base + float(self.scores[self.core[picked]].sum())
        if total > self.total:
            self.total = total
            self.take(picked, self.lead)

    def take(self, picked: Mask, start: int) -> None:
        """Makes the picked items of the core and the fixed ones the best packing."""
        self.start = start
        self.taken = self.inside.copy()
        self.taken[self.core[picked]] = True

    def settle(self, relaxed: Relaxed, *, swaps: bool) -> bool:
        """Improves the packing, then fixes the items whose change would cost more than is to be gained."""
        scores, costs = self.scores[self.core], self.costs[self.core]
        picked = np.zeros(len(self.core), bool)
        picked[relaxed.order[: relaxed.split]] = True
        left = _fill(costs, relaxed.order, picked, self.room)
        if swaps:
            _swap(scores, costs, picked, left)
        self.offer(picked)
        slack = self.base + relaxed.bound - self.cut
        if slack <= 0:
            return True
        fixed = _fixed(costs, relaxed, slack)
        forced = self.core[fixed & (relaxed.lean > 0)]
        self.inside[forced] = True
        self.base = float(self.starts.scores[self.lead] + self.scores[self.inside].sum())
        self.room -= int(self.costs[forced].sum())
        self.core = self.core[~fixed]
        return len(self.core) == 0 and len(self.starts.costs) == 1


def _fixed(costs: Ints, relaxed: Relaxed, slack: float) -> Mask:
    """The items whose change of side brings the bound down by the slack or more.

    Of items that cost the same the better are taken first: a change brings those of the items between along.
    """
    loss = np.abs(relaxed.lean)
    fixed: Mask = loss >= slack
    open_ = np.flatnonzero(~fixed)
    if not len(open_):
        return fixed
    side = np.ones(len(costs), np.int64)
    side[relaxed.order[: relaxed.split]] = -1
    group, loss = (side * costs)[open_], loss[open_]
    index = np.lexsort((side[open_] * open_, loss, group))
    group, loss = group[index], loss[index]
    sums = np.cumsum(loss)
    starts = np.searchsorted(group, group)
    fixed[open_[index]] = sums - sums[starts] + loss[starts] >= slack
    return fixed


def _fill(costs: Ints, order: Ints, picked: Mask, room: int) -> int:
    """Adds in order what still fits; returns the room left."""
    left = room - int(costs[picked].sum())
    rest = order[~picked[order]]
    while True:
        rest = rest[costs[rest] <= left]
        if not len(rest):
            return left
        spent = np.cumsum(costs[rest])
        fits = int(np.searchsorted(spent, left, "right"))
        picked[rest[:fits]] = True
        left -= int(spent[fits - 1])
        rest = rest[fits:]


def _swap(scores: Floats, costs: Ints, picked: Mask, left: int) -> None:
    """Swaps a picked item for one outside while that gains, the best swap first."""
    by_cost = np.lexsort((-scores, costs))
    for _ in range(SWAPS):
        outside = by_cost[~picked[by_cost]]
        given = np.flatnonzero(picked)
        if not len(outside) or not len(given):
            return
        best = np.maximum.accumulate(scores[outside])
        reach = np.searchsorted(costs[outside], costs[given] + left, "right")
        gain = np.where(reach > 0, best[reach - 1], 0.0) - scores[given]
        at = int(np.argmax(gain))
        if gain[at] <= 0:
            return
        new = outside[int(np.searchsorted(best, best[reach[at] - 1]))]
        picked[given[at]], picked[new] = False, True
        left += int(costs[given[at]] - costs[new])


def lowest(scores: Floats, costs: Ints, room: int, most: int, sign: float) -> float:
    """The item price of this sign with the lowest bound: the bound is convex in it, so tangents close in."""

    def tangent(item: float) -> tuple[float, float]:
        relaxed = relax(scores, costs, room, item, most)
        count = float(relaxed.split)
        if relaxed.price.cost > 0:
            whole = relaxed.order[: relaxed.split]
            count += float((room - costs[whole].sum()) / costs[relaxed.order[relaxed.split]])
        return relaxed.bound, sign * (most - count)

    near, far = 0.0, sign * float(scores.max())
    low, fall = tangent(near)
    high, rise = tangent(far)
    best = min((low, near), (high, far))
    for _ in range(TANGENTS):
        if fall >= 0 or abs(far) * most > 100 * abs(low):  # sums of prices this large would hide the scores
            break
        if rise <= 0:
            near, low, fall, far = far, high, rise, 4 * far
            high, rise = tangent(far)
            continue
        # Where the tangents meet; both slopes are per |price|.
        middle = sign * (high - low + fall * abs(near) - rise * abs(far)) / (fall - rise)
        meet = low + fall * (abs(middle) - abs(near))
        value, slope = tangent(middle)
        best = min(best, (value, middle))
        if value <= meet + TOLERANCE * abs(meet):
            break
        if slope < 0:
            near, low, fall = middle, value, slope
        else:
            far, high, rise = middle, value, slope
    return best[1]


def _bundles(scores: Floats, costs: Ints) -> Iterator[tuple[int, int]]:
    """Ranges of equal items in sizes 1, 2, 4, ...: any number of them is a sum of some ranges."""
    edges = np.flatnonzero((np.diff(scores) != 0) | (np.diff(costs) != 0)) + 1
    start = 0
    for stop in (*edges.tolist(), len(scores)):
        size = 1
        while start < stop:
            end = min(start + size, stop)
            yield start, end
            start, size = end, 2 * size


def _undominated(costs: Ints, totals: Floats) -> Mask:
    """Which states, by rising cost and no cost more than twice, are worth more than all that cost no more."""
    keep = np.ones(len(costs), bool)
    keep[1:] = totals[1:] > np.maximum.accumulate(totals)[:-1]
    keep[:-1] &= (costs[1:] > costs[:-1]) | (totals[1:] <= totals[:-1])
    return keep


class States:
    """The states of the dynamic programme: undominated (cost, total) pairs, and how each came about."""

    def __init__(self, search: Search, relaxed: Relaxed, most: int) -> None:
        self.search, self.relaxed = search, relaxed
        core = search.core[relaxed.order]
        self.scores, self.costs = search.scores[core], search.costs[core]
        self.spent = np.concatenate(([0], np.cumsum(self.costs))).astype(np.float64)
        curve = np.concatenate(([0.0], np.cumsum(self.scores - relaxed.price.item)))
        self.curve = np.maximum.accumulate(curve)
        self.split = self.low = self.high = relaxed.split
        starts = search.starts
        names = np.lexsort((-starts.scores, starts.costs))
        names = names[_undominated(starts.costs[names], starts.scores[names])]
        self.names = names
        self.weight = starts.costs[names] - starts.costs[search.lead] + int(self.costs[: self.split].sum())
        self.total = starts.scores[names] - starts.scores[search.lead] + float(self.scores[: self.split].sum())
        self.total += search.base
        # Over the total: what the number of items still allowed is worth.
        self.credit = np.full(len(names), relaxed.price.item * (most - self.split))
        self.trail = np.arange(len(names), dtype=np.uint64) << TRAIL_BITS
        rates = self.scores / self.costs
        self.best_rate = np.append(np.maximum.accumulate(rates[::-1])[::-1], 0.0)
        self.worst_rate = np.append(np.inf, np.minimum.accumulate(rates))
        self.past: list[NDArray[np.uint64]] = []
        self.steps: list[tuple[int, int]] = []
        self.best: tuple[int, int] | None = None

    def run(self) -> None:
        """Takes up the items from the split outward until no state can beat the best packing."""
        down = _bundles(self.scores[: self.split][::-1], self.costs[: self.split][::-1])
        up = _bundles(self.scores[self.split :], self.costs[self.split :])
        lean = np.abs(self.relaxed.lean[self.relaxed.order])
        self.record()
        for turn, (right, left) in enumerate(zip_longest(up, down)):
            for side, bundle in ((1, right), (-1, left)):
                if bundle is None:
                    continue
                start, stop = (self.split + side * end for end in bundle)
                self.low, self.high = min(self.low, stop), max(self.high, stop)
                first = start if side > 0 else start - 1
                if self.search.base + self.relaxed.bound - lean[first] > self.search.cut:
                    self.step(min(start, stop), max(start, stop), side)
                if turn % PRUNE == 0 or len(self.weight) > MOST:
                    self.prune()
            if not len(self.weight):
                break
        if self.best is not None:
            self.search.take(*self.picked(self.best))

    def step(self, start: int, stop: int, side: int) -> None:
        """Lets every state take up the items of a range (add them, or give them back) or leave them."""
        size, bit = side * (stop - start), np.uint64(1 << len(self.steps) % int(TRAIL_BITS))
        weight = self.weight + size * self.costs[start]
        total = self.total + size * self.scores[start]
        credit = self.credit - size * self.relaxed.price.item
        alive = self.alive(weight, total, credit)
        if not alive.any():
            return
        self.steps.append((start, stop))
        weight = np.concatenate((self.weight, weight[alive]))
        total = np.concatenate((self.total, total[alive]))
        index = np.argsort(weight, kind="stable")  # two sorted runs: a merge
        weight, total = weight[index], total[index]
        keep = _undominated(weight, total)
        index = index[keep]
        self.weight, self.total = weight[keep], total[keep]
        self.credit = np.concatenate((self.credit, credit[alive]))[index]
        self.trail = np.concatenate((self.trail, self.trail[alive] | bit))[index]
        self.record()
        if len(self.steps) % int(TRAIL_BITS) == 0:
            self.past.append(self.trail)
            self.trail = np.arange(len(self.weight), dtype=np.uint64) << TRAIL_BITS

    def prune(self) -> None:
        """Drops the states that cannot beat the best packing."""
        alive = self.alive(self.weight, self.total, self.credit)
        self.weight, self.total = self.weight[alive], self.total[alive]
        self.credit, self.trail = self.credit[alive], self.trail[alive]

    def record(self) -> None:
        """Notes the best state that fits."""
        fits = int(np.searchsorted(self.weight, self.search.room, "right"))
        if fits and self.total[fits - 1] > self.search.total:
            self.search.total = float(self.total[fits - 1])
            self.best = len(self.past), int(self.trail[fits - 1])

    def alive(self, weight: Ints, total: Floats, credit: Floats) -> Mask:
        """Which states can beat the best packing with items beyond, if they fit, or without items before."""
        cut, fits = self.search.cut, int(np.searchsorted(weight, self.search.room, "right"))
        gap = (self.search.room - weight).astype(np.float64)
        more = np.interp(self.spent[self.high] + gap[:fits], self.spent, self.curve) - self.curve[self.high]
        less = np.interp(self.spent[self.low] + gap[fits:], self.spent, self.curve, left=-np.inf)
        ceiling = total + credit + np.concatenate((more, less - self.curve[self.low]))
        result: Mask = ceiling > cut
        if len(weight) > MOST:  # the most promising, and no more
            result &= ceiling >= np.partition(ceiling, -MOST)[-MOST]
        if self.relaxed.price.item:  # given back for so many items: beyond that number this bounds better
            result &= total + self.plain(gap, fits) > cut
        return result

    def plain(self, gap: Floats, fits: int) -> Floats:
        """The most that items not yet taken up can add, without a price for items."""
        best, worst = self.best_rate[self.high], self.worst_rate[self.low]
        # Plain rates fall in another order than priced ones: items beyond may be worth those before.
        swaps = np.maximum(best * self.costs[: self.low] - self.scores[: self.low], 0.0).sum()
        back = np.maximum(self.scores[self.high :] - worst * self.costs[self.high :], 0.0).sum()
        return np.concatenate((gap[:fits] * best + swaps, gap[fits:] * worst + back))

    def picked(self, state: tuple[int, int]) -> tuple[Mask, int]:
        """The items of a state, in the order of the core, and its start."""
        picked = np.arange(len(self.costs)) < self.split
        block, trail = state
        size = int(TRAIL_BITS)
        while True:
            for bit, (start, stop) in enumerate(self.steps[block * size : (block + 1) * size]):
                if trail >> bit & 1:
                    picked[start:stop] ^= True
            if not block:
                break
            block -= 1
            trail = int(self.past[block][trail >> size])
        result = np.empty_like(picked)
        result[self.relaxed.order] = picked
        return result, int(self.names[trail >> size])
