"""Labels without annotation, on logs small enough to label by eye."""

from __future__ import annotations

from typing import Any

import pytest

from forgetless.datasets.logs import Asked, Log, units_of
from forgetless.errors import ConfigError
from forgetless.training.labels import cases


def talk(*texts: str) -> list[dict[str, Any]]:
    return [{"role": "user" if at % 2 == 0 else "assistant", "content": text} for at, text in enumerate(texts)]


def positives(log: Log, rule: str) -> list[tuple[int, list[int]]]:
    """For each case: how many units it has, and which of them are positive."""
    return [(len(case.units), [i for i, y in enumerate(case.labels) if y]) for case in cases(log, rule)]


TALK = units_of(
    talk(
        "My sister Ines plays the violin in Porto.",
        "Lovely! Where does she play the violin?",
        "I bought a red bicycle on Tuesday.",
        "Nice.",
    )
)
ASKED = (
    Asked("Which instrument does Ines play?", "the violin in Porto", (0,)),
    Asked("What was bought?", "a red bicycle"),
)


def test_gold_is_what_people_marked() -> None:
    assert positives(Log("a", TALK, ASKED), "gold") == [(4, [0])]
    assert positives(Log("a", TALK), "gold") == []


def test_an_answer_is_covered_from_forty_percent_of_its_words_on() -> None:
    # "violin in porto": unit 0 has all, unit 1 one of three; "red bicycle": unit 2 has both
    assert positives(Log("a", TALK, ASKED), "answers") == [(4, [0, 2])]
    log = Log("a", units_of(talk("one two", "one")), (Asked("?", "the one two three four five"),))
    assert positives(log, "answers") == [(2, [0])]


def test_the_best_unit_answers_and_does_not_ask() -> None:
    asked = (Asked("Where does she play the violin?", "Porto"),)
    assert positives(Log("a", TALK, asked), "best") == [(4, [0])]  # though unit 1 has more of the words
    assert positives(Log("a", TALK, (Asked("Unheard?", "nothing"),)), "best") == []


def test_rare_words_decide() -> None:
    units = units_of(
        talk("the cat is in the house", "the dog is in the house", "the house is in Lisbon", "ok the house")
    )
    assert positives(Log("a", units, (Asked("Is the house in Lisbon?", ""),)), "best") == [(4, [2])]


def test_a_log_without_questions_serves_with_its_own() -> None:
    texts = ["The code is 7741.", "Noted.", *"uvwxyz", "Which code was it?", "The code is 7741."]
    found = positives(Log("a", units_of(talk(*texts))), "best")
    assert [many for many, _ in found] == [5, 7]  # 10 units: a quarter of them are too few
    assert all(positive == [0] for _, positive in found)
    assert [positive for _, positive in positives(Log("a", units_of(talk(*texts))), "answers")] == [[0], [0]]


def call(ident: str, command: str, result: str) -> list[dict[str, Any]]:
    function = {"name": "sh", "arguments": command}
    return [
        {"role": "assistant", "content": None, "tool_calls": [{"id": ident, "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": ident, "content": result},
    ]


def test_an_identifier_counts_when_three_later_steps_take_it_up() -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "deploy it"}]
    messages += call("a", "login", "token tok_9f31c") + call("b", "ls", "build_77 done") + call("c", "ls", "nothing")
    for number in range(4):
        messages += call(f"d{number}", "push tok_9f31c" + (" build_77" if number < 2 else ""), "ok")
    log = Log("task/1", units_of(messages))
    assert len(log.units) == 8
    # After a half (4 units) four steps use the token and two the build; after three quarters (6) two use the token.
    assert positives(log, "reuse") == [(4, [1]), (6, [])]
    assert {case.group for case in cases(log, "reuse")} == {"task"}


def test_a_short_log_says_nothing() -> None:
    assert cases(Log("a", units_of(talk("hi", "hello"))), "best") == []
    assert cases(Log("a", ()), "reuse") == []


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(ConfigError, match="no rule 'charm'"):
        cases(Log("a", TALK), "charm")


def test_scripts_without_blanks_are_covered_too() -> None:
    units = units_of(talk("我的合同编号是七四二九", "好的", "天气很好", "是的"))
    assert positives(Log("a", units, (Asked("编号？", "七四二九"),)), "answers") == [(4, [0])]
    assert positives(Log("a", units, (Asked("合同编号是什么", "七四二九"),)), "best") == [(4, [0])]
