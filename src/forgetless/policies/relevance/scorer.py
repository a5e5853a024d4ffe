"""The scorer `relevance`: how likely a question is to need each unit, from LRE's features and how well it matches.

A logistic regression, served with numpy; no model is called. What does not depend on the question is counted once for
a conversation, and a conversation that grows pays for its new units only.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from forgetless.policies.lre.features import FEATURES, Features
from forgetless.policies.lre.features import VERSION as OWN_VERSION
from forgetless.policies.lre.growing import Kept
from forgetless.policies.lre.scorer import AGENT
from forgetless.policies.lre.scorer import scorer as of_lre
from forgetless.policies.lre.weights import Weights
from forgetless.policies.relevance.features import QUERY, VERSION, matches
from forgetless.policies.relevance.index import Index
from forgetless.units import Unit

__all__ = ["COLUMNS", "Fitting", "Relevance", "RelevanceWeights", "Rows", "scorer", "shipped"]

COLUMNS = (*FEATURES, *QUERY)
"""All features: LRE's, which are the unit's own, and those that depend on the question."""


class RelevanceWeights(Weights):
    """Weights over `COLUMNS`."""

    policy: ClassVar[str] = "relevance"
    format: ClassVar[str] = "forgetless-relevance"
    revision: ClassVar[int] = 1_000 * OWN_VERSION + VERSION
    known: ClassVar[tuple[str, ...]] = COLUMNS


class Rows:
    """Computes the features of units for a question, and keeps what it counted of conversations that may go on."""

    def __init__(self) -> None:
        self._features = Features()
        self._kept = Kept(Index)

    def __call__(self, units: Sequence[Unit], question: str) -> NDArray[np.float64]:
        """All features of the units that stand before a question: [units, COLUMNS]."""
        matched = self._kept(units, lambda index: matches(index, question))
        return np.hstack((*self._features.parts(units), matched))


class Relevance:
    """Scores units for what is asked, with one set of weights."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.version = weights.version
        self._rows = Rows()
        used = {name: w.coefficient / w.scale for name, w in weights.features.items()}
        self._columns = [COLUMNS.index(name) for name in used]
        self._slopes = np.array(list(used.values()))
        self._offset = weights.bias - sum(used[name] * w.mean for name, w in weights.features.items())

    def __call__(self, units: Sequence[Unit], query: Unit | None = None) -> list[float]:
        """The probability of each unit, from 0 to 1; that of the query is 0, for it stays anyway."""
        asked = _asked(units, query)
        before = units[:-1] if asked is not None and asked is units[-1] else units
        rows = self._rows(before, asked.text if asked is not None else "")[:, self._columns]
        # Fitted to as many units that are needed as are not; of a history a question needs about one.
        odds = rows @ self._slopes + self._offset - np.log(max(1, len(before)))
        found: list[float] = (1 / (1 + np.exp(-np.clip(odds, -500, 500)))).tolist()
        return found + [0.0] * (len(units) - len(before))


class Fitting:
    """Scores a history that is mostly steps by LRE's weights for agents, and any other with the weights that ship.

    An agent's question stands at the start of its run, and what its next action needs is told by what the steps carry.
    """

    def __init__(self) -> None:
        self._agent = of_lre(AGENT)
        self._conversation = Relevance(shipped())
        self.version = f"conversation {self._conversation.version}, {AGENT} {self._agent.version}"

    def __call__(self, units: Sequence[Unit], query: Unit | None = None) -> Sequence[float]:
        """What each unit is worth."""
        steps = sum(unit.kind == "step" for unit in units)
        return (self._agent if 2 * steps > len(units) else self._conversation)(units, query)


def _asked(units: Sequence[Unit], query: Unit | None) -> Unit | None:
    """What the next reply works from: the query, or the newest step when the agent has acted on it since."""
    if query is not None and units[query.index : query.index + 1] == [query]:
        return units[-1] if units[-1].kind == "step" else units[query.index]
    return query


@cache
def shipped() -> Weights:
    """The weights that ship."""
    return RelevanceWeights.load(Path(__file__).with_name("conversation.json"))


def scorer(which: str | Path | Weights | None = None) -> Relevance | Fitting:
    """A scorer: weights, the path of a file of them, or None for those that ship and fit the history.

    Raises:
        ConfigError: the file can't be read or does not match.
    """
    if which is None:
        return Fitting()
    return Relevance(which if isinstance(which, Weights) else RelevanceWeights.load(which))
