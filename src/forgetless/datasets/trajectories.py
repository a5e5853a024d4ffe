"""Recorded agent runs: JSON lines with a task, a trial, a reward and an ATIF trajectory each."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from forgetless.dialects.atif import messages_from_atif
from forgetless.errors import ConfigError, RequestError

__all__ = ["Recording", "load_trajectories"]


@dataclass(frozen=True, slots=True)
class Recording:
    """One run of an agent on a task.

    Attributes:
        task: name of the task.
        trial: what tells runs of one task apart.
        reward: what the run earned.
        messages: the run as chat messages.
    """

    task: str
    trial: str
    reward: float
    messages: tuple[dict[str, Any], ...]


def load_trajectories(path: Path) -> list[Recording]:
    """Read recorded runs from a file, or from the one `*.jsonl.gz` or `*.jsonl` file in a folder.

    Raises:
        ConfigError: the file is missing or malformed; names the line.
    """
    path = _file(path)
    try:
        with _opened(path) as lines:
            recordings = list(_recordings(path, lines))
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the recorded runs {str(path)!r}: {error}") from None
    if not recordings:
        raise ConfigError(f"{str(path)!r} holds no recorded run")
    return recordings


def _file(path: Path) -> Path:
    if not path.is_dir():
        return path
    found = sorted([*path.glob("*.jsonl.gz"), *path.glob("*.jsonl")])
    if len(found) != 1:
        raise ConfigError(f"the folder {str(path)!r} holds {len(found)} files of runs: name the file itself")
    return found[0]


def _opened(path: Path) -> IO[str]:
    return gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")


def _recordings(path: Path, lines: IO[str]) -> Iterator[Recording]:
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            messages = messages_from_atif(row["trajectory"])
            yield Recording(str(row["task"]), str(row["trial"]), float(row.get("reward") or 0.0), tuple(messages))
        except (KeyError, TypeError, ValueError, RequestError) as error:
            raise ConfigError(
                f"{str(path)!r}, line {number}: not a recorded run ({type(error).__name__}: {error})"
            ) from None
