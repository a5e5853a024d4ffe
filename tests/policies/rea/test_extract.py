"""Extraction: shorter, and every sentence that is left stands there word for word."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forgetless.policies.rea.extract import LEFT_OUT, extract

TEXT = (
    "Sure, here is what I found. The weather was nice and nothing much happened there. "
    "The container ABX-99812 left on 2024-03-05 for port 8443. People say that it was on time, as it often is. "
    "Run `make -j4 all` in /srv/build/app.py to see it. I hope that this helps you a lot today."
)


def size(text: str) -> int:
    return len(text.split())


def test_names_numbers_and_code_are_what_is_left() -> None:
    short = extract(TEXT, size)
    assert "The container ABX-99812 left on 2024-03-05 for port 8443." in short
    assert "nothing much happened" not in short
    assert size(short) < size(TEXT) * 0.6


def test_a_block_of_code_is_whole_or_gone() -> None:
    code = "```python\nx = 1. \ny = 2\n\nprint(x)\n```"
    text = f"Here you go.\n{code}\nIt prints a one. That is all there is to say about it, as far as I can see."
    short = [extract(text, size, share / 20) for share in range(20)]
    assert all((code in each) == ("y = 2" in each) for each in short)
    assert {code in each for each in short} == {True, False}


def test_what_has_one_sentence_stays() -> None:
    assert extract("one sentence and no more", size) == "one sentence and no more"
    assert extract("", size) == ""


@given(st.text(st.sampled_from("ab1 .!\n`。"), max_size=200), st.floats(0.05, 0.9))
def test_all_that_is_left_is_of_the_text_in_its_order(text: str, share: float) -> None:
    short = extract(text, size, share)
    at = 0
    for piece in short.split(LEFT_OUT):
        found = text.find(piece.strip(), at)
        assert found >= at
        at = found + len(piece.strip())
