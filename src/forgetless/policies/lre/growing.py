"""What is counted of conversations that grow: arrays with room at their end, and counts kept from call to call."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from forgetless.units import Unit

__all__ = ["Counted", "Grown", "Kept"]

PREFIXES, UNITS = 256, 200_000  # kept at most: conversations, and units in all of them


class Grown:
    """A numpy array that grows at its end; `filled` is what stands in it."""

    def __init__(self, width: int = 0, dtype: type = np.int64, fill: int = 0) -> None:
        """Begin without entries.

        Args:
            width: of an entry; 0 for a number.
            dtype: of all numbers.
            fill: what new entries are.
        """
        self._fill = fill
        self._array: NDArray[Any] = np.full((64, width) if width else 64, fill, dtype)
        self._size = 0

    @property
    def filled(self) -> NDArray[Any]:
        """The entries, as a view."""
        return self._array[: self._size]

    def grow(self, size: int) -> None:
        """Make room for `size` entries in all."""
        if size > len(self._array):
            bigger = np.full((max(size, 2 * len(self._array)), *self._array.shape[1:]), self._fill, self._array.dtype)
            bigger[: self._size] = self.filled
            self._array = bigger
        self._size = size


class Counted(Protocol):
    """What was counted of a conversation; `many` units so far."""

    many: int

    def extend(self, units: Sequence[Unit]) -> None:
        """Count new units at the end."""


Counts = TypeVar("Counts", bound=Counted)
Found = TypeVar("Found")


class Kept(Generic[Counts]):
    """Counts under the key of the newest unit (`Unit.key`): a conversation that grows pays for its new units only."""

    def __init__(self, begin: Callable[[], Counts]) -> None:
        """Keep counts of one kind; `begin` makes those of an empty conversation."""
        self._begin = begin
        self._kept: OrderedDict[bytes, Counts] = OrderedDict()

    def __call__(self, units: Sequence[Unit], read: Callable[[Counts], Found]) -> Found:
        """What `read` finds in the counts of a whole conversation; it hands out nothing that later counting changes."""
        keyed = next((unit.index + 1 for unit in reversed(units) if unit.keys is not None), 0)
        counts = self._longest(units[:keyed])
        counts.extend(units[counts.many : keyed])
        whole = counts
        if keyed < len(units):  # such as a question that is only tried
            whole = deepcopy(counts)
            whole.extend(units[keyed:])
        found = read(whole)
        if keyed:
            self._keep(units[keyed - 1].key, counts)
        return found

    def _longest(self, units: Sequence[Unit]) -> Counts:
        """Take out what is known of the longest start of a conversation: whoever extends it owns it meanwhile."""
        if self._kept:
            for unit in reversed(units):
                counts = self._kept.pop(unit.key, None) if unit.keys is not None else None
                if counts is not None and counts.many == unit.index + 1:
                    return counts
        return self._begin()

    def _keep(self, key: bytes, counts: Counts) -> None:
        self._kept[key] = counts
        total = sum(kept.many for kept in list(self._kept.values()))
        while len(self._kept) > 1 and (len(self._kept) > PREFIXES or total > UNITS):
            total -= self._kept.popitem(last=False)[1].many
