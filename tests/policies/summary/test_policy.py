"""Summaries: where they stand, what they say, what is never lost to a bad one, and what is not written twice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import CASES, quarter
from forgetless import BudgetError, Compaction, ConfigError, ModelError, Session, compact, load_policy
from forgetless.benchmarks.stand_ins import Summariser
from forgetless.models.scripted import Scripted
from strategies import any_dialect

NAMES = ("summary", "acon")
both = pytest.mark.parametrize("name", NAMES)


def said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def talk(turns: int) -> list[dict[str, Any]]:
    made = [said("system", "Be brief.")]
    for at in range(turns):
        made += [said("user", f"Question {at}: " + "why " * 30), said("assistant", f"Answer {at}: " + "so " * 30)]
    return [*made, said("user", "And now?")]


def steps(many: int) -> list[dict[str, Any]]:
    made = [said("user", "Find the leak.")]
    for at in range(many):
        call = {"id": f"c{at}", "type": "function", "function": {"name": "look", "arguments": "{}" + " " * (9 - at)}}
        made.append({"role": "assistant", "content": None, "tool_calls": [call]})
        made.append({"role": "tool", "tool_call_id": f"c{at}", "content": f"found {at} " * 40})
    return made


def squeeze(messages: Any, budget: int, name: str, model: Any, **options: Any) -> Compaction:
    return compact(messages, budget=budget, policy=name, counter=quarter, summariser=model, **options)


@both
def test_a_summary_stands_in_the_place_of_the_first_user_message(name: str) -> None:
    messages = talk(6)
    done = squeeze(messages, 300, name, Scripted(["It was about why."]), recent=2)
    assert done.messages == [
        messages[0],
        said("user", "[Summary of 10 of messages 1 to 10, written by a model:]\nIt was about why."),
        *messages[11:],
    ]
    assert {entry.reason for entry in done.ledger[1:11]} == {"summary"}
    assert [entry.form for entry in done.ledger] == ["raw", "compressed", *["omitted"] * 9, "raw", "raw", "raw"]
    assert [entry.reason for entry in done.ledger[11:]] == ["recent", "recent", "last_user"]


@both
def test_among_steps_it_stands_in_a_result_and_the_call_stays(name: str) -> None:
    messages = steps(8)
    done = squeeze(messages, 260, name, Scripted(["Nothing leaks so far."]))
    # The step with the shortest call; the last one is open.
    assert done.messages[:2] == [messages[0], messages[13]]
    assert done.messages[2] == {
        **messages[14],
        "content": "[Summary of 14 of messages 1 to 14, written by a model:]\nNothing leaks so far.",
    }
    assert done.messages[3:] == messages[15:]


@both
def test_before_the_first_user_message_nothing_else_stands(name: str) -> None:
    messages = [said("assistant", "Hello! " * 60), said("user", "Help me."), said("assistant", "Yes."), *steps(1)[1:]]
    done = squeeze(messages, 160, name, Scripted(["They greeted."]))
    assert done.messages[0] == messages[1]


@both
@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("", "summary_empty"),
        ("   \n", "summary_empty"),
        ("much longer than that " * 2_000, "summary_too_long"),
        (ModelError("down"), "summary_failed"),
    ],
)
def test_no_bad_summary_wipes_the_history(name: str, script: Any, reason: str) -> None:
    """The handed case 25: the fact is selected in place of the summary, and the ledger says why."""
    case = next(case for case in CASES if case.name.startswith("a fact from long ago"))
    done = squeeze(case.messages, case.budget, name, Scripted(lambda body: script))
    assert done.tokens <= case.budget
    assert done.messages[-1] == case.messages[-1]
    assert "the deposit is 450" in json.dumps(done.messages)
    assert {entry.reason for entry in done.ledger if entry.form == "omitted"} == {reason}
    assert all(entry.form != "compressed" for entry in done.ledger)


@both
def test_no_model_is_asked_where_there_is_no_room(name: str) -> None:
    model = Scripted([])
    messages = talk(3)
    done = squeeze(messages, 30, name, model)
    assert {entry.reason for entry in done.ledger if entry.form == "omitted"} == {"summary_no_room"}
    assert squeeze(messages, 10_000, name, model).request == messages
    assert model.requests == []


def test_a_summary_over_the_room_loses_its_middle() -> None:
    done = squeeze(talk(12), 300, "summary", Scripted(["start " + "middle " * 400 + "end"]))
    told = done.messages[1]["content"]
    assert done.tokens <= 300
    assert told.startswith("[Summary of ")
    assert told.endswith("end")
    assert "tokens left out here" in told
    assert {entry.reason for entry in done.ledger if entry.form == "omitted"} == {"summary"}


def test_acon_goes_on_from_its_own_summary_and_summary_reads_all_again() -> None:
    for name in NAMES:
        model = Scripted(lambda body: f"{len(body['messages'][1]['content'])} characters read.")
        session = Session(budget=600, policy=name, counter=quarter, summariser=model)
        for turns in range(1, 30):
            session.prepare(talk(turns))
        assert session.evictions == len(model.requests) > 2
        read = [request["messages"][1]["content"] for request in model.requests]
        again = ["Answer 0" in text for text in read]
        assert again == [True] * len(read) if name == "summary" else [True] + [False] * (len(read) - 1)
        if name == "acon":
            assert "Summary so far:\n" in read[1]
            assert f"{len(read[0])} characters read." in read[1]


@both
def test_the_same_history_is_summarised_once(name: str) -> None:
    model = Scripted(["Once."])
    policy = load_policy(name, summariser=model)
    first = compact(talk(6), budget=300, policy=policy)
    assert compact(talk(6), budget=300, policy=policy).request == first.request
    other = [said("system", "Be long."), *talk(6)[1:]]
    assert {e.reason for e in compact(other, budget=300, policy=policy).ledger if e.form == "omitted"} == {
        "summary_failed"
    }, "another conversation has no part in it"


@both
@given(any_dialect(), st.floats(0.1, 0.9))
def test_a_summary_is_shorter_than_what_it_stands_for(name: str, conversation: tuple[str, Any], share: float) -> None:
    dialect, messages = conversation
    total = compact(messages, budget=10**9, policy="full", dialect=dialect).tokens
    try:
        done = compact(
            messages, budget=max(1, int(total * share)), policy=name, dialect=dialect, summariser=Summariser()
        )
    except BudgetError:
        return
    told = [entry for entry in done.ledger if entry.reason == "summary"]
    assert sum(entry.form == "compressed" for entry in told) == bool(told)
    assert not told or sum(e.tokens_after for e in told) < sum(e.tokens_before for e in told)
    assert json.dumps(done.messages, ensure_ascii=False).count("written by a model:]") == bool(told)


def test_the_request_asks_for_a_bounded_reproducible_reply() -> None:
    model = Scripted(["Short."])
    squeeze(talk(6), 300, "acon", model)
    (body,) = model.requests
    assert {key: body[key] for key in ("temperature", "seed")} == {"temperature": 0, "seed": 0}
    assert 0 < body["max_tokens"] < 300
    told: list[Mapping[str, str]] = body["messages"]
    assert [message["role"] for message in told] == ["system", "user"]
    assert told[1]["content"].startswith("The task, which stays:\nAnd now?\n\nHistory:\nUser: Question 0")
    assert "Be brief." not in told[1]["content"], "what stays is not summarised"


@both
def test_all_sessions_share_a_model_and_ask_for_no_more_than_it_can_write(name: str) -> None:
    options = {"summariser": "http://127.0.0.1:9/v1", "model_name": "small"}
    assert load_policy(name, **options).model is load_policy(name, **options).model
    model = Scripted(["Short."])
    squeeze(talk(3_000), 60_000, name, model)
    assert model.requests[0]["max_tokens"] <= 2_048


@both
def test_what_is_missing_or_wrong_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match="give summariser='embedded'"):
        load_policy(name)
    with pytest.raises(ConfigError, match="did you mean 'embedded'"):
        load_policy(name, summariser="embeded")
    with pytest.raises(ConfigError, match="name the model"):
        load_policy(name, summariser="https://models.example/v1")
    with pytest.raises(ConfigError, match="recent must be"):
        load_policy(name, summariser=Scripted([]), recent=-1)
