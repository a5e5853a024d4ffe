"""Rules of MT-Eval are checked as their words say."""

# ruff: noqa: E501 - a case a line

from __future__ import annotations

from typing import Any

import pytest

from forgetless.benchmarks.constraints import RULES, follows
from forgetless.datasets.mt_eval import CLASSIFY, Recollection
from forgetless.errors import ConfigError

CASES: list[tuple[str, dict[str, Any], list[str], list[str]]] = [
    ("startend:start_char", {"letter": "r"}, ["Rain falls.", " rain"], ["The rain", "", "(r)"]),
    ("startend:start_emoji", {}, ["🌧 Rain", "☔ rain", "⭐x"], ["Rain 🌧", ":) rain", "1️ rain"[:1]]),
    ("startend:end_phrase", {"end_phrase": "Any other questions?"}, ["Yes. any other questions?", "x Any other questions?' "], ["Any other questions? Bye.", "No."]),
    ("language:response_language", {"lang": "Bulgarian"}, ["Времето днес е хубаво и аз отивам на разходка в парка, защото обичам слънцето."], ["The weather is fine today and I am going for a walk.", "Погода сегодня хорошая, и я иду гулять в парк, потому что люблю солнце."]),
    ("format:json_format", {}, ['{"a": 1}', '```json\n{"a": [1]}\n```', "[]", '```\n"x"```'], ["{a: 1}", "Here it is: {}", '```json\n{"a": 1'],),
    ("format:bullet_list", {"num_bullets": 2}, ["* one\n* two", "Well:\n- one\n  - two"], ["* one", "**bold**\n* one", "* a\n* b\n* c"]),
    ("format:bullet_list", {"num_bullets": 0}, ["* one"], ["one"]),
    ("length_constraints:number_sentences", {"num_sentences": 3, "relation": "less than"}, ["One. Two!", "One"], ["One. Two. Three.", "One. Two. Three. Four."]),
    ("keywords:existence", {"keywords": ["city", "garbage"]}, ["The City has garbage."], ["The city.", "garbage"]),
    ("change_case:capital_letter", {}, ["ALL OF IT, 3 TIMES."], ["ALL of IT", "123"]),
    ("change_case:lowercase", {}, ["all of it, 3 times."], ["All of it", "123"]),
    ("punctuation:no_comma", {}, ["none of them"], ["one, two"]),
    ("combination:two_responses", {}, ["one ****** two", "******one******two******"], ["one", "one ****** one", "a ****** b ****** c", "a ****** ****** b"]),
    ("content:placeholder", {"num_placeholder": 2}, ["Dear [name], at [place]"], ["Dear [name]", "Dear name"]),
    ("format:constrained_response", {"response_options": ["My answer is yes.", "My answer is no."]}, ["My answer is no.", "Well. My answer is yes."], ["My answer is maybe.", "yes"]),
]  # fmt: skip


def test_there_is_a_case_for_every_rule() -> None:
    assert {rule for rule, *_ in CASES} == set(RULES)


@pytest.mark.parametrize(("rule", "terms", "good", "bad"), CASES, ids=[case[0] for case in CASES])
def test_a_rule_takes_what_keeps_to_it_and_no_more(
    rule: str, terms: dict[str, Any], good: list[str], bad: list[str]
) -> None:
    dialogue = Recollection("1", rule, terms, "Do so.", "ok.", ("Well?",))
    assert [reply for reply in good if not follows(dialogue, 0, reply)] == []
    assert [reply for reply in ["", " \n", *bad] if follows(dialogue, 0, reply)] == []


def test_a_topic_is_looked_for_in_the_reply() -> None:
    dialogue = Recollection("1", CLASSIFY, {}, "Name the topic.", "OK", ("a", "b"), ("music", "travel"))
    assert follows(dialogue, 0, "**Music**")
    assert not follows(dialogue, 0, "travel")
    assert follows(dialogue, 1, "It is travel.")


def test_a_rule_that_is_not_known_is_named() -> None:
    with pytest.raises(ConfigError, match="'startend:rhyme'"):
        follows(Recollection("1", "startend:rhyme", {}, "Rhyme.", "ok.", ("?",)), 0, "x")
