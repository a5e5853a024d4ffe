"""What policies would have kept of what a log turned out to need, with weights that have not seen that log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

from forgetless.datasets.logs import Log
from forgetless.errors import BudgetError
from forgetless.policies.base import Policy, floor
from forgetless.training.labels import Case, cases

__all__ = ["SHARES", "kept_of_needed"]

SHARES = (0.25, 0.5)
"""Of a history's length, what may stay."""


def kept_of_needed(
    logs: Sequence[Log], rule: str, policies: dict[str, Callable[[str], Policy]]
) -> dict[str, list[float | None]]:
    """For each policy and each of `SHARES`: the share of what was needed that stays, mean over conversations.

    Units that stay under every policy, such as system messages, count for none. Lengths are of characters.

    Args:
        logs: to measure on.
        rule: what counts as needed, of whole units.
        policies: name -> the policy to measure on a conversation or task of a name.
    """
    found = [case for log in logs for case in cases(log, rule)]
    return {name: [_mean(found, make, share) for share in SHARES] for name, make in policies.items()}


def _mean(found: Sequence[Case], make: Callable[[str], Policy], share: float) -> float | None:
    groups: dict[str, list[float]] = {}
    for case in found:
        kept = _kept(case, make(case.group), share)
        if kept is not None:
            groups.setdefault(case.group, []).append(kept)
    return fmean(map(fmean, groups.values())) if groups else None


def _kept(case: Case, policy: Policy, share: float) -> float | None:
    stays = floor(case.units)
    needed = {unit.index for unit, label in zip(case.units, case.labels, strict=True) if label} - stays.keys()
    if not needed:
        return None
    budget = int(share * sum(unit.tokens for unit in case.units))
    try:
        context = policy(case.units, budget)
    except BudgetError:
        return None
    return sum(entry.form == "raw" for entry in context.ledger if entry.unit in needed) / len(needed)
