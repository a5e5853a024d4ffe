"""What a question is matched against: the stems of each unit, who speaks, and the day that it belongs to."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from forgetless.policies.lre.growing import Grown
from forgetless.policies.relevance.dates import Date, heading
from forgetless.policies.relevance.stems import stems
from forgetless.units import Kind, Unit

__all__ = ["Index", "numbers"]

Ints = NDArray[np.int64]

_SPEAKER = re.compile(r"\s*(?:\[[^\]\n]*\]\s*)?([^\W\d_][\w.' -]{0,30}):\s")


def numbers(names: Iterable[str]) -> Ints:
    """A number for each stem, the same in every process."""
    return np.array([crc32(name.encode("utf-8", "surrogatepass")) for name in names], np.int64)


class Index:
    """A conversation up to its last unit so far, as a question meets it.

    Attributes:
        many: units.
        speakers: who says each unit: the name before its first words, else "".
        kinds: of each unit.
        asks: whether each unit asks something.
        dates: of each unit: that of the last head of a session up to it.
    """

    def __init__(self) -> None:
        """Begin an empty conversation."""
        self.many = 0
        self.speakers: list[str] = []
        self.kinds: list[Kind] = []
        self.asks: list[bool] = []
        self.dates: list[Date] = []
        self._lengths = Grown()
        # Of each pair of a unit and one of its stems: the unit, the stem, and how often the unit has it.
        self._unit, self._stem, self._count = Grown(), Grown(), Grown()

    @property
    def lengths(self) -> Ints:
        """Stems of each unit."""
        return self._lengths.filled

    def extend(self, units: Sequence[Unit]) -> None:
        """Add new units at the end."""
        texts = [unit.text for unit in units]
        held = list(map(stems, texts))
        counts = list(map(Counter, held))
        places = np.arange(self.many, self.many + len(units))
        _append(self._lengths, [len(found) for found in held])
        _append(self._unit, np.repeat(places, [len(found) for found in counts]))
        _append(self._stem, numbers(name for found in counts for name in found))
        _append(self._count, [many for found in counts for many in found.values()])
        self.many += len(units)
        self.kinds += [unit.kind for unit in units]
        self.asks += ["?" in text or "？" in text for text in texts]
        for text in texts:
            speaker = _SPEAKER.match(text)
            self.speakers.append(speaker[1].lower() if speaker else "")
            self.dates.append(heading(text) or (self.dates[-1] if self.dates else Date()))

    def counts(self, stem: Ints) -> NDArray[np.float64]:
        """How often each unit has each of these stems, no two of which are the same: [stems, units]."""
        order = np.argsort(stem)
        place = np.searchsorted(stem[order], self._stem.filled)
        hit = np.flatnonzero(np.append(stem[order], -1)[place] == self._stem.filled)
        found = np.zeros((len(stem), self.many))
        found[order[place[hit]], self._unit.filled[hit]] = self._count.filled[hit]
        return found


def _append(column: Grown, values: Sequence[int] | Ints) -> None:
    start = len(column.filled)
    column.grow(start + len(values))
    column.filled[start:] = values
