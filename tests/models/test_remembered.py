"""Values of texts are computed once and kept within bounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forgetless.models.remembered import Remembered


@given(st.lists(st.lists(st.sampled_from("abcdef"), max_size=6), max_size=12), st.integers(1, 4))
def test_values_are_right_asked_once_and_bounded(calls: list[list[str]], most: int) -> None:
    asked: list[str] = []

    def upper(texts: list[str]) -> list[str]:
        asked.extend(texts)
        return [text.upper() for text in texts]

    remembered = Remembered(upper, most)
    for texts in calls:
        before = set(remembered._kept)
        asked.clear()
        assert remembered(texts) == [text.upper() for text in texts]
        assert sorted(asked) == sorted(set(texts) - before)
        assert len(remembered._kept) <= most
