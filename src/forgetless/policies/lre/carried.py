"""What a history carries: its identifiers, which units have each, and features that tell whether it is needed next.

An agent acts by identifiers (paths, names, addresses), so a unit of an agent's history is worth what it has of those
that the next actions use. A unit also carries what stands within its identifiers, as `app.py` within `/srv/app.py`.
Texts are cut at characters that no identifier has, and what is in a piece is looked up once: most pieces of a
history have been seen before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from forgetless.identifiers import identifiers
from forgetless.messages import Result
from forgetless.policies.lre.growing import Grown
from forgetless.units import Unit, text_of

__all__ = ["CARRIED", "Carried", "named", "of_piece"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

CARRIED = ("since_last", "since_first", "gap", "holders", "among", "came_among", "history", "digits")
"""The columns, for each identifier: logarithms of counts, and a flag.

* `since_last`, `since_first`: units from the last and from the first that has it to the end. `gap`: units from the
  one before to the last. `holders`: units that have it. `history`: all units.
* `among`, `came_among`: identifiers of the last and of the first unit that has it.
* `digits`: whether it has a digit.
"""

COMPONENTS = 8  # of an identifier, at most, for what stands within it
LONGEST = 512  # bytes of a piece of a text: what is longer is a payload
_WORD = re.compile(r"\w+")
_PIECE = bytes(b if b >= 128 or chr(b).isalnum() or chr(b) in "_./-:@~+%\\" else 32 for b in range(256))


class Carried:
    """The identifiers of a history up to its last unit so far.

    Attributes:
        many: units counted.
        names: identifier -> its number.
    """

    def __init__(self) -> None:
        """Begin an empty history."""
        self.many = 0
        self.names: dict[str, int] = {}
        self._pairs = Grown()  # the identifiers of each unit, unit after unit
        self._called = Grown(dtype=np.bool_)  # of each of these, whether it stands outside results
        self._sizes = Grown()  # by unit: how many those are
        self._digits = Grown()  # by identifier, like all below
        self._holders = Grown()
        self._first = Grown()
        self._last = Grown(fill=-1)
        self._before = Grown(fill=-1)  # the unit that had it before the last

    def extend(self, units: Sequence[Unit]) -> None:
        """Count new units at the end."""
        self._sizes.grow(self.many + len(units))
        for unit in units:
            known = len(self.names)
            called, shown = _texts(unit)
            found = named(called)
            outside = len(found)
            found.update(named(shown))
            held = np.array([self.names.setdefault(name, len(self.names)) for name in found], np.int64)
            self._meet(list(self.names)[known:] if len(self.names) > known else ())
            start = len(self._pairs.filled)
            self._pairs.grow(start + len(held))
            self._called.grow(start + len(held))
            self._pairs.filled[start:] = held
            self._called.filled[start : start + outside] = True
            self._sizes.filled[self.many] = len(held)
            self._holders.filled[held] += 1
            self._before.filled[held] = self._last.filled[held]
            self._last.filled[held] = self.many
            self.many += 1

    def _meet(self, new: Sequence[str]) -> None:
        """Make room for identifiers that the unit in hand brings in."""
        if not new:
            return
        for column in (self._digits, self._holders, self._first, self._last, self._before):
            column.grow(len(self.names))
        self._first.filled[-len(new) :] = self.many
        self._digits.filled[-len(new) :] = [any(map(str.isdigit, name)) for name in new]

    def pairs(self) -> tuple[Ints, Ints, Mask]:
        """Each identifier of each unit, by unit: the unit, the number, and whether it stands outside results."""
        units = np.repeat(np.arange(self.many), self._sizes.filled)
        return units, self._pairs.filled.copy(), self._called.filled.copy()

    def features(self) -> Floats:
        """The features of all identifiers as the history stands: [names, CARRIED]."""
        sizes, first, last, before = (grown.filled for grown in (self._sizes, self._first, self._last, self._before))
        counts = (
            self.many - last,
            self.many - first,
            np.where(before < 0, 1, last - before),
            self._holders.filled,
            sizes[last],
            sizes[first],
            np.full(len(last), self.many),
        )
        return np.column_stack((*map(np.log, counts), self._digits.filled))


def _texts(unit: Unit) -> tuple[str, str]:
    """What stands outside the results of tools in a unit, and what stands in them."""
    if unit.kind != "step":
        return unit.text, ""
    sides: tuple[list[str], list[str]] = [], []
    for message in unit.messages:
        for part in message.parts:
            sides[type(part) is Result and not part.fixed].append(text_of(part))
    return "\n".join(sides[0]), "\n".join(sides[1])


def named(text: str) -> dict[str, None]:
    """The identifiers of a text and those that stand within them, each once, in no order of the text."""
    pieces = dict.fromkeys(text.encode("utf-8", "surrogatepass").translate(_PIECE).split())
    return dict.fromkeys(name for piece in pieces if len(piece) <= LONGEST for name in of_piece(piece))


@lru_cache(maxsize=65_536)
def of_piece(piece: bytes) -> tuple[str, ...]:
    """The same of a piece of a text; what was found is kept for all histories."""
    text = piece.decode("utf-8", "replace")
    return tuple(dict.fromkeys(name for found in identifiers(text) for name in (found, *_within(found))))


def _within(name: str) -> list[str]:
    """Identifiers that stand in an identifier between its marks."""
    words = [match.span() for match in _WORD.finditer(name)][:COMPONENTS]
    if len(words) < 2:
        return []
    starts = [0, *(start for start, _ in words[1:])]
    runs = [name[start:end] for at, start in enumerate(starts) for _, end in words[at:]]
    return [run for run in runs if run != name and identifiers(run) == [run]]
