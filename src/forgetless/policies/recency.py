"""The longest tail of a conversation that fits: what `recent`, `fifo` and the last resort of `masking` share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from forgetless.policies.base import capacity
from forgetless.units import Unit

__all__ = ["tail"]


def tail(units: Sequence[Unit], pinned: Mapping[int, str], budget: int, *, start: int = 0) -> dict[int, str]:
    """What stays when the oldest go first, as unit index -> reason.

    Args:
        units: the whole conversation, at the tokens that it would cost.
        pinned: what must stay, wherever it stands.
        budget: most tokens of all that stays.
        start: index of the first unit that may stay unpinned.

    Returns:
        The pinned units and the longest run of units up to the end, at most from `start`, that fits beside them and
        leaves a user unit first.

    Raises:
        BudgetError: what must stay does not fit.
    """
    left = capacity(units, pinned, budget)
    first_pinned = next((u for u in units if u.kind != "system" and u.index in pinned), None)
    begin = best = len(units)
    for unit in reversed(units[start:]):
        if unit.index not in pinned:
            left -= unit.tokens
            if left < 0:
                break
        begin = unit.index
        if unit.kind == "user" or (first_pinned is not None and begin > first_pinned.index):
            best = begin
    if first_pinned is None and all(u.kind != "user" for u in units):
        best = begin  # no user message anywhere: nothing could open the context in its place
    kept = dict(pinned)
    kept.update((u.index, "recent") for u in units[best:] if u.index not in pinned)
    return kept
