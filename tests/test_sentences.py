"""Sentences of a text: all of it but blanks and code, in order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetless.sentences import sentences


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("Use version 3.14 of e.g. pandas. Now go.", ["Use version 3.14 of e.g. pandas.", "Now go."]),
        ("请用中文回答。谢谢！", ["请用中文回答。", "谢谢！"]),
        ("1. First rule\n2. Second rule", ["1. First rule", "2. Second rule"]),
        ("Look:\n```\nalways = 1. \n```\nAnd now?", ["Look:", "And now?"]),
        ("", []),
        (" \n ", []),
    ],
)
def test_sentences(text: str, found: list[str]) -> None:
    assert [text[start:end] for start, end in sentences(text)] == found


@given(st.text(st.sampled_from("ab .!?\n。1"), max_size=60))
def test_they_hold_all_that_is_said_in_order(text: str) -> None:
    spans = list(sentences(text))
    assert all(0 <= start < end <= len(text) for start, end in spans)
    assert spans == sorted(spans)
    said = "".join(text[start:end] for start, end in spans)
    assert "".join(said.split()) == "".join(text.split())
