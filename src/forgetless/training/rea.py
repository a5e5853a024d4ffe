"""Calibrating REA's two thresholds for a similarity: from logs, without labels.

A cosine of 0.5 means one thing to one encoder and another to the next, so no pair of numbers serves all. The low one
lets go of at most a share of the replies that questions turned out to need; the high one keeps raw at most a share
of those that they did not need.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from forgetless.errors import ConfigError
from forgetless.policies.rea.similarity import Similarity
from forgetless.training.relevance import Question

__all__ = ["Calibration", "calibrate"]

LOST = 0.1
"""Most of the needed replies that may be left out."""

WASTED = 0.1
"""Most of the replies that were not needed that may stay raw."""

LEAST = 20
"""Needed replies without which nothing is calibrated."""


class Calibration(NamedTuple):
    """Thresholds, and what they do to the replies that they were made from.

    Attributes:
        low: below it a reply is left out.
        high: above it a reply stays raw.
        needed: replies that were needed.
        others: replies that were not.
        left_out: share of the others that are left out.
        raw: share of the needed that stay raw.
    """

    low: float
    high: float
    needed: int
    others: int
    left_out: float
    raw: float


def calibrate(questions: Iterable[Question], near: Similarity) -> Calibration:
    """The thresholds of a similarity.

    Args:
        questions: with what stood before each, and which of it was needed.
        near: the similarity.

    Raises:
        ConfigError: too few replies were needed.
    """
    needed: list[float] = []
    others: list[float] = []
    for question in questions:
        pairs = zip(question.units, question.labels, strict=True)
        replies = [(unit.text, label) for unit, label in pairs if unit.kind in ("assistant", "step")]
        for score, (_, label) in zip(near([text for text, _ in replies], question.text), replies, strict=True):
            (needed if label else others).append(score)
    if min(len(needed), len(others)) < LEAST:
        raise ConfigError(
            f"too little to calibrate from: questions needed {len(needed)} replies and did not need {len(others)}, and "
            f"at least {LEAST} of each are asked for; give more or longer logs"
        )
    low = float(np.quantile(needed, LOST, method="lower"))
    high = max(low, float(np.quantile(others, 1 - WASTED, method="higher")))
    left_out, raw = float(np.mean(np.array(others) < low)), float(np.mean(np.array(needed) > high))
    return Calibration(round(low, 2), round(high, 2), len(needed), len(others), round(left_out, 3), round(raw, 3))
