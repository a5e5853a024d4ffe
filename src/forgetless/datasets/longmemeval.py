"""LongMemEval: many sessions of a user with an assistant, and questions on what was said (Wu et al., 2024).

The sessions stand one after the other, a message a turn. Evidence are the user's turns with `has_answer`; where a file
has no such marks, it is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forgetless.errors import ConfigError

__all__ = ["is_longmemeval", "read_longmemeval"]

Question = tuple[str, str, tuple[int, ...]]


def is_longmemeval(value: object) -> bool:
    """Whether a JSON value is an instance."""
    return isinstance(value, Mapping) and "haystack_sessions" in value


def read_longmemeval(
    path: Path, number: int, sample: Mapping[str, Any]
) -> tuple[str, list[dict[str, Any]], list[Question]]:
    """An instance's name, its chat messages, and its questions with answers and places of evidence.

    One question with its answer, or lists of them (`questions`, `answers`); with lists the evidence is of all.

    Raises:
        ConfigError: it is not in LongMemEval's layout; names the instance.
    """
    try:
        turns = [turn for session in sample["haystack_sessions"] for turn in session]
        messages = [{"role": str(turn["role"]), "content": str(turn["content"])} for turn in turns]
        marked = tuple(i for i, turn in enumerate(turns) if turn.get("has_answer") and turn["role"] == "user")
        texts = sample["questions"] if "questions" in sample else [sample["question"]]
        answers = sample["answers"] if "answers" in sample else [sample["answer"]]
        questions = [(str(text), str(answer), marked) for text, answer in zip(texts, answers, strict=True)]
        return str(sample["question_id"]), messages, questions
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"{str(path)!r}, instance {number}: not in LongMemEval's layout ({type(error).__name__}: {error})"
        ) from None
