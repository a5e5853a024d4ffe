"""No compression: everything, or an error when it does not fit. The baseline that nothing may hide from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from forgetless.policies.base import Context, capacity, whole
from forgetless.units import Unit

__all__ = ["Full"]


@dataclass(frozen=True)
class Full:
    """Keeps everything; raises `BudgetError` above the budget."""

    lazy: ClassVar[bool] = True

    def __call__(self, units: Sequence[Unit], budget: int, query: Unit | None = None) -> Context:
        """Return the whole conversation; `query` is not used."""
        capacity(units, dict.fromkeys(range(len(units)), "fits"), budget)
        return whole(units, budget)
