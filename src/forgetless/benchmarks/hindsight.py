"""Selections made with knowledge of what will be needed: the upper bounds that policies are held against.

They keep whole units under the same budget and beside the same floor as every policy, and fill what is left
with the newest. A policy that keeps a part of a unit, as masking does, can pass them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from forgetless.policies.base import Context
from forgetless.policies.select import Select
from forgetless.units import Unit

__all__ = ["ORACLE", "best_cover", "keep_first"]

ORACLE = "oracle"
"""The name of these selections among policies."""

STATES = 4_096
"""Coverings followed at once; more than that, and the fullest are followed."""


def keep_first(units: Sequence[Unit], needed: Collection[int], budget: int) -> Context:
    """As many of the needed units as fit, then the newest.

    Args:
        units: the conversation so far.
        needed: indices of units.
        budget: most tokens.

    Raises:
        BudgetError: what must stay does not fit.
    """
    # Units that score 0 fill the room left, the latest first.
    return Select(lambda units, _=None: [float(unit.index in needed) for unit in units])(units, budget)


def best_cover(masks: Sequence[int], costs: Sequence[int], room: int, covered: int = 0) -> list[int]:
    """The items that together cover most within `room`: maximum coverage under a knapsack.

    Exact by a dynamic programme over coverings while no more than `STATES` of them are in play, else a beam.

    Args:
        masks: what each item covers, a bit for each thing.
        costs: tokens of each item.
        room: most tokens in all.
        covered: what is covered without them.

    Returns:
        Indices, ascending; of equal coverings the cheapest.
    """
    states: dict[int, tuple[int, tuple[int, ...]]] = {covered: (0, ())}
    for item, (mask, cost) in enumerate(zip(masks, costs, strict=True)):
        for before, (spent, taken) in list(states.items()):
            after = before | mask
            if after == before or spent + cost > room:
                continue
            if after not in states or spent + cost < states[after][0]:
                states[after] = (spent + cost, (*taken, item))
        if len(states) > STATES:
            fullest = sorted(states.items(), key=lambda state: (-state[0].bit_count(), state[1][0]))
            states = dict(fullest[:STATES])
    best = max(states, key=lambda mask: (mask.bit_count(), -states[mask][0]))
    return list(states[best][1])
