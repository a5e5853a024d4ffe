"""MT-Eval's expansion, refinement and follow-up dialogues, which a judge scores (Kwan et al., 2024).

A reply that the model need not give (`do_inference` false) stands as the file has it; the file's other replies are
GPT-4's and are not used. Recollection is scored by rules: `datasets.mt_eval`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forgetless.datasets.judged import Dialogue, Turn, entries
from forgetless.errors import ConfigError

__all__ = ["read_mt_eval"]

TASKS = ("expansion", "refinement", "follow-up")


def read_mt_eval(path: Path) -> list[Dialogue]:
    """The dialogues of a folder's `<task>_multi.jsonl`, or of one such file.

    Raises:
        ConfigError: there is none, or one can't be read or is in another layout.
    """
    files = [file for task in TASKS if (file := path / f"{task}_multi.jsonl").exists()] if path.is_dir() else [path]
    if not files:
        raise ConfigError(f"{str(path)!r} holds none of {', '.join(f'{task}_multi.jsonl' for task in TASKS)}")
    return [dialogue for file in files for dialogue in _read(file)]


def _read(file: Path) -> list[Dialogue]:
    task = file.name.partition("_")[0]

    def dialogue(_: int, value: Mapping[str, Any]) -> list[Dialogue]:
        turns = [
            Turn(str(turn["user"])) if turn["do_inference"] else Turn(str(turn["user"]), str(turn["sys"]), judged=False)
            for turn in value["conv"]
        ]
        return [Dialogue(f"{task} {value['id']}", task, tuple(turns))]

    return entries(file, "MT-Eval", dialogue)
