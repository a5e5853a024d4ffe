"""Figures over records: means with bootstrap intervals that resample whole groups."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

__all__ = ["Estimate", "mean_by_group", "recall"]

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
