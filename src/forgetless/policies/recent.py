"""The last k turns, whole turns with valid pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from forgetless.errors import ConfigError
from forgetless.policies.base import Context, assemble, fits, floor, whole
from forgetless.policies.recency import tail
from forgetless.units import Unit

__all__ = ["Recent"]


@dataclass(frozen=True)
class Recent:
    """Keeps what must stay and the last turns that fit.

    Attributes:
        turns: most turns to keep; a turn is a user message and all that answers it. The papers keep five.
        eager: cut to `turns` at every call, as the papers do, and not only above the budget.
    """

    turns: int = 5
    eager: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.turns, int) or self.turns < 1:
            raise ConfigError(f"turns must be a whole number and at least 1, not {self.turns!r}")

    @property
    def lazy(self) -> bool:
        """Lazy unless asked to be eager."""
        return not self.eager

    def __call__(self, units: Sequence[Unit], budget: int, query: Unit | None = None) -> Context:
        """Return the last turns; `query` is not used."""
        if self.lazy and fits(units, budget):
            return whole(units, budget)
        pinned = floor(units)
        users = [unit.index for unit in units if unit.kind == "user"]
        start = users[-self.turns] if len(users) >= self.turns else 0
        kept = tail(units, pinned, budget, start=start)
        return assemble(units, kept, budget, pinned=pinned, dropped="older" if self.eager else "over_budget")
