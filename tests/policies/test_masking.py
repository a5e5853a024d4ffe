"""Masking: results give way oldest first, their markers say what stood there, and words stay."""

from __future__ import annotations

import json
from typing import Any

from forgetless import compact
from forgetless.tokens import Counter

QUARTER = Counter(lambda text: -(-len(text) // 4))


def steps(many: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Look everywhere."}]
    for n in range(many):
        call = {"id": f"c{n}", "type": "function", "function": {"name": f"look_{n}", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": f"Step {n}.", "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{n}", "content": f"found {n} " * 40})
    return messages


def test_the_oldest_results_go_first_and_only_as_many_as_needed() -> None:
    messages = steps(6)
    whole = compact(messages, budget=10**6, policy="full", counter=QUARTER).tokens
    done = compact(messages, budget=whole - 135, policy="masking", counter=QUARTER)
    assert [e.form for e in done.ledger] == ["raw", "compressed", "compressed", "raw", "raw", "raw", "raw"]
    assert done.messages[2]["content"] == "[result of look_0 left out: 80 tokens]"
    assert done.messages[2]["tool_call_id"] == "c0"
    assert done.messages[1] == messages[1]
    assert [e.reason for e in done.ledger if e.form == "compressed"] == ["masked", "masked"]


def test_the_open_step_keeps_its_result_and_whole_units_go_last() -> None:
    messages = steps(6)
    done = compact(messages, budget=190, policy="masking", counter=QUARTER)
    assert done.messages[-1] == messages[-1]
    assert done.ledger[-1].form == "raw"
    assert {e.form for e in done.ledger[1:-1]} <= {"compressed", "omitted"}
    omitted = [e.unit for e in done.ledger if e.form == "omitted"]
    assert omitted == list(range(1, len(omitted) + 1)), "the oldest units go first"


def test_a_result_shorter_than_its_marker_stays() -> None:
    messages = steps(3)
    messages[2]["content"] = "ok"
    done = compact(messages, budget=230, policy="masking", counter=QUARTER)
    assert done.messages[2]["content"] == "ok"


def test_reasoning_of_closed_turns_goes_before_any_result() -> None:
    def turn(n: int) -> list[dict[str, Any]]:
        return [
            {"role": "user", "content": f"Question {n}?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "think " * 60, "signature": f"s{n}="},
                    {"type": "tool_use", "id": f"t{n}", "name": "look", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": f"t{n}",
                        "content": "seen " * 20,
                        "is_error": False,
                    }
                ],
            },
        ]

    messages = [*turn(0), {"role": "assistant", "content": "Yes."}, *turn(1)]
    whole = compact(messages, budget=10**6, policy="full", counter=QUARTER).tokens
    done = compact(messages, budget=whole - 20, policy="masking", counter=QUARTER)
    assert [e.reason for e in done.ledger if e.form == "compressed"] == ["thinking_removed"]
    assert [b["type"] for b in done.messages[1]["content"]] == ["tool_use"]
    assert done.messages[2] == messages[2]
    assert done.messages[5] == messages[5], "the open step keeps its reasoning"
    less = compact(messages, budget=whole - 100, policy="masking", counter=QUARTER)
    masked = less.messages[2]["content"][0]
    assert masked["content"].startswith("[result of look left out: ")
    assert masked["is_error"] is False


def test_a_screenshot_is_not_replaced_by_text() -> None:
    shot = {"type": "computer_screenshot", "image_url": "data:image/png;base64,QUJD"}
    items = [
        {"role": "user", "content": "Click it."},
        {"type": "computer_call", "call_id": "c", "action": {"type": "screenshot"}},
        {"type": "computer_call_output", "call_id": "c", "output": shot},
        {"role": "assistant", "content": "Clicked."},
        {"role": "user", "content": "Thanks."},
    ]
    done = compact(items, budget=100, policy="masking", dialect="responses", counter=QUARTER)
    assert "left out" not in json.dumps(done.request)
    assert [e.form for e in done.ledger] == ["omitted", "omitted", "omitted", "raw"] or done.ledger[1].form == "omitted"
