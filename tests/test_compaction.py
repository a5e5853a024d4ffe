"""The one-call door: shapes, errors that name the thing, and what a policy of one's own needs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

import forgetless
from forgetless import BudgetError, ConfigError, RequestError, Unit, compact
from forgetless.policies.select import Select

LONG = [{"role": r, "content": f"{r} {n} " + "word " * 50} for n in range(20) for r in ("user", "assistant")]
ORPHAN = [*LONG[:3], {"role": "tool", "tool_call_id": "ghost", "content": "x"}, *LONG[4:]]


def test_the_shape_of_the_request_is_the_shape_of_the_result() -> None:
    body = {"model": "gpt-4o", "messages": LONG, "temperature": 0}
    done = compact(body, budget=500)
    assert done.request == {**body, "messages": done.messages}
    assert isinstance(compact(LONG, budget=500).request, list)
    assert body["messages"] is LONG
    assert len(LONG) == 40


def test_a_faulty_input_passes_under_the_budget_and_is_named_above_it() -> None:
    assert compact(ORPHAN, budget=100_000).request == ORPHAN
    with pytest.raises(RequestError, match="message 3: the tool result 'ghost'"):
        compact(ORPHAN, budget=500)


def test_the_result_is_plain_json() -> None:
    done = compact(LONG, budget=500)
    back = json.loads(json.dumps(done.as_dict()))
    assert back["tokens"] == done.tokens <= back["budget"] == 500
    assert {e["form"] for e in back["ledger"]} == {"raw", "omitted"}


def test_a_budget_error_counts_the_whole_request() -> None:
    tools = [{"type": "function", "function": {"name": "look", "description": "look it up " * 300}}]
    with pytest.raises(BudgetError) as error:
        compact({"messages": LONG, "tools": tools}, budget=600)
    assert error.value.budget == 600
    assert error.value.floor > 600
    assert error.value.largest == 39
    assert f"tool schemas have {error.value.fixed}" in str(error.value)
    with pytest.raises(BudgetError):
        compact({"messages": LONG, "tools": tools}, budget=10)


def test_a_pin_on_no_message_is_refused() -> None:
    with pytest.raises(ConfigError, match="no message 40 to pin: the last one is 39"):
        compact(LONG, budget=500, pins=[0, 40])
    with pytest.raises(ConfigError, match="no message -1"):
        compact(LONG, budget=500, pins=[-1])


def test_an_empty_conversation_and_a_lone_system_message_pass() -> None:
    assert compact([], budget=1).request == []
    only = [{"role": "system", "content": "Be kind."}]
    assert compact(only, budget=100).request == only


def test_a_scorer_of_ten_lines_is_a_policy() -> None:
    def shouting(units: Sequence[Unit], query: Unit | None = None) -> list[float]:
        return [float(sum(map(str.isupper, unit.text))) for unit in units]

    messages: list[Any] = [dict(m) for m in LONG]
    messages[6] = {"role": "user", "content": "THIS ONE MATTERS " + "word " * 40}
    done = compact(messages, budget=200, policy=Select(shouting))
    assert messages[6] in done.messages
    assert max(done.ledger, key=lambda entry: entry.score or 0).unit == 6


def test_a_conversation_without_a_user_message_is_still_compacted() -> None:
    messages = [{"role": "assistant", "content": "word " * 100} for _ in range(5)]
    for policy in ("recent", "fifo", "masking", "bm25"):
        done = compact(messages, budget=250, policy=policy)
        assert done.tokens <= 250
        assert done.messages[-1] == messages[-1]


def test_the_package_hands_on_its_contracts() -> None:
    for name in forgetless.__all__:
        assert getattr(forgetless, name) is not None
