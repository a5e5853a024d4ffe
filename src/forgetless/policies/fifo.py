"""Drop the oldest until the rest fits: what most products do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from forgetless.policies.base import Context, assemble, fits, floor, whole
from forgetless.policies.recency import tail
from forgetless.units import Unit

__all__ = ["Fifo"]


@dataclass(frozen=True)
class Fifo:
    """Keeps what must stay and the longest tail that fits."""

    lazy: ClassVar[bool] = True

    def __call__(self, units: Sequence[Unit], budget: int, query: Unit | None = None) -> Context:
        """Return the tail; `query` is not used."""
        if fits(units, budget):
            return whole(units, budget)
        pinned = floor(units)
        return assemble(units, tail(units, pinned, budget), budget, pinned=pinned)
