"""Fitting LRE's scorer to logs: features of cases, a logistic regression, and its AUC on groups left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from forgetless.datasets.logs import Log
from forgetless.errors import ConfigError, MissingExtra
from forgetless.policies.lre.carried import CARRIED, Carried
from forgetless.policies.lre.features import FEATURES, Features
from forgetless.policies.lre.growing import Kept
from forgetless.policies.lre.weights import Weight, Weights
from forgetless.training.auc import auc
from forgetless.training.labels import NEXT, Case, cases, moments

__all__ = [
    "AGENT",
    "CONVERSATION",
    "Regression",
    "Table",
    "by_group",
    "fit",
    "folds",
    "held_out",
    "labelled",
    "macro",
    "regression",
    "table",
]

Floats = NDArray[np.float64]

STRENGTH = 0.03
"""Inverse of the L2 penalty (scikit-learn's C). The paper has 1 over 10,000 words; few and kindred columns want more
shrinkage: docs/lre.md has the figures."""

WEIGHED = 0.1
"""The same where rows have weights of their own."""

DAMPING = 0.75
"""Where an agent is about to use much at once, as when it writes a program, each identifier counts less: by this power
of their number. 1 would make all moments equal, 0 all identifiers."""

LEAST = 20
"""Positive and negative units without which nothing is fitted."""

FOLDS = 20
"""Most fits for the AUC on groups left out; with more groups than that, several are left out at once."""

_BOTH = (
    "statement", "statement_excess", "novel", "novel_excess", "rarity_excess", "common", "overlap_previous",
    "overlap_recent", "answers", "numbers", "names", "questions", "dates",
)  # fmt: skip

CONVERSATION = (
    *_BOTH, "speaker", "first_person", "addressee", "others", "deictic", "time", "quantity", "article", "joint",
    "indefinite", "past", "plan",
)  # fmt: skip
"""Features for histories without steps. A unit's place is none of them: what it is worth depends on how long the
conversations are, and weights have to serve others than they were fitted to."""

AGENT = (
    *_BOTH, "index", "position", "recency", "uses", "user", "step", "turn_depth", "words", "salience", "code", "paths",
    "lines", "error",
)  # fmt: skip
"""Features for histories with steps, where units are scored and not what they carry."""


@dataclass(frozen=True)
class Table:
    """Cases as arrays.

    Attributes:
        cases: what was computed.
        rows: all features of each case: [units or identifiers, columns].
        labels: of each case: [units or identifiers].
        columns: names of the features.
        weights: of each row in a fit, by case; none where each class weighs the same.
    """

    cases: Sequence[Case]
    rows: Sequence[Floats]
    labels: Sequence[NDArray[np.bool_]]
    columns: Sequence[str] = FEATURES
    weights: Sequence[Floats] | None = None

    @property
    def groups(self) -> list[str]:
        """The group of each case."""
        return [case.group for case in self.cases]

    @property
    def names(self) -> Sequence[str]:
        """The features to fit."""
        if self.columns is not FEATURES:
            return self.columns
        agents = sum(any(unit.kind == "step" for unit in case.units) for case in self.cases)
        return AGENT if agents * 2 > len(self.cases) else CONVERSATION


def table(found: Iterable[Case]) -> Table:
    """Compute the features of cases."""
    kept = list(found)
    features = Features()
    return Table(kept, [features(case.units) for case in kept], [np.array(case.labels, bool) for case in kept])


def labelled(logs: Iterable[Log], rule: str) -> Table:
    """The cases of logs by a rule: of units, or of identifiers where the rule is `next`.

    Raises:
        ConfigError: no such rule.
    """
    if rule != NEXT:
        return table(case for log in logs for case in cases(log, rule))
    kept: Kept[Carried] = Kept(Carried)
    found: list[Case] = []
    rows: list[Floats] = []
    for log in logs:
        for case, chosen in moments(log, kept):
            found.append(case)
            rows.append(kept(case.units, Carried.features)[chosen])
    labels = [np.array(case.labels, bool) for case in found]
    weights = [np.full(len(needed), needed.sum() ** -DAMPING) for needed in labels]
    return Table(found, rows, labels, CARRIED, weights)


def fit(data: Table, names: Sequence[str], *, label: str, about: str, seed: int = 0) -> Weights:
    """Fit a logistic regression (LRE, "Scoring").

    Args:
        data: what to learn from.
        names: the features to use.
        label: the rule that made the labels.
        about: names the data, for the file.
        seed: of the solver.

    Raises:
        ConfigError: there is too little to learn from.
        MissingExtra: scikit-learn is not installed.
    """
    _enough(data)
    found = regression(data, range(len(data.cases)), names, seed=seed)
    numbers = zip(found.means, found.scales, found.slopes, strict=True)
    weights = [Weight(*map(_short, values)) for values in numbers]
    score = held_out(data, names, seed=seed)
    training = {
        "data": about,
        "groups": len(set(data.groups)),
        "units" if data.columns is FEATURES else "identifiers": sum(map(len, data.labels)),
        "positive": int(sum(labels.sum() for labels in data.labels)),
        "auc": None if score is None else round(score, 3),
    }
    return Weights(dict(zip(names, weights, strict=True)), _short(found.bias), label, training)


def folds(groups: Iterable[str]) -> list[list[str]]:
    """The groups to leave out together, each group once: one at a time, or in `FOLDS` parts where there are many."""
    names = sorted(set(groups))
    return [names[start::FOLDS] for start in range(min(FOLDS, len(names)))]


def held_out(data: Table, names: Sequence[str], *, seed: int = 0) -> float | None:
    """The macro AUC with each group scored by a model that was fitted to others; None where that can't be done."""
    scores: list[Floats] = [np.zeros(len(labels)) for labels in data.labels]
    for fold in folds(data.groups):
        rest = [at for at, group in enumerate(data.groups) if group not in fold]
        if len({bool(label) for at in rest for label in data.labels[at]}) < 2:
            return None
        found = regression(data, rest, names, seed=seed)
        for at, group in enumerate(data.groups):
            if group in fold:
                scores[at] = found(data.rows[at])
    return macro(data, scores)


def by_group(data: Table, scores: Sequence[Floats]) -> dict[str, float]:
    """Each group's mean AUC over its cases; cases with one class are passed over, and groups without others."""
    found: dict[str, list[float]] = {}
    for group, labels, score in zip(data.groups, data.labels, scores, strict=True):
        area = auc(labels, score)
        if area is not None:
            found.setdefault(group, []).append(area)
    return {group: fmean(areas) for group, areas in found.items()}


def macro(data: Table, scores: Sequence[Floats]) -> float | None:
    """The mean of `by_group`."""
    areas = by_group(data, scores)
    return fmean(areas.values()) if areas else None


def _enough(data: Table) -> None:
    units = sum(map(len, data.labels))
    positive = int(sum(labels.sum() for labels in data.labels))
    if not units:
        raise ConfigError("nothing to learn from: no log says what of it was needed; give longer ones")
    if min(positive, units - positive) < LEAST:
        kind = "needed" if positive < LEAST else "not needed"
        what = "units" if data.columns is FEATURES else "identifiers"
        raise ConfigError(
            f"too little to learn from: {min(positive, units - positive)} of {units:,} {what} count as {kind}, and at "
            f"least {LEAST} are needed; give more or longer logs"
        )


class Regression(NamedTuple):
    """A fit: the log odds of a row are bias + slopes x (features - means) / scales."""

    columns: Sequence[int]
    means: Floats
    scales: Floats
    slopes: Floats
    bias: float

    def __call__(self, rows: Floats) -> Floats:
        """The log odds of rows of the table's columns: [rows, columns] -> [rows]."""
        odds: Floats = (rows[:, self.columns] - self.means) / self.scales @ self.slopes + self.bias
        return odds


def regression(data: Table, chosen: Iterable[int], names: Sequence[str], *, seed: int = 0) -> Regression:
    """Fit to the chosen cases of a table, which have both classes."""
    picked = list(chosen)
    columns = [data.columns.index(name) for name in names]
    rows = np.vstack([data.rows[at][:, columns] for at in picked])
    means, scales = rows.mean(axis=0), rows.std(axis=0)
    scales = np.where(scales > 1e-9, scales, 1.0)
    weights = None if data.weights is None else np.concatenate([data.weights[at] for at in picked])
    model = _model(seed, balanced=weights is None)
    labels = np.concatenate([data.labels[at] for at in picked])
    model.fit((rows - means) / scales, labels, sample_weight=weights)
    return Regression(columns, means, scales, model.coef_[0], float(model.intercept_[0]))


def _model(seed: int, *, balanced: bool) -> Any:
    try:
        from sklearn.linear_model import LogisticRegression
    except ImportError:
        raise MissingExtra("train", "scikit-learn") from None
    strength, classes = (STRENGTH, "balanced") if balanced else (WEIGHED, None)
    return LogisticRegression(C=strength, class_weight=classes, max_iter=1_000, tol=1e-8, random_state=seed)


def _short(value: float) -> float:
    """Four significant digits: files stay small, and the last bits of a solver don't show."""
    return float(f"{value:.4g}")
