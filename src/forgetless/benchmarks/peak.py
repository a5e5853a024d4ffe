"""The most memory that this process takes while something runs, where the system tells it (Linux)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Peak", "peak_mib"]

_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")


@dataclass
class Peak:
    """The most memory in MiB; None while it is not known."""

    mib: float | None = None


@contextmanager
def peak_mib() -> Iterator[Peak]:
    """The peak of the block, known at its end."""
    peak = Peak()
    with suppress(OSError):
        _RESET.write_text("5")  # forget the peak before
    yield peak
    with suppress(OSError):
        if found := re.search(r"VmHWM:\s+(\d+) kB", _STATUS.read_text()):
            peak.mib = round(int(found[1]) / 1024, 1)
