"""Numbers in replies: which one is the answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetless.benchmarks.evaluators.number import Number

RECORD = {"answer": "She has <<2*600=1200>>1,200 of 7.\n#### 1,200"}


@pytest.mark.parametrize(
    ("reply", "right"),
    [
        ("Answer: 1200", True),
        ("First 7. **Answer:** $1,200.00 in 3 years", True),
        ("The answer is 1200, not 5.", True),
        ("So \\boxed{1200} for 2 people", True),
        ("2 * 600 = 1200", True),
        ("2 * 600 = 1200 and then 4", False),
        ("Answer: 1200\nNo. Answer: 1300", False),
        ("Answer: -1200", False),
        ("Answer: 12001", False),
        ("Tell me more.", None),
        ("", None),
    ],
)
def test_the_marked_number_counts_else_the_last(reply: str, right: bool | None) -> None:
    assert Number().score(reply, RECORD) is right


@given(st.integers(-(10**9), 10**9), st.integers(0, 99))
def test_any_number_is_read_as_it_is_written(whole: int, cents: int) -> None:
    written = f"{whole:,}.{cents:02}"
    assert Number().score(f"Answer: {written}", {"answer": f"#### {whole}.{cents:02}"}) is True
    assert Number().score(f"Answer: {written}1", {"answer": f"#### {whole}.{cents:02}"}) is False
