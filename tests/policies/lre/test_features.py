"""Features: nothing after a unit changes them, a growing conversation gives what a fresh one does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetless.datasets.logs import units_of
from forgetless.policies.lre import growing
from forgetless.policies.lre.features import CAUSAL, FEATURES, Features
from forgetless.policies.lre.prefix import Prefix
from strategies import any_dialect

LATE = len(FEATURES) - len(CAUSAL)


def talk(*texts: str) -> list[dict[str, Any]]:
    return [{"role": "user" if at % 2 == 0 else "assistant", "content": text} for at, text in enumerate(texts)]


def column(name: str, *texts: str) -> list[float]:
    found: list[float] = Features()(units_of(talk(*texts)))[:, FEATURES.index(name)].tolist()
    return found


@given(conversation=any_dialect(), data=st.data())
def test_what_comes_later_does_not_change_a_unit(conversation: tuple[str, Any], data: st.DataObject) -> None:
    dialect, messages = conversation
    units = units_of(messages, dialect)
    many = data.draw(st.integers(0, len(units)))
    whole, start = Features()(units), Features()(units[:many])
    assert np.array_equal(whole[:many, : len(CAUSAL)], start[:, : len(CAUSAL)])
    assert np.isfinite(whole).all()
    uses = FEATURES.index("uses")
    assert (whole[:many, uses] >= start[:, uses]).all()


@given(conversation=any_dialect(), data=st.data())
def test_a_conversation_that_grows_gives_what_a_fresh_one_gives(
    conversation: tuple[str, Any], data: st.DataObject
) -> None:
    dialect, messages = conversation
    units = units_of(messages, dialect)
    kept = Features()
    for end in sorted(data.draw(st.lists(st.integers(0, len(units)), max_size=4))):
        kept(units[:end])
    assert np.array_equal(kept(units), Features()(units))
    assert np.array_equal(kept(units), Features()(units))


def test_a_branch_does_not_see_the_other_branch() -> None:
    kept = Features()
    shared = talk("my flight is KL1234", "noted")
    kept(units_of([*shared, {"role": "user", "content": "the hotel is Astoria"}]))
    other = units_of([*shared, *talk("what was KL1234?", "Astoria")])
    assert np.array_equal(kept(other), Features()(other))


def test_only_new_units_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    extend = Prefix.extend

    def counted(self: Prefix, units: Any) -> None:
        read.append(len(units))
        extend(self, units)

    monkeypatch.setattr(Prefix, "extend", counted)
    units = units_of(talk(*map(str, range(50))))
    kept = Features()
    for end in (40, 49, 50, 50):
        kept(units[:end])
    assert read == [40, 9, 1, 0]


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing, "PREFIXES", 3)
    kept = Features()
    for number in range(10):
        kept(units_of(talk(f"conversation {number}", "yes")))
    assert len(kept._kept._kept) == 3
    monkeypatch.setattr(growing, "UNITS", 5)
    kept(units_of(talk("one more", "yes")))
    assert sum(prefix.many for prefix in kept._kept._kept.values()) <= 5


def test_units_without_keys_are_scored_too() -> None:
    from dataclasses import replace

    units = units_of(talk("my flight is KL1234", "noted"))
    bare = [replace(unit, keys=None) for unit in units]
    kept = Features()
    kept(units_of(talk("something else")))
    assert np.array_equal(kept(bare), Features()(units))
    kept(units[:1])
    tried = [units[0], bare[1]]  # a reply that is tried and not kept
    assert np.array_equal(kept(tried), Features()(units))
    assert np.array_equal(kept(units), Features()(units))


def test_uses_count_later_units_that_take_up_a_word() -> None:
    found = np.expm1(column("uses", "token abc123", "ok", "send abc123", "abc123 abc123 sent", "bye"))
    assert found.round().tolist() == [2, 0, 0, 0, 0]  # twice in one unit counts once


def test_uses_follow_the_text() -> None:
    assert np.expm1(column("uses", "red", "green", "red", "red green")).round().tolist() == [2, 1, 0, 0]


def test_questions_hold_no_statements() -> None:
    told = column("statement", "The harbour master left at noon.", "Did the purple whale sing in Lisbon?")
    assert told[0] > 0
    assert told[1] == 0


def test_what_answers_a_question_is_known_across_calls() -> None:
    units = units_of(talk("hello there", "where do you live?", "in Lisbon"))
    kept = Features()
    kept(units[:2])
    assert kept(units)[:, FEATURES.index("answers")].tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("name", "text", "plain"),
    [
        ("numbers", "it cost 40 or 400", "it cost a lot"),
        ("names", "then Caroline came", "then she came"),
        ("mixed", "the job9f3c id", "the job id"),
        ("quotes", 'he said "go"', "he said go"),
        ("code", "if (x) { y; }", "if x then y"),
        ("paths", "see var/log/syslog", "see the log"),
        ("urls", "see https://example.com", "see example.com"),
        ("dates", "on 2024-05-01 then", "on a day then"),
        ("lines", "one\ntwo", "one two"),
        ("error", "Error: permission denied", "all is well"),
        ("questions", "ready?", "ready."),
        ("first_person", "I lost my keys", "they lost some keys"),
        ("plan", "we will meet", "we met"),
        ("deictic", "we met yesterday", "we met there"),
    ],
)
def test_a_feature_sees_what_it_is_named_after(name: str, text: str, plain: str) -> None:
    assert column(name, text)[0] > column(name, plain)[0]


def test_scripts_without_blanks_are_read_word_by_word() -> None:
    texts = ("我的合同编号是七四二九", "好的，我记下了。", "我们昨天在上海见面了吗？", "合同编号是什么？")
    novel = np.expm1(column("novel", *texts))
    assert novel[0] >= 8
    assert column("questions", *texts)[2] > 0
    assert np.expm1(column("uses", *texts))[0] >= 3  # 合同, 同编, 编号
    assert column("time", *texts)[2] > 0
    assert column("first_person", *texts)[0] > 0


def test_an_empty_conversation_has_no_rows() -> None:
    assert Features()([]).shape == (0, len(FEATURES))


def test_lone_surrogates_and_long_texts_are_read() -> None:
    assert np.isfinite(Features()(units_of(talk("\ud83d", "", "a" * 50_000 + "?", "?" * 1_000)))).all()
