"""Stems: kindred words meet, others don't, and only English endings go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetless.policies.relevance.stems import FUNCTION, stem, stems
from forgetless.text import words


@pytest.mark.parametrize(
    "kindred",
    [
        "paint painted painting paints painter",
        "plan plans planned planning planner",
        "family families",
        "house houses",
        "box boxes",
        "watch watches watched watching",
        "donate donated donation donations",
        "dance dances dancing dancer danced",
        "run running runs",
    ],
)
def test_kindred_words_meet(kindred: str) -> None:
    assert len({stem(word) for word in kindred.split()}) == 1


@pytest.mark.parametrize(
    ("one", "other"), [("paint", "plant"), ("war", "ward"), ("this", "thing"), ("bus", "business")]
)
def test_others_do_not(one: str, other: str) -> None:
    assert stem(one) != stem(other)


@pytest.mark.parametrize("word", ["合同", "schön", "job9f3c", "2024", "was", "is", "s"])
def test_what_is_no_english_word_stays(word: str) -> None:
    assert stem(word) == word


@given(st.text())
def test_every_word_has_one_stem_that_begins_like_it(text: str) -> None:
    found, told = words(text), stems(text)
    assert len(found) == len(told)
    for word, cut in zip(found, told, strict=True):
        assert cut
        assert word.startswith(cut[:-1])


def test_function_words_are_words() -> None:
    assert all(words(word) == [word] for word in FUNCTION)
