"""Means, recall, and intervals over groups."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetless.benchmarks.metrics import mean_by_group, recall

GROUPS = st.dictionaries(st.text(max_size=3), st.lists(st.floats(0, 1), max_size=5), min_size=1, max_size=5).filter(
    lambda groups: any(groups.values())
)


@given(st.sets(st.integers(0, 9)), st.sets(st.integers(0, 9)))
def test_recall(needed: set[int], kept: set[int]) -> None:
    found = recall(needed, kept)
    assert 0 <= found <= 1
    assert (found == 1) == (needed <= kept)
    assert found * len(needed) == pytest.approx(len(needed & kept)) or not needed


@given(GROUPS, st.integers(0, 3))
def test_the_interval_lies_in_the_data_and_is_repeatable(groups: dict[str, list[float]], seed: int) -> None:
    estimate = mean_by_group(groups, seed=seed)
    values = [value for group in groups.values() for value in group]
    assert estimate.mean == pytest.approx(sum(values) / len(values))
    assert min(values) - 1e-9 <= estimate.low <= estimate.high <= max(values) + 1e-9
    assert mean_by_group(dict(reversed(groups.items())), seed=seed) == estimate


def test_one_group_has_no_width_and_two_have_their_own_means() -> None:
    assert mean_by_group({"a": [0.0, 1.0], "b": []}, seed=0) == (0.5, 0.5, 0.5)
    assert mean_by_group({"a": [0.0, 0.0], "b": [1.0, 1.0]}, seed=0) == (0.5, 0.0, 1.0)
    # Values of one group never part: three draws of two groups of unequal size
    assert mean_by_group({"a": [0.0], "b": [1.0, 1.0, 1.0]}, seed=0) == (0.75, 0.0, 1.0)


def test_a_narrower_level_lies_within() -> None:
    groups = {str(i): [i / 10] for i in range(10)}
    wide, narrow = mean_by_group(groups, seed=1), mean_by_group(groups, seed=1, level=0.5)
    assert wide.low < narrow.low < narrow.mean < narrow.high < wide.high


def test_nothing_has_no_mean() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        mean_by_group({"a": []}, seed=0)
