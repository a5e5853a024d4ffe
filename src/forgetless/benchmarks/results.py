"""A run of a benchmark as a folder: config.json, records.jsonl, summary.json, and plots beside them."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

__all__ = ["Run", "open_run"]


class Run:
    """An open results folder. Records are written as they come, so that a broken run loses none."""

    def __init__(self, folder: Path, records: IO[str]) -> None:
        self.folder = folder
        self._records = records

    def record(self, **values: Any) -> None:
        """Append one record."""
        self._records.write(json.dumps(values, ensure_ascii=False) + "\n")

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
    out.mkdir(parents=True, exist_ok=True)
    (out / "summary.json").unlink(missing_ok=True)
    about = {
        "benchmark": benchmark,
        "forgetless": version("forgetless"),
        "python": platform.python_version(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    _write(out / "config.json", {**about, **config})
    with (out / "records.jsonl").open("w", encoding="utf-8") as records:
        yield Run(out, records)


def _write(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
