"""Features for a question: what each sees, that only what it asks counts, and that a history is read once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetless.datasets.logs import units_of
from forgetless.policies.relevance.features import QUERY, STEMS, matches
from forgetless.policies.relevance.index import Index, numbers

Messages = list[dict[str, Any]]


def talk(*texts: str) -> Messages:
    return [{"role": "user" if at % 2 == 0 else "assistant", "content": text} for at, text in enumerate(texts)]


def index(*texts: str) -> Index:
    found = Index()
    found.extend(units_of(talk(*texts)))
    return found


def column(name: str, question: str, *texts: str) -> list[float]:
    found: list[float] = matches(index(*texts), question)[:, QUERY.index(name)].tolist()
    return found


FILLER = ["Nice weather today.", "Indeed it is.", "Tell me more.", "All is well here."]


def test_the_unit_with_the_words_of_the_question_matches_best() -> None:
    found = column("match", "What did you paint?", *FILLER, "I painted a lake.", *FILLER)
    assert np.argmax(found) == 4
    assert sum(value > 0 for value in found) == 1


def test_function_words_do_not_match() -> None:
    assert column("match", "What did you sing?", "What did you do?", "Sing!")[0] == 0
    assert column("match", "What is it?", "What is it?", "Sing!")[0] > 0  # a question of nothing else is what it is


def test_neighbours_of_a_match_are_near_it() -> None:
    found = {n: column(f"near_{n}", "a kayak?", *FILLER, "The kayak.", *FILLER * 3) for n in (1, 2, 5, 10)}
    assert [sum(value > 0 for value in found[n]) for n in (1, 2, 5, 10)] == [3, 5, 10, 15]
    assert all(max(values) == 1.0 for values in found.values())


def test_a_reply_counts_for_the_question_before_it() -> None:
    found = column("reply", "a kayak?", "Do you own a kayak?", "Yes, a red one.", "My kayak is red.", "Good.")
    assert found[1] > 0
    assert [found[0], found[2], found[3]] == [0, 0, 0]


def test_who_speaks_is_matched_where_names_stand_before_the_words() -> None:
    said = ("Ann: I sail.", "Bob: I climb.", "Ann: Fine.", "Bob: Yes.")
    assert column("named", "What does Bob do?", *said) == [0, 1, 0, 1]
    assert column("other", "What does Bob do?", *said) == [1, 0, 1, 0]
    assert column("other", "Who sails?", *said) == [0, 0, 0, 0]
    assert column("other", "What about a note?", "Note: buy milk", "yes", "no", "ok") == [0, 0, 0, 0]


def test_i_is_the_user() -> None:
    assert column("named", "What did I say?", "one", "two", "three") == [1, 0, 1]
    assert column("named", "What did she say?", "one", "two", "three") == [0, 0, 0]


def test_a_date_of_the_question_is_matched_with_that_of_the_session() -> None:
    said = ("[8 May, 2023]\nhello", "hi", "[2 June, 2024]\nagain", "yes")
    assert column("month", "What happened in May?", *said) == [1, 1, 0, 0]
    assert column("other_month", "What happened in May?", *said) == [0, 0, 1, 1]
    assert column("year", "What happened in 2024?", *said) == [0, 0, 1, 1]
    assert column("day", "What happened on 2 June?", *said) == [0, 0, 1, 1]
    assert column("day", "What happened on 2 May?", *said) == [0, 0, 0, 0]
    assert column("day", "Which 2 things happened?", *said) == [0, 0, 0, 0]


def test_scripts_without_blanks_match() -> None:
    found = column("match", "合同编号是什么？", "我的合同编号是七四二九", "好的", "天气很好")
    assert np.argmax(found) == 0
    assert found[1:] == [0, 0]


def test_of_a_long_question_the_rarest_stems_are_looked_for() -> None:
    common = " ".join(f"w{number}" for number in range(3 * STEMS))
    found = column("match", f"{common} zebra", common, common, common, "zebra")
    assert found[3] > 0


@pytest.mark.parametrize("question", ["", "?", "the", "x" * 10_000, "\ud83d"])
def test_odd_questions_have_finite_features(question: str) -> None:
    assert np.isfinite(matches(index("one", "", "three\ud83d"), question)).all()


def test_an_empty_history_has_no_rows() -> None:
    assert matches(Index(), "what?").shape == (0, len(QUERY))


TEXTS = st.lists(st.sampled_from(["Ann: a red kayak", "[3 May 2024]\nBob: yes?", "合同", "", "kayaks"]), max_size=8)


@given(texts=TEXTS, cut=st.integers(0, 8))
def test_a_history_that_grew_is_matched_like_one_read_at_once(texts: list[str], cut: int) -> None:
    units = units_of(talk(*texts)) if texts else []
    grown = Index()
    grown.extend(units[:cut])
    grown.extend(units[cut:])
    assert np.array_equal(matches(grown, "Did Bob kayak in May?"), matches(index(*texts), "Did Bob kayak in May?"))


def test_counts_are_of_each_stem_and_unit() -> None:
    found = index("red red kayak", "kayak", "blue").counts(numbers(["kayak", "red", "green"]))
    assert found.tolist() == [[1, 1, 0], [2, 0, 0], [0, 0, 0]]
