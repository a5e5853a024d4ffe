"""Keep the longest units: a baseline that any scorer has to beat, since long units hold more of everything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from forgetless.policies.select import Select
from forgetless.units import Unit

__all__ = ["Length", "length"]


@dataclass(frozen=True)
class Length:
    """Scores units by the square of their tokens: a token is worth the length of its unit.

    By their tokens alone, every way to fill the budget would be as good.
    """

    def __call__(self, units: Sequence[Unit], query: Unit | None = None) -> list[float]:
        """One score per unit; `query` is not used."""
        return [float(unit.tokens) ** 2 for unit in units]


def length() -> Select:
    """The policy `length`."""
    return Select(Length())
