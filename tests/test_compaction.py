"""The one-call door: shapes, errors that name the thing, and what a policy of one's own needs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

import forgetless
from forgetless import BudgetError, ConfigError, RequestError, Unit, compact, load_policy
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


@pytest.mark.parametrize(
    ("scores", "hint"),
    [
        (lambda n: [1.0] * (n - 1), "39 scores for 40 units"),
        (lambda n: None, "a NoneType for 40 units"),
        (lambda n: (1.0 for _ in range(n)), "a generator for 40 units"),
        (lambda n: [float("nan")] * n, "no finite number"),
        (lambda n: ["high"] * n, "no finite number"),
    ],
)
def test_a_scorer_that_gives_no_scores_is_told_so(scores: Any, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        compact(LONG, budget=500, policy=Select(lambda units, query=None: scores(len(units))))


def test_units_with_a_negative_score_are_not_kept_for_it() -> None:
    done = compact(LONG, budget=1000, policy=Select(lambda units, query=None: [-1.0] * len(units)))
    assert all(entry.pinned for entry in done.ledger if entry.form == "raw")


def test_a_policy_made_before_counts_as_the_request_is_counted() -> None:
    messages = [{"role": "user", "content": "Look."}]
    for n in range(8):
        call = {"id": f"c{n}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})  # type: ignore[dict-item]
        messages.append({"role": "tool", "tool_call_id": f"c{n}", "content": "seen " * 100})
    done = compact(messages, budget=2500, policy=load_policy("masking"), counter=len)
    wire = sum(4 + len(m.get("content") or "") + 6 * ("tool_calls" in m) for m in done.messages)
    assert done.tokens == wire <= 2500


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"budget": "4000"}, "whole number"),
        ({"budget": float("nan")}, "whole number"),
        ({"budget": True}, "whole number"),
        ({"policy": "bm25", "recency": float("nan")}, "recency must be"),
        ({"policy": "bm25", "half_life": 0}, "half_life must be"),
        ({"policy": "recent", "turns": 2.5}, "turns must be"),
        ({"policy": None}, "is no policy"),
        ({"policy": lambda units, query=None: []}, "wrap a scorer in Select"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        compact(LONG, **{"budget": 500, **options})


@pytest.mark.parametrize("request_", [None, "hello", 3, b"x"])
def test_what_is_no_request_is_refused(request_: Any) -> None:
    with pytest.raises(RequestError, match="a request is a dict"):
        compact(request_, budget=100)


def test_a_message_of_an_sdk_is_told_how_to_become_a_dict() -> None:
    class Sdk:
        def model_dump(self) -> None: ...

    with pytest.raises(RequestError, match=r"message 0: .*model_dump\(exclude_none=True\)"):
        compact([Sdk()], budget=100)  # type: ignore[list-item]


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
