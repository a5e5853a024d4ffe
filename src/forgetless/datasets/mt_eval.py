"""MT-Eval's recollection dialogues: a rule for all replies, or documents to classify, given in the first turn.

Kwan et al., 2024. A dialogue a line; a file holds rules (`inst_name`) or documents (gold answers in `sys`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forgetless.errors import ConfigError

__all__ = ["CLASSIFY", "Recollection", "read_recollection"]

CLASSIFY = "classification"
"""The rule of dialogues in which each reply must name the document's topic."""


@dataclass(frozen=True, slots=True)
class Recollection:
    """One dialogue.

    Attributes:
        id: unique among those that were read.
        rule: MT-Eval's name of the constraint, or `CLASSIFY`.
        terms: the constraint's arguments.
        instruction: the user's first turn, which gives it.
        reply: what the assistant has answered to that.
        questions: the turns to be answered.
        gold: what an answer must hold, for each question; empty where the rule decides.
    """

    id: str
    rule: str
    terms: Mapping[str, Any]
    instruction: str
    reply: str
    questions: tuple[str, ...]
    gold: tuple[str, ...] = ()


def read_recollection(path: Path) -> list[Recollection]:
    """The dialogues of a file, or of a folder's `recollection_multi_*.jsonl`.

    Raises:
        ConfigError: there is none, or a line is not in MT-Eval's layout.
    """
    files = sorted(path.glob("recollection_multi_*.jsonl"), reverse=True) if path.is_dir() else [path]
    found = [dialogue for file in files for dialogue in _dialogues(file)]
    if not found:
        raise ConfigError(f"{str(path)!r} holds no recollection dialogue of MT-Eval")
    return found


def _dialogues(file: Path) -> Iterator[Recollection]:
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{str(file)!r} can't be read: {error}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield _dialogue(json.loads(line))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(
                f"{str(file)!r}, line {number}: not in MT-Eval's layout ({type(error).__name__}: {error})"
            ) from None


def _dialogue(value: Mapping[str, Any]) -> Recollection:
    first, *turns = value["conv"]
    asked = [turn for turn in turns if turn["do_inference"]]
    rule = str(value.get("inst_name") or CLASSIFY)
    gold = tuple(str(turn["sys"]) for turn in asked) if rule == CLASSIFY else ()
    return Recollection(
        f"{rule} {value['id']}",
        rule,
        dict(value.get("inst_args") or {}),
        str(first["user"]),
        str(first["sys"]),
        tuple(str(turn["user"]) for turn in asked),
        gold,
    )
