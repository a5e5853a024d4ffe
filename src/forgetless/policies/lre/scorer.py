"""The scorers of LRE: how likely each unit, or what it carries, is to be needed later (LRE, "Scoring").

A logistic regression, served with numpy; no model is called, and the question is not looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from forgetless.policies.coverage import Shares
from forgetless.policies.lre.carried import CARRIED, Carried
from forgetless.policies.lre.features import CAUSAL, FEATURES, Features
from forgetless.policies.lre.growing import Kept
from forgetless.policies.lre.weights import Weights
from forgetless.units import Unit

__all__ = ["AGENT", "CONVERSATION", "Carrying", "Fitting", "Lre", "scorer", "shipped"]

Floats = NDArray[np.float64]

AGENT, CONVERSATION = "agent", "conversation"
"""The weights that ship."""

WORDS = 1.0
"""What a user's message is worth in an agent's history beside what it carries: an identifier that is surely needed."""


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
        slopes, self._offset = _line(weights, FEATURES)
        self._causal, self._late = slopes[: len(CAUSAL)], slopes[len(CAUSAL) :]

    def __call__(self, units: Sequence[Unit], query: Unit | None = None) -> list[float]:
        """The probability of each unit, from 0 to 1; `query` is not used."""
        found: list[float] = self.probabilities(units).tolist()
        return found

    def probabilities(self, units: Sequence[Unit]) -> Floats:
        """What a call gives, as an array."""
        causal, late = self._features.parts(units)
        return _logistic(causal @ self._causal + late @ self._late + self._offset)


class Carrying:
    """Scores units by the identifiers that they carry: how many of them the next actions will use."""

    def __init__(self, weights: Weights) -> None:
        """Prepare to score with a regression over `CARRIED`."""
        self.weights = weights
        self.version = weights.version
        self._kept = Kept(Carried)
        self._slopes, self._offset = _line(weights, CARRIED)

    def __call__(self, units: Sequence[Unit], query: Unit | None = None) -> Shares:
        """What each unit is worth with all that it carries; `query` is not used."""
        own = np.array([WORDS if unit.kind == "user" else 0.0 for unit in units])

        def read(carried: Carried) -> Shares:
            return Shares(own, _logistic(carried.features() @ self._slopes + self._offset), *carried.pairs())

        return self._kept(units, read)


class Fitting:
    """Scores a history that is mostly steps by the agent's weights, and any other by the conversation's."""

    def __init__(self) -> None:
        """Prepare to score."""
        self._agent = _of(shipped(AGENT))
        self._conversation = _of(shipped(CONVERSATION))
        self.version = f"{AGENT} {self._agent.version}, {CONVERSATION} {self._conversation.version}"

    def __call__(self, units: Sequence[Unit], query: Unit | None = None) -> Sequence[float]:
        """What each unit is worth; `query` is not used."""
        steps = [unit.kind for unit in units].count("step")
        return (self._agent if 2 * steps > len(units) else self._conversation)(units, query)


@cache
def shipped(name: str) -> Weights:
    """The weights that ship under a name."""
    return Weights.load(Path(__file__).with_name(f"{name}.json"))


def scorer(which: str | Path | Weights | None = None) -> Lre | Carrying | Fitting:
    """A scorer: `agent`, `conversation`, the path of a weights file, weights, or None for what fits the history.

    Raises:
        ConfigError: the file can't be read or does not match.
    """
    if which is None:
        return Fitting()
    if isinstance(which, Weights):
        return _of(which)
    return _of(shipped(which) if which in (AGENT, CONVERSATION) else Weights.load(which))


def _of(weights: Weights) -> Lre | Carrying:
    return Carrying(weights) if weights.carried else Lre(weights)


def _line(weights: Weights, columns: Sequence[str]) -> tuple[Floats, float]:
    """The log odds as slopes of raw columns and an offset."""
    used = {name: w.coefficient / w.scale for name, w in weights.features.items()}
    offset = weights.bias - sum(used[name] * w.mean for name, w in weights.features.items())
    return np.array([used.get(name, 0.0) for name in columns]), offset


def _logistic(odds: Floats) -> Floats:
    found: Floats = 1 / (1 + np.exp(-np.clip(odds, -500, 500)))
    return found
