"""The policy `lre`: keep word for word what is likely to be needed later (LRE).

By weights for identifiers, as the agent's are, a step that is not kept whole may stay with its results masked.
"""

from __future__ import annotations

from pathlib import Path

from forgetless.policies.lre.scorer import scorer as load
from forgetless.policies.lre.weights import Weights
from forgetless.policies.select import Select
from forgetless.tokens import Counter, for_model

__all__ = ["lre"]


def lre(
    scorer: str | Path | Weights | None = None,
    keep: int = 5,
    paper_window: bool = False,
    paper_greedy: bool = False,
    counter: Counter | None = None,
) -> Select:
    """The policy `lre`.

    Args:
        scorer: weights, a file of them, or `agent` or `conversation` for those that ship; None for the one of these
            that fits the history: the agent's where it is mostly steps.
        keep: so many units at the end are kept newest first, while they fit in half of what the floor leaves. Weights
            for identifiers, as the agent's are, know how recent each is, and do without.
        paper_window: keep these outside the budget, however long they are, as the paper does.
        paper_greedy: choose by score per token, as the paper does, instead of the best selection.
        counter: counts the markers in the place of results.

    Raises:
        ConfigError: the file can't be read or does not match this version.
    """
    return Select(load(scorer), keep, paper_window, paper_greedy, counter or for_model())
