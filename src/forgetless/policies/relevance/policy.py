"""The policy `relevance`: keep word for word what the question is likely to need."""

from __future__ import annotations

from pathlib import Path

from forgetless.policies.lre.weights import Weights
from forgetless.policies.relevance.scorer import scorer as load
from forgetless.policies.select import Select
from forgetless.tokens import Counter, for_model

__all__ = ["relevance"]


def relevance(scorer: str | Path | Weights | None = None, keep: int = 2, counter: Counter | None = None) -> Select:
    """The policy `relevance`.

    Args:
        scorer: weights, or a file of them; None for those that ship: for a history that is mostly steps, `lre`'s.
        keep: so many units at the end are kept newest first, while they fit in half of what the floor leaves: a
            question may go on from them without a word of theirs.
        counter: counts the markers in the place of results, as in `lre`.

    Raises:
        ConfigError: the file can't be read or does not match this version.
    """
    return Select(load(scorer), recent=keep, counter=counter or for_model())
