"""Policies whose weights are fitted within a benchmark, to other conversations or tasks than they are measured on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from forgetless.benchmarks.subjects import Subject, once
from forgetless.datasets.logs import Log
from forgetless.errors import ConfigError
from forgetless.policies.base import Policy
from forgetless.policies.lre.policy import lre
from forgetless.policies.lre.weights import Weight, Weights
from forgetless.policies.relevance.policy import relevance
from forgetless.training import lre as of_lre
from forgetless.training import relevance as of_relevance

__all__ = ["FITTED", "trained"]


def trained(name: str, rule: str, logs: Sequence[Log], about: str, seed: int) -> Subject:
    """A policy of `FITTED`, fitted by one rule for labels.

    Args:
        name: of the policy.
        rule: one of `training.labels.RULES`.
        logs: to fit to; those of the conversation or task that is measured are left out.
        about: names the logs.
        seed: of the fits.

    Raises:
        ConfigError: the logs say of nothing whether it was needed.
        MissingExtra: scikit-learn is not installed.
    """
    fit = FITTED[name](logs, rule, seed)
    groups = {log.name.partition("/")[0] for log in logs}
    fold_of = {group: tuple(fold) for fold in of_lre.folds(groups) for group in fold}
    made = cache(lambda left_out: once(fit(left_out)))
    return Subject(f"{name}, {rule}", f"fitted to {about} by {rule}", lambda group: made(fold_of.get(group, ())))


def _lre(logs: Sequence[Log], rule: str, seed: int) -> Callable[[Sequence[str]], Policy]:
    data = of_lre.labelled(logs, rule)
    _some(data.groups, rule)

    def fit(left_out: Sequence[str]) -> Policy:
        chosen = [at for at, group in enumerate(data.groups) if group not in left_out]
        found = of_lre.regression(data, chosen, data.names, seed=seed)
        weights = map(Weight, found.means.tolist(), found.scales.tolist(), found.slopes.tolist())
        return lre(Weights(dict(zip(data.names, weights, strict=True)), found.bias, rule, {}))

    return fit


def _relevance(logs: Sequence[Log], rule: str, seed: int) -> Callable[[Sequence[str]], Policy]:
    data = of_relevance.sheet((q for log in logs for q in of_relevance.questions(log, rule)), seed)
    _some(data.groups, rule)

    def fit(left_out: Sequence[str]) -> Policy:
        chosen = [at for at, group in enumerate(data.groups) if group not in left_out]
        return relevance(of_relevance.weights(data, chosen, label=rule, about="", seed=seed))

    return fit


def _some(groups: Sequence[str], rule: str) -> None:
    if not groups:
        raise ConfigError(
            f"the logs to train on say of nothing whether it was needed (rule {rule!r}): give longer ones"
        )


FITTED = {"lre": _lre, "relevance": _relevance}
"""Policies that learn from logs."""
