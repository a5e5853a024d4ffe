"""Keep what memory models say has faded least: the decay baselines that LRE is compared with.

* `exponential`: exp(-t / scale), t units after it. It ranks as recency does.
* `act-r`: the odds of ACT-R's base level (Anderson and Schooler, 1991), the sum of t ** -0.5 over all of its uses.
* `memorybank`: MemoryBank's forgetting curve (Zhong et al., 2024), exp(-t / (scale * S)); each use makes S one more
  and starts t anew. The authors' code has exp(-t / scale * S), by which what is used more fades sooner.

A unit is used when it is said, and by each later unit that takes up an identifier that it brought in. A token is worth
the strength of its unit, so the budget goes to the strongest units, whatever their length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, inf
from typing import Literal, get_args

from forgetless.errors import ConfigError
from forgetless.identifiers import identifiers
from forgetless.policies.select import Select
from forgetless.units import Unit

__all__ = ["Decay", "Kind", "decay"]

Kind = Literal["exponential", "act-r", "memorybank"]


@dataclass(frozen=True)
class Decay:
    """Scores units by how little they have faded.

    Attributes:
        kind: `exponential`, `act-r` or `memorybank`.
        scale: units after which an unused one has faded to 1 / e; `act-r` has no scale.
    """

    kind: Kind = "exponential"
    scale: float = 10.0

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ConfigError(f"kind must be one of {', '.join(get_args(Kind))}, not {self.kind!r}")
        if not (isinstance(self.scale, int | float) and 0 < self.scale < inf):
            raise ConfigError(f"scale must be a number of units above 0, not {self.scale!r}")

    def __call__(self, units: Sequence[Unit], query: Unit | None = None) -> list[float]:
        """One score per unit, at least 0; `query` is not used."""
        return [unit.tokens * strength for unit, strength in zip(units, self.strengths(units), strict=True)]

    def strengths(self, units: Sequence[Unit]) -> list[float]:
        """What the formula says of each unit, at least 0."""
        now = len(units)
        match self.kind:
            case "exponential":
                return [exp((at + 1 - now) / self.scale) for at in range(now)]
            case "act-r":
                return [sum((now - at) ** -0.5 for at in used) for used in uses(units)]
            case "memorybank":
                return [exp((used[-1] + 1 - now) / (self.scale * len(used))) for used in uses(units)]


def uses(units: Sequence[Unit]) -> list[list[int]]:
    """The places where each unit was used, ascending: its own, and those that take up an identifier of its own."""
    source: dict[str, int] = {}
    found: list[list[int]] = []
    for at, unit in enumerate(units):
        found.append([at])
        for user in sorted({source.setdefault(name, at) for name in _named(unit.text)} - {at}):
            found[user].append(at)
    return found


@lru_cache(4_096)
def _named(text: str) -> tuple[str, ...]:
    return tuple(identifiers(text))


def decay(kind: Kind = "exponential", scale: float = 10.0) -> Select:
    """The policy `decay`.

    Raises:
        ConfigError: unknown kind, or a scale that is no number above 0.
    """
    return Select(Decay(kind, scale))
