"""The scorers of LRE: how likely each unit is to be needed later, from its features (LRE, "Scoring").

A logistic regression, served with numpy; no model is called, and the question is not looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from forgetless.policies.lre.features import CAUSAL, FEATURES, Features
from forgetless.policies.lre.weights import Weights
from forgetless.units import Unit

__all__ = ["AGENT", "CONVERSATION", "Fitting", "Lre", "scorer"]

AGENT, CONVERSATION = "agent", "conversation"
"""The weights that ship."""


class Lre:
    """Scores units with one set of weights; a conversation that grows pays for its new units only."""

    def __init__(self, weights: Weights, features: Features | None = None) -> None:
        """Prepare to score.

        Args:
            weights: the regression.
            features: shared with other scorers, so that a conversation is counted once for all.
        """
        self.weights = weights
        self.version = weights.version
        self._features = features or Features()
        used = {name: w.coefficient / w.scale for name, w in weights.features.items()}
        slopes = np.array([used.get(name, 0.0) for name in FEATURES])
        self._causal, self._late = slopes[: len(CAUSAL)], slopes[len(CAUSAL) :]
        self._offset = weights.bias - sum(used[name] * w.mean for name, w in weights.features.items())

    def __call__(self, units: Sequence[Unit], query: Unit | None = None) -> list[float]:
        """The probability of each unit, from 0 to 1; `query` is not used."""
        found: list[float] = self.probabilities(units).tolist()
        return found

    def probabilities(self, units: Sequence[Unit]) -> NDArray[np.float64]:
        """What a call gives, as an array."""
        causal, late = self._features.parts(units)
        odds = causal @ self._causal + late @ self._late + self._offset
        probabilities: NDArray[np.float64] = 1 / (1 + np.exp(-np.clip(odds, -500, 500)))
        return probabilities


class Fitting:
    """Scores a history with steps by the agent's weights, and any other by the conversation's."""

    def __init__(self) -> None:
        features = Features()
        self._agent = Lre(shipped(AGENT), features)
        self._conversation = Lre(shipped(CONVERSATION), features)
        self.version = f"{AGENT} {self._agent.version}, {CONVERSATION} {self._conversation.version}"

    def __call__(self, units: Sequence[Unit], query: Unit | None = None) -> list[float]:
        """The probability of each unit, from 0 to 1."""
        agent = any(unit.kind == "step" for unit in units)
        return (self._agent if agent else self._conversation)(units, query)


@cache
def shipped(name: str) -> Weights:
    """The weights that ship under a name."""
    return Weights.load(Path(__file__).with_name(f"{name}.json"))


def scorer(which: str | Path | Weights | None = None) -> Lre | Fitting:
    """A scorer: `agent`, `conversation`, the path of a weights file, weights, or None for what fits the history.

    Raises:
        ConfigError: the file can't be read or does not match.
    """
    if which is None:
        return Fitting()
    if isinstance(which, Weights):
        return Lre(which)
    return Lre(shipped(which) if which in (AGENT, CONVERSATION) else Weights.load(which))
