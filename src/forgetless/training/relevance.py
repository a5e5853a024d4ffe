"""Fitting the scorer `relevance` to logs: each question with what stood before it, and which of that it needed.

The rules are LRE's (`training.labels`), applied to one question at a time. In a fit every question weighs the same, and
within it the units that it needed as much as all others together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forgetless.datasets.logs import Asked, Log
from forgetless.errors import ConfigError, MissingExtra
from forgetless.policies.lre.weights import Weight
from forgetless.policies.relevance.features import QUERY
from forgetless.policies.relevance.scorer import COLUMNS, RelevanceWeights, Rows
from forgetless.training.auc import auc
from forgetless.training.labels import cases
from forgetless.training.lre import CONVERSATION, folds
from forgetless.units import Unit

__all__ = ["NAMES", "Question", "Sheet", "fit", "held_out", "odds", "questions", "sheet", "weights"]

Floats = NDArray[np.float64]

NAMES = (*CONVERSATION, *QUERY)
"""The features that are fitted."""

STRENGTH = 1.0
"""Inverse of the L2 penalty, for a weight of 1 a question: few questions are held close to 0."""

LEAST = 20
"""Questions without which nothing is fitted."""

OTHERS = 200
"""Units that a question did not need, drawn from its history: more of them change nothing that can be measured."""

OWN = 100
"""Most questions of a log's own, evenly spaced over it: each is looked for in all that stood before it."""

BEFORE = 30
"""Units that stand before a question at least. Short histories fit as they are, and teach what does not hold for long
ones: their questions go on from the reply before them."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question of a log.

    Attributes:
        group: the conversation or task.
        units: what stood before it.
        text: what was asked.
        labels: of each unit, whether it was needed.
    """

    group: str
    units: Sequence[Unit]
    text: str
    labels: tuple[bool, ...]


def questions(log: Log, rule: str, least: int = BEFORE) -> Iterator[Question]:
    """The questions of a log of which the rule says what they needed.

    They are those asked after it, where the log comes with any, else the user's own, each with the reply as its
    answer.

    Args:
        log: one conversation.
        rule: `best`, `answers` or `gold`.
        least: questions with fewer units before them are passed over.

    Raises:
        ConfigError: no such rule.
    """
    for asked, units in _asked(log, least):
        texts = log.texts[: len(units)]
        for case in cases(replace(log, units=units, questions=(asked,), texts=texts), rule):
            yield Question(case.group, case.units, asked.text, case.labels)


def _asked(log: Log, least: int) -> Iterator[tuple[Asked, Sequence[Unit]]]:
    """Each question and what stood before it."""
    if log.questions:
        yield from ((asked, log.units) for asked in log.questions if len(log.units) >= least)
        return
    own = list(_own(log, least))
    many = min(len(own), OWN)
    yield from (own[place * len(own) // many] for place in range(many))


def _own(log: Log, least: int) -> Iterator[tuple[Asked, Sequence[Unit]]]:
    starts = [unit.index for unit in log.units if unit.kind == "user"]
    for start, end in zip(starts, [*starts[1:], len(log.units)], strict=True):
        answer = "\n".join(unit.text for unit in log.units[start + 1 : end])
        if answer and start >= least:
            yield Asked(log.units[start].text, answer), log.units[:start]


@dataclass(frozen=True)
class Sheet:
    """Questions as arrays; questions of which every unit or none was needed are left out.

    Attributes:
        groups: of each question.
        rows: all features of the units before it: [units, COLUMNS].
        labels: of the same: [units].
    """

    groups: Sequence[str]
    rows: Sequence[Floats]
    labels: Sequence[NDArray[np.bool_]]


def sheet(found: Iterable[Question], seed: int = 0) -> Sheet:
    """Compute the features of questions: the units that they needed, and at most `OTHERS` more of each."""
    rng = np.random.default_rng(seed)
    rows_of = Rows()
    groups, rows, labels = [], [], []
    for question in found:
        needed = np.array(question.labels, bool)
        if not needed.any() or needed.all():
            continue
        others = np.flatnonzero(~needed)
        if len(others) > OTHERS:
            others = np.sort(rng.choice(others, OTHERS, replace=False))
        picked = np.sort(np.concatenate((np.flatnonzero(needed), others)))
        groups.append(question.group)
        rows.append(rows_of(question.units, question.text)[picked])
        labels.append(needed[picked])
    return Sheet(groups, rows, labels)


def weights(data: Sheet, chosen: Iterable[int], *, label: str, about: str, seed: int = 0) -> RelevanceWeights:
    """Fit to the chosen questions, of which there is at least one.

    Raises:
        MissingExtra: scikit-learn is not installed.
    """
    picked = list(chosen)
    columns = [COLUMNS.index(name) for name in NAMES]
    rows = np.vstack([data.rows[at][:, columns] for at in picked])
    labels = np.concatenate([data.labels[at] for at in picked])
    means, scales = rows.mean(axis=0), rows.std(axis=0)
    varied = scales > 1e-9
    model = _model(seed)
    weight = np.concatenate([_balanced(data.labels[at]) for at in picked])
    model.fit((rows[:, varied] - means[varied]) / scales[varied], labels, sample_weight=weight)
    numbers = zip(means[varied], scales[varied], model.coef_[0], strict=True)
    names = [name for name, does in zip(NAMES, varied, strict=True) if does]
    features = dict(zip(names, (Weight(*map(_short, values)) for values in numbers), strict=True))
    training = {
        "data": about,
        "groups": len({data.groups[at] for at in picked}),
        "questions": len(picked),
        "units": len(labels),
        "positive": int(labels.sum()),
    }
    return RelevanceWeights(features, _short(float(model.intercept_[0])), label, training)


def fit(data: Sheet, *, label: str, about: str, seed: int = 0) -> RelevanceWeights:
    """Fit to all questions; what is told of the training has the AUC on groups left out.

    Raises:
        ConfigError: there is too little to learn from.
        MissingExtra: scikit-learn is not installed.
    """
    if len(data.groups) < LEAST:
        raise ConfigError(
            f"too little to learn from: {len(data.groups)} questions with {BEFORE} units before them, of which they "
            f"needed one, and at least {LEAST} are wanted; give more or longer logs, and for runs of agents train `lre`"
        )
    found = weights(data, range(len(data.groups)), label=label, about=about, seed=seed)
    score = held_out(data, seed=seed)
    return replace(found, training={**found.training, "auc": None if score is None else round(score, 3)})


def held_out(data: Sheet, *, seed: int = 0) -> float | None:
    """The mean over groups of the AUC of their questions, each scored by a fit to other groups; None without others."""
    areas: dict[str, list[float]] = {}
    for fold in folds(data.groups):
        rest = [at for at, group in enumerate(data.groups) if group not in fold]
        if not rest:
            return None
        found = weights(data, rest, label="", about="", seed=seed)
        for at, group in enumerate(data.groups):
            if group in fold:
                area = auc(data.labels[at], odds(found, data.rows[at]))
                areas.setdefault(group, []).append(0.5 if area is None else area)
    return fmean(map(fmean, areas.values())) if areas else None


def odds(found: RelevanceWeights, rows: Floats) -> Floats:
    """The log odds of units from all their features: [units, COLUMNS] -> [units]."""
    total = np.full(len(rows), found.bias)
    for name, weight in found.features.items():
        total += (rows[:, COLUMNS.index(name)] - weight.mean) / weight.scale * weight.coefficient
    return total


def _balanced(needed: NDArray[np.bool_]) -> Floats:
    """Weights that add up to 1, half of it for what was needed."""
    many = int(needed.sum())
    return np.where(needed, 0.5 / many, 0.5 / (len(needed) - many))


def _model(seed: int) -> Any:
    try:
        from sklearn.linear_model import LogisticRegression
    except ImportError:
        raise MissingExtra("train", "scikit-learn") from None
    return LogisticRegression(C=STRENGTH, max_iter=1_000, tol=1e-6, random_state=seed)


def _short(value: float) -> float:
    """Four significant digits: files stay small, and the last bits of a solver don't show."""
    return float(f"{value:.4g}")
