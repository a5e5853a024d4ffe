"""Quotations are hidden, and all else keeps its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetless.instructions.marks import FILLER, QUOTATION, hidden


@pytest.mark.parametrize(
    "quote", ['"never mind"', "“never mind”", "„nie“", "«jamás»", "「決して」", "《守则》", "'never'"]
)
def test_a_quotation_is_a_mark(quote: str) -> None:
    assert hidden(f"He said {quote} twice.") == f"He said {QUOTATION}{FILLER * (len(quote) - 1)} twice."


def test_an_apostrophe_opens_none() -> None:
    assert hidden("I don't and you can't.") == "I don't and you can't."


@given(st.text(st.sampled_from("ab \"'“”「」\n."), max_size=50))
def test_nothing_moves(text: str) -> None:
    plain = hidden(text)
    assert len(plain) == len(text)
    assert all(new in (old, QUOTATION, FILLER) for old, new in zip(text, plain, strict=True))
