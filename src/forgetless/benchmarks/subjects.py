"""The policies that a benchmark measures, made so that one history under several budgets is scored once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from forgetless.policies.base import Policy, Scorer
from forgetless.policies.select import Select
from forgetless.registry import load_policy
from forgetless.tokens import Counter
from forgetless.units import Unit

__all__ = ["Subject", "named", "once", "subject"]


@dataclass(frozen=True)
class Subject:
    """A policy as a benchmark's tables name it.

    Attributes:
        name: of its rows.
        weights: what its weights are; "" where it has none.
        make: the policy to measure on a conversation or task of this name, of which its weights have seen nothing.
    """

    name: str
    weights: str
    make: Callable[[str], Policy]


def named(name: str, counter: Counter) -> Subject:
    """A policy with its defaults.

    Raises:
        ConfigError: unknown name.
    """
    policy = subject(name, counter)
    return Subject(name, "as shipped" if name in ("lre", "relevance") else "", lambda _: policy)


def subject(name: str, counter: Counter) -> Policy:
    """The policy `name` with its defaults, made by `once`.

    Raises:
        ConfigError: unknown name.
    """
    return once(load_policy(name, counter=counter))


def once(policy: Policy) -> Policy:
    """The same policy; a selecting one keeps the scores of the units and the query that it saw last."""
    return replace(policy, scorer=_Last(policy.scorer)) if isinstance(policy, Select) else policy


class _Last:
    """A scorer that scores the same list of units for the same query once."""

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer
        self.units: Sequence[Unit] = ()
        self.query: Unit | None = None
        self.scores: Sequence[float] = ()

    def __call__(self, units: Sequence[Unit], query: Unit | None = None) -> Sequence[float]:
        if units is not self.units or query is not self.query:
            self.units, self.query, self.scores = units, query, self.scorer(units, query)
        return self.scores
