"""The upper bounds: exact coverage, and what they keep."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetless.benchmarks import hindsight
from forgetless.benchmarks.hindsight import best_cover, keep_first
from forgetless.registry import load_dialect
from forgetless.splitting import split
from forgetless.tokens import Counter


def covered(masks: list[int], chosen: tuple[int, ...] | list[int], start: int) -> int:
    for item in chosen:
        start |= masks[item]
    return start.bit_count()


@given(
    st.lists(st.tuples(st.integers(0, 63), st.integers(0, 6)), max_size=7),
    st.integers(0, 12),
    st.integers(0, 63),
)
def test_coverage_is_the_best_there_is(items: list[tuple[int, int]], room: int, start: int) -> None:
    masks, costs = [mask for mask, _ in items], [cost for _, cost in items]
    chosen = best_cover(masks, costs, room, start)
    assert chosen == sorted(set(chosen))
    assert sum(costs[item] for item in chosen) <= room
    every = [c for size in range(len(items) + 1) for c in combinations(range(len(items)), size)]
    fitting = [c for c in every if sum(costs[item] for item in c) <= room]
    assert covered(masks, chosen, start) == max(covered(masks, c, start) for c in fitting)


def test_a_beam_still_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hindsight, "STATES", 2)
    assert best_cover([1, 2, 4, 8], [1, 1, 1, 1], 3) != []


def test_needed_units_come_before_newer_ones() -> None:
    wires = [{"role": "user", "content": "x" * 10} for _ in range(6)]
    units = split(load_dialect("chat").parse(wires).messages, Counter(len))
    kept = [entry.unit for entry in keep_first(units, {0, 2}, 14 * 4).ledger if entry.form == "raw"]
    assert kept == [0, 2, 4, 5]
