"""MT-Bench (Zheng et al., 2023) and MT-Bench+ (MemoChat, Lu et al., 2023).

MT-Bench asks two questions, and both replies are judged. MT-Bench+ strings the questions of several topics together
and asks one more, on what was said of one or two of them; only the reply to that is judged, and the judge sees these
topics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from forgetless.datasets.judged import Dialogue, Turn, entries

__all__ = ["read_mt_bench", "read_mt_bench_plus"]

REFERENCED = frozenset({"coding", "math", "reasoning"})
"""Categories that are judged beside a reference answer, as FastChat has it."""

ASKED = "-Q"
"""How the mark of the question that is judged ends, in MT-Bench+; before it stand the topics that it is about."""


def read_mt_bench(path: Path) -> list[Dialogue]:
    """The dialogues of `question.jsonl`, or of a folder that holds it.

    Raises:
        ConfigError: it can't be read, or is in another layout.
    """
    return entries(path / "question.jsonl" if path.is_dir() else path, "MT-Bench", _question)


def _question(_: int, value: Mapping[str, Any]) -> list[Dialogue]:
    known = list(value.get("reference") or []) if value["category"] in REFERENCED else []
    turns = [
        Turn(str(user), reference=str(known[at]) if at < len(known) else "") for at, user in enumerate(value["turns"])
    ]
    return [Dialogue(str(value["question_id"]), str(value["category"]), tuple(turns))]


def read_mt_bench_plus(path: Path) -> list[Dialogue]:
    """The dialogues of `mtbenchplus.json`, or of a folder that holds it.

    Raises:
        ConfigError: it can't be read, or is in another layout.
    """
    return entries(path / "mtbenchplus.json" if path.is_dir() else path, "MT-Bench+", _strung)


def _strung(_: int, value: Mapping[str, Any]) -> list[Dialogue]:
    said = [turn for turn in value["conversations"] if turn["from"] == "human"]
    marks = [str(turn["turn-info"]) for turn in said]
    if not any(mark.endswith(ASKED) for mark in marks):
        raise ValueError(f"no turn's 'turn-info' ends in {ASKED}")
    turns = [_turn(at, str(turn["value"]), marks) for at, turn in enumerate(said)]
    return [Dialogue(str(value["id"]), str(value["type"]), tuple(turns))]


def _turn(at: int, user: str, marks: Sequence[str]) -> Turn:
    if not marks[at].endswith(ASKED):
        return Turn(user, judged=False)
    topics = f"-{marks[at]}"
    about = [n for n, mark in enumerate(marks[:at]) if f"-{mark.rpartition('-')[0]}-" in topics]
    return Turn(user, sees=tuple(about))
