"""The lexicon: entries of several words are one, unspaced scripts are cut at what is known, accents do not count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetless.instructions.lexicon import FORMS, Lexicon, lexicon

SMALL = Lexicon("onward: from now on | 今後\nreply: answer* | 回答\nnumber: two\nnot: ne | n'\nalways: siempre | être")


def read(known: Lexicon, text: str) -> list[tuple[str, tuple[str, ...]]]:
    return [(word.text, tuple(known.names[at] for at in word.concepts)) for word in known(text)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("From now on", [("from now on", ("onward",))]),
        ("from now", [("from", ()), ("now", ())]),
        ("answering", [("answering", ("reply",))]),
        ("17", [("0", ("number",))]),
        ("n'oublie", [("n'", ("not",)), ("oublie", ())]),
        ("ETRE", [("etre", ())]),
        ("今後の回答", [("今後", ("onward",)), ("の", ()), ("回答", ("reply",))]),
        ("respondeme", [("respondeme", ("imperative",))]),
        ("", []),
    ],
)
def test_reading(text: str, found: list[tuple[str, tuple[str, ...]]]) -> None:
    assert read(SMALL, text) == found


def test_the_one_that_ships_knows_six_languages() -> None:
    known = lexicon()
    assert known.names[-len(FORMS) :] == FORMS
    for text in ("from now on", "ab sofort", "a partir de ahora", "désormais", "从现在起", "これから"):
        assert read(known, text)[0][1].count("onward") == 1, text


def test_no_entry_is_unreachable_for_its_accents_or_capitals() -> None:
    known = lexicon()
    for text in ("Siempre", "TOUJOURS", "Künftig", "jamás"):
        assert read(known, text)[0][1], text


@given(st.text(max_size=60))
def test_it_reads_any_text(text: str) -> None:
    assert list(lexicon()(text)) == list(lexicon()(text))
