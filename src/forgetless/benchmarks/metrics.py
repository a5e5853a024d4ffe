"""Figures over records: means with bootstrap intervals that resample whole groups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple, Protocol, TypeVar

__all__ = ["Estimate", "by_policy", "estimate", "mean", "mean_by_group", "recall"]

RESAMPLES = 2_000


class Estimate(NamedTuple):
    """A mean and its interval."""

    mean: float
    low: float
    high: float


def recall(needed: Collection[object], kept: Collection[object]) -> float:
    """The share of what is needed that was kept; 1 when nothing is needed."""
    return sum(1 for item in needed if item in kept) / len(needed) if needed else 1.0


def mean_by_group(groups: Mapping[str, Sequence[float]], *, seed: int, level: float = 0.95) -> Estimate:
    """The mean over all values, with a percentile bootstrap interval over groups.

    Values of one conversation or task resemble one another: drawing whole groups keeps the interval honest.
    With few groups it is still too narrow, so a table names the number of groups.

    Args:
        groups: values by group; groups without values are passed over.
        seed: of the resampling.
        level: share of resampled means inside the interval.

    Raises:
        ValueError: no value at all.
    """
    import numpy as np

    filled = [np.asarray(groups[name], float) for name in sorted(groups) if len(groups[name])]
    if not filled:
        raise ValueError("a mean needs at least one value")
    sums = np.array([values.sum() for values in filled])
    counts = np.array([len(values) for values in filled])
    drawn = np.random.default_rng(seed).integers(len(filled), size=(RESAMPLES, len(filled)))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(float(sums.sum() / counts.sum()), float(low), float(high))


def mean(values: Sequence[float]) -> float | None:
    """The mean as a results file holds it, to four places; None of nothing."""
    return round(fmean(values), 4) if values else None


def estimate(name: str, groups: Mapping[str, Sequence[float]], seed: int) -> dict[str, float | None]:
    """`mean_by_group` as columns of a results row: `name`, `name_low`, `name_high`; None where there is no value."""
    keys = (name, f"{name}_low", f"{name}_high")
    if not any(groups.values()):
        return dict.fromkeys(keys)
    return dict(zip(keys, (round(value, 4) for value in mean_by_group(groups, seed=seed)), strict=True))


class _Cell(Protocol):
    policy: str
    budget: int | None


Cell = TypeVar("Cell", bound=_Cell)


def by_policy(cells: Iterable[Cell], row: Callable[[list[Cell]], Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row for each policy and budget, made of their cells, in the order in which they first come."""
    grouped: dict[tuple[str, int | None], list[Cell]] = {}
    for cell in cells:
        grouped.setdefault((cell.policy, cell.budget), []).append(cell)
    return [{"policy": policy, "budget": budget, **row(group)} for (policy, budget), group in grouped.items()]
