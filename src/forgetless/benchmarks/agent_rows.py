"""Episodes as records and as rows of a table: what an agent achieved, and what that took."""

from __future__ import annotations

from collections import Counter as Bag
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from forgetless.benchmarks.agent_loop import Episode
from forgetless.benchmarks.metrics import by_policy, estimate, mean
from forgetless.benchmarks.prices import PRICES, Price, Request, cost
from forgetless.tokens import Counter

__all__ = ["MAIN", "Cell", "rows"]

MAIN = PRICES[0]
"""The price of the figures with intervals."""

POINTS = 16
"""Turns at which a row tells how long prompts are, at most."""

SOLVED = 1 - 1e-9
"""Rewards that add up to this solve an episode."""


@dataclass(slots=True)
class Cell:
    """One episode under one policy and budget (None: without one); the attributes are those of `Episode`."""

    policy: str
    budget: int | None
    seed: int
    reward: float
    actions: int
    invalid: int
    ended: str
    error: str
    compressor_calls: int
    evictions: int
    seconds: float
    memory: list[int]
    requests: list[Request]

    @classmethod
    def of(cls, policy: str, budget: int | None, seed: int, episode: Episode, counter: Counter) -> Cell:
        """The cell of an episode."""
        return cls(
            policy,
            budget,
            seed,
            round(episode.reward, 9),
            episode.actions,
            episode.invalid,
            episode.ended,
            episode.error,
            episode.compressor_calls,
            episode.evictions,
            round(episode.seconds, 3),
            [counter.text(memory) if memory else 0 for memory in episode.memories],
            episode.requests,
        )

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> Cell:
        """The cell that `record` made this of."""
        columns = zip(*(record[name] for name in Request.__slots__), strict=True)
        plain = {name: record[name] for name in cls.__slots__ if name != "requests"}
        return cls(**plain, requests=[Request(*column) for column in columns])

    def record(self) -> dict[str, Any]:
        """The row for `records.jsonl`."""
        columns = {name: [getattr(request, name) for request in self.requests] for name in Request.__slots__}
        return {name: getattr(self, name) for name in self.__slots__ if name != "requests"} | columns

    @property
    def key(self) -> tuple[str, int | None, int]:
        """What tells it from others of one run."""
        return self.policy, self.budget, self.seed

    @property
    def input(self) -> int:
        """Tokens of all requests together."""
        return sum(request.tokens for request in self.requests)

    @property
    def peak(self) -> int:
        """Tokens of the longest request."""
        return max((request.tokens for request in self.requests), default=0)

    def cents(self, price: Price, *, caching: bool) -> float:
        """Of the whole episode."""
        return 100 * cost(self.requests, price, caching=caching)


def rows(cells: Iterable[Cell], seed: int) -> list[dict[str, Any]]:
    """A row for each policy and budget, with 95 % intervals over episodes; `seed` is theirs."""
    return by_policy(cells, lambda found: _row(found, seed))


def _row(cells: list[Cell], seed: int) -> dict[str, Any]:
    def over(name: str, figure: Callable[[Cell], float]) -> dict[str, float | None]:
        return estimate(name, {f"{cell.seed:09}": [figure(cell)] for cell in cells}, seed)

    return {
        "episodes": len(cells),
        **over("success", lambda cell: cell.reward),
        "solved": mean([float(cell.reward >= SOLVED) for cell in cells]),
        "ended": dict(sorted(Bag(cell.ended for cell in cells).items())),
        "steps": mean([len(cell.requests) for cell in cells]),
        "invalid": mean([cell.invalid for cell in cells]),
        **over("input", lambda cell: cell.input),
        "output": mean([sum(request.output for request in cell.requests) for cell in cells]),
        "peak": max(cell.peak for cell in cells),
        "peak_mean": mean([cell.peak for cell in cells]),
        "memory_peak": max((max(cell.memory, default=0) for cell in cells), default=0),
        "compressor_calls": mean([cell.compressor_calls for cell in cells]),
        "evictions": mean([cell.evictions for cell in cells]),
        **over("cached", lambda cell: cell.cents(MAIN, caching=True)),
        **over("uncached", lambda cell: cell.cents(MAIN, caching=False)),
        "cents": {
            price.model: {
                name: round(fmean(cell.cents(price, caching=caching) for cell in cells), 4)
                for name, caching in (("cached", True), ("uncached", False))
            }
            for price in PRICES
        },
        "seconds": mean([cell.seconds for cell in cells]),
        "prompts": _prompts(cells),
    }


def _prompts(cells: list[Cell]) -> dict[str, int]:
    """Turn (from 1) -> mean tokens of the requests of that turn, of those episodes that came so far."""
    last = max(len(cell.requests) for cell in cells)
    turns = sorted({round(1 + (last - 1) * point / (POINTS - 1)) for point in range(POINTS)}) if last else []
    lengths = {turn: [cell.requests[turn - 1].tokens for cell in cells if len(cell.requests) >= turn] for turn in turns}
    return {str(turn): round(fmean(found)) for turn, found in lengths.items()}
