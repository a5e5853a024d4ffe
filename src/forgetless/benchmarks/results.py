"""A run of a benchmark as a folder: config.json, records.jsonl, summary.json, and plots beside them."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

from forgetless.errors import ConfigError

__all__ = ["Run", "open_run", "resume_run"]


class Run:
    """An open results folder. Records are written as they come, so that a broken run loses none.

    Attributes:
        folder: where it is.
        before: the records of the broken run that this one goes on from.
    """

    def __init__(self, folder: Path, records: IO[str], before: Sequence[Mapping[str, Any]] = ()) -> None:
        self.folder = folder
        self.before = before
        self._records = records

    def record(self, **values: Any) -> None:
        """Append one record."""
        self._records.write(json.dumps(values, ensure_ascii=False) + "\n")
        self._records.flush()

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the summary; a run without one is a broken run."""
        _write(self.folder / "summary.json", summary)


@contextmanager
def open_run(out: Path, benchmark: str, **config: Any) -> Iterator[Run]:
    """Open `out` for one run, replacing an older one there.

    Args:
        out: the folder; made when missing.
        benchmark: name of the benchmark, with the version of what it measures.
        config: everything that the figures depend on: seed, sizes, policies, the data's name (no local paths).
    """
    with _opened(out, _about(benchmark, config), []) as run:
        yield run


@contextmanager
def resume_run(out: Path, benchmark: str, **config: Any) -> Iterator[Run]:
    """Open `out` for one run, which goes on from the records of one with the same benchmark, version and config.

    Arguments are those of `open_run`.

    Raises:
        ConfigError: the records are damaged; they stay as they are.
    """
    about = _about(benchmark, config)
    with _opened(out, about, _before(out, about)) as run:
        yield run


def _about(benchmark: str, config: Mapping[str, Any]) -> dict[str, Any]:
    about = {
        "benchmark": benchmark,
        "forgetless": version("forgetless"),
        "python": platform.python_version(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    found: dict[str, Any] = json.loads(json.dumps({**about, **config}))
    return found


@contextmanager
def _opened(out: Path, about: Mapping[str, Any], before: Sequence[Mapping[str, Any]]) -> Iterator[Run]:
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / "summary.json").unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{str(out)!r} can't be a results folder: {error.strerror}") from None
    _write(out / "config.json", about)
    with (out / "records.jsonl").open("w", encoding="utf-8") as records:
        run = Run(out, records, before)
        for record in before:
            run.record(**record)
        yield run


def _before(out: Path, config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The records of a run like this one; a last line that was cut off is none.

    Raises:
        ConfigError: a line before the last is no record. Nothing of the folder has been changed then.
    """
    try:
        then = json.loads((out / "config.json").read_text(encoding="utf-8"))
        lines = (out / "records.jsonl").read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError):
        return []
    if {**then, "started": ""} != {**config, "started": ""}:
        return []
    found = []
    for number, line in enumerate(lines[:-1], 1):
        try:
            found.append(dict(json.loads(line)))
        except (ValueError, TypeError):
            raise ConfigError(
                f"line {number} of {str(out / 'records.jsonl')!r} is damaged: mend it, or take another folder"
            ) from None
    return found


def _write(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
