"""What an evaluator is: how a task's replies are asked for, and whether one is right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

__all__ = ["Evaluator"]


class Evaluator(Protocol):
    """Scores replies to one kind of task."""

    def prompt(self, record: Mapping[str, Any]) -> str:
        """The system prompt: what there is to work with, and how an answer is to be given."""

    def score(self, reply: str, record: Mapping[str, Any]) -> bool | None:
        """Whether a reply's answer is right; None where it gives none."""
