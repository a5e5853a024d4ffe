"""The policies that a benchmark measures, made so that one history under several budgets is scored once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from forgetless.policies.base import Policy, Scorer
from forgetless.policies.select import Select
from forgetless.registry import load_policy
from forgetless.tokens import Counter
from forgetless.units import Unit

__all__ = ["subject"]


def subject(name: str, counter: Counter) -> Policy:
    """The policy `name` with its defaults; a selecting one keeps the scores of the units that it saw last.

    Raises:
        ConfigError: unknown name.
    """
    policy: Policy = load_policy(name, counter=counter)
    return replace(policy, scorer=_Last(policy.scorer)) if isinstance(policy, Select) else policy


class _Last:
    """A scorer that scores the same list of units once."""

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer
        self.units: Sequence[Unit] = ()
        self.scores: Sequence[float] = ()

    def __call__(self, units: Sequence[Unit], query: Unit | None = None) -> Sequence[float]:
        if units is not self.units:
            self.units, self.scores = units, self.scorer(units, query)
        return self.scores
