"""Sentences of a text: all of it but blanks and code, in order."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
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


MARKS = re.compile(r"\n+|[。！？]+[”」』）\"']*|[.!?…]+[\"'”’»)\]]*(?=\s|$)")
SHORT = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|Mr|Mrs|Ms|Dr|St|No|approx|z\.B|d\.h|bzw|usw|Nr|p\.ej|Sr|Sra)|\b\w|^\s*\d+)\.$"
)


def plainly(text: str) -> list[str]:
    """Sentences by the patterns as they read best, each looked for everywhere; of texts without fences."""
    found, at = [], 0
    for mark in MARKS.finditer(text):
        if not (mark[0] == "." and SHORT.search(text, at, mark.end())):
            found.append(text[at : mark.end()].strip())
            at = mark.end()
    return [piece for piece in [*found, text[at:].strip()] if piece]


PIECES = st.sampled_from(
    [
        "e.g.",
        "i.e.",
        "approx.",
        "No.",
        "x.",
        "10.",
        "1.",
        "  3.",
        "Dr.",
        "word",
        "。",
        "！",
        "？",
        "!",
        "?",
        "…",
        ".",
        "...",
        '"',
        "'",
        "”",
        ")",
        "]",
        "\n",
        "\n\n",
        " ",
        "  ",
        "ß",
        "é",
        "12.5",
        "a.b",
        "Nr. 5",
        "」",
    ]
)


@settings(max_examples=150)
@given(st.lists(PIECES, max_size=25).map("".join) | st.text("ab. \n!?。”1e.g", max_size=60))
def test_the_quick_patterns_cut_where_the_plain_ones_do(text: str) -> None:
    assert [text[start:end] for start, end in sentences(text)] == plainly(text)
