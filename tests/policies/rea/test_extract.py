"""Extraction: shorter, and every sentence that is left stands there word for word."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forgetless.identifiers import contains, identifiers
from forgetless.policies.rea.extract import LEFT_OUT, Extracts, extract

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


EXACT = [
    "/srv/build/app.py",
    "https://a.example/x?y=1.2",
    "c41d7e08-5b2a-4f6e-8a90-77d1e0b3c5f2",
    "sha256:9be1f0aa",
    "v1.2.3",
    "172.16.40.9:8443",
    "1,234.56",
    "10.000,5",
    "3.14",
    "2032-11-05",
    "ABX-99812",
    "C:\\Acme Inc. Tools\\run. me\\a.txt",
    "https://a.example/见。b",
    "`x = 1. y = 2`",
    "``a ` b! c``",
    "```py\nx = 1. \n\ny = 2\n```",
]
PLAIN = [
    "It was good.",
    "So they say!",
    "Is it?",
    "那是好的。",
    "Nothing much happened there",
    "1. First thing",
    "Fig. 2",
]
CODE = re.compile(r"```.*?```|(?<!`)`[^`\n]+`(?!`)", re.DOTALL)
NUMBER = re.compile(r"\d[\d.,:/-]*\d|\d")


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from([*EXACT, *PLAIN]), min_size=2, max_size=14),
    st.sampled_from([" ", ". ", "\n", "。"]),
    st.data(),
)
def test_identifiers_numbers_and_code_are_byte_for_byte_or_gone(
    said: list[str], glue: str, data: st.DataObject
) -> None:
    text = glue.join(said)
    short = extract(text, size, data.draw(st.floats(0.05, 0.8)))
    kept = short.split(LEFT_OUT)
    for pattern in (CODE, NUMBER):
        whole = {found for found in pattern.findall(text)}
        assert all(found in whole for piece in kept for found in pattern.findall(piece)), short
    assert all(contains(text, name) for piece in kept for name in identifiers(piece)), short


@pytest.mark.parametrize("exact", EXACT)
def test_each_of_them_stays_whole_where_its_sentence_stays(exact: str) -> None:
    for before, after in (("We use ", " for it."), ("", ""), ("见", "好")):
        text = f"Nothing much happened there that day. {before}{exact}{after} That is all there is to say about it."
        shares = [extract(text, len, share / 25) for share in range(2, 25)]
        assert any(exact in short for short in shares)
        for short in shares:
            assert exact in short or not any(token in short for token in re.findall(r"[\w./`-]{6,}", exact))


def test_an_extract_is_made_once_for_what_counts() -> None:
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return size(text)

    known = Extracts()
    first = known(TEXT, count)
    many = len(counted)
    assert known(TEXT, count) == first == extract(TEXT, size)
    assert len(counted) == many
    assert known(TEXT, size) == first
