"""The area under the ROC curve: how often a unit that is needed scores above one that is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["auc"]


def auc(labels: Sequence[bool] | NDArray[Any], scores: Sequence[float] | NDArray[Any]) -> float | None:
    """The share of pairs of a positive and a negative unit that the scores order rightly; ties count half.

    None when all labels are the same.
    """
    positive = np.asarray(labels, bool)
    many = int(positive.sum())
    if many in (0, len(positive)):
        return None
    _, group, counts = np.unique(np.asarray(scores, np.float64), return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2  # of equal scores the mean rank
    above = ranks[group][positive].sum() - many * (many + 1) / 2
    return float(above / (many * (len(positive) - many)))
