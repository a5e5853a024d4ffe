"""The policy `lre`: keep word for word what is likely to be needed later, and the newest steps (LRE)."""

from __future__ import annotations

from pathlib import Path

from forgetless.policies.lre.scorer import scorer as load
from forgetless.policies.lre.weights import Weights
from forgetless.policies.select import Select

__all__ = ["lre"]


def lre(
    scorer: str | Path | Weights | None = None, keep: int = 5, paper_window: bool = False, paper_greedy: bool = False
) -> Select:
    """The policy `lre`.

    Args:
        scorer: weights, a file of them, or `agent` or `conversation` for those that ship; None for the one of these
            that fits the history: the agent's where it has steps.
        keep: so many units at the end are kept newest first, while they fit in half of what the floor leaves.
        paper_window: keep these outside the budget, however long they are, as the paper does.
        paper_greedy: choose by score per token, as the paper does, instead of the best selection.

    Raises:
        ConfigError: the file can't be read or does not match this version.
    """
    return Select(load(scorer), recent=keep, outside=paper_window, greedy=paper_greedy)
