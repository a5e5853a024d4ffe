"""AUC: scikit-learn's, ties included."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetless.training.auc import auc

pairs = st.lists(st.tuples(st.booleans(), st.sampled_from([0.0, 0.25, 0.5, 1.0, -3.0])), max_size=40)


@given(pairs)
def test_it_is_scikit_learns(rows: list[tuple[bool, float]]) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    labels, scores = [label for label, _ in rows], [score for _, score in rows]
    if len(set(labels)) < 2:
        assert auc(labels, scores) is None
    else:
        assert auc(labels, scores) == pytest.approx(metrics.roc_auc_score(labels, scores))


def test_by_hand() -> None:
    assert auc([True, False], [2, 1]) == 1.0
    assert auc([True, False], [1, 2]) == 0.0
    assert auc([True, False, False], [1, 1, 0]) == 0.75
