"""Units: what belongs together is cut together, and nothing is lost in cutting and joining."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetless import RequestError
from forgetless.messages import Message, Opaque, Text
from forgetless.registry import load_dialect
from forgetless.splitting import split
from forgetless.tokens import Counter
from forgetless.units import Unit, check, join
from strategies import any_dialect, chat

COUNTER = Counter(len)


def units_of(dialect: str, wires: Any, **options: Any) -> list[Unit]:
    return split(load_dialect(dialect).parse(wires).messages, COUNTER, **options)


def call(*ids: str, content: str | None = None) -> dict[str, Any]:
    calls = [{"id": i, "type": "function", "function": {"name": "look", "arguments": "{}"}} for i in ids]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def result(ident: str, text: str = "found") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": ident, "content": text}


def user(text: str = "hello") -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str = "hi") -> dict[str, Any]:
    return {"role": "assistant", "content": text}


@given(any_dialect(), st.integers(-1, 0))
def test_join_undoes_split(conversation: tuple[str, Any], start: int) -> None:
    dialect = load_dialect(conversation[0])
    parsed = dialect.parse(conversation[1])
    units = split(parsed.messages, COUNTER, start=start)
    assert join(units) == list(parsed.messages)
    assert json.dumps(dialect.emit(parsed, join(units))) == json.dumps(conversation[1])


@given(any_dialect(), st.randoms(use_true_random=False))
def test_units_cover_each_part_once_and_join_does_not_mind_their_order(
    conversation: tuple[str, Any], rng: random.Random
) -> None:
    messages = load_dialect(conversation[0]).parse(conversation[1]).messages
    units = split(messages, COUNTER)
    assert [unit.index for unit in units] == list(range(len(units)))
    assert units == sorted(units, key=lambda unit: unit.at[0])
    spans = sorted(span for unit in units for span in unit.at)
    for index, message in enumerate(messages):
        mine = [(a, b) for i, a, b in spans if i == index]
        assert mine[0][0] == 0
        assert mine[-1][1] == len(message.parts)
        assert all(a[1] == b[0] for a, b in pairwise(mine))
    shuffled = list(units)
    rng.shuffle(shuffled)
    assert join(shuffled) == list(messages)


@given(chat(), st.data())
def test_keys_are_rolling_and_see_only_what_a_model_reads(messages: list[dict[str, Any]], data: st.DataObject) -> None:
    keys = [unit.key for unit in units_of("chat", messages)]
    assert len(set(keys)) == len(keys)
    marked = [{**m, "cache_control": {"type": "ephemeral"}} for m in messages]
    assert [unit.key for unit in units_of("chat", marked)] == keys
    longer = [*messages, user("one more")]
    if messages[-1]["role"] != "assistant" or "tool_calls" not in messages[-1]:
        assert [unit.key for unit in units_of("chat", longer)][: len(keys)] == keys
    at = data.draw(st.integers(0, len(messages) - 1))
    if isinstance(messages[at]["content"], str) and messages[at]["role"] != "tool":
        changed = [*messages]
        changed[at] = {**messages[at], "content": messages[at]["content"] + "!"}
        owner = next(u.index for u in units_of("chat", messages) if any(i == at for i, _, _ in u.at))
        after = [unit.key for unit in units_of("chat", changed)]
        assert after[:owner] == keys[:owner]
        assert not set(after[owner:]) & set(keys[owner:])


def test_a_step_gathers_its_results_over_other_messages() -> None:
    units = units_of("chat", [user(), call("a", "b"), result("b"), user("hurry"), result("a"), said()])
    assert [(u.kind, [i for i, _, _ in u.at]) for u in units] == [
        ("user", [0]),
        ("step", [1, 2, 4]),
        ("user", [3]),
        ("assistant", [5]),
    ]


def test_an_id_that_comes_again_belongs_to_the_newest_call() -> None:
    units = units_of("chat", [user(), call("0"), result("0"), call("0"), result("0", "again"), said()])
    assert [[i for i, _, _ in u.at] for u in units] == [[0], [1, 2], [3, 4], [5]]
    check(units)


@pytest.mark.parametrize(
    ("tail", "open_units"),
    [
        ([call("a"), result("a")], [1]),
        ([call("a")], [1]),
        ([call("a"), result("a"), user()], [1]),
        ([call("a"), result("a"), said()], [2]),
        ([call("a"), result("a"), said(), user()], []),
        ([call("a", "b"), result("a"), said(), user()], [1]),
        ([call("a"), result("a"), call("b"), result("b")], [2]),
        ([said("prefill")], [1]),
    ],
)
def test_open_is_what_the_model_has_still_to_go_on_from(tail: list[Any], open_units: list[int]) -> None:
    units = units_of("chat", [user(), *tail])
    assert [unit.index for unit in units if unit.open] == open_units


def test_a_user_message_with_results_is_split_by_parts() -> None:
    wires = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "look", "input": {}}]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t", "content": "x"},
                {"type": "text", "text": "my words"},
                {"type": "text", "text": "more of them"},
            ],
        },
    ]
    units = units_of("anthropic", wires)
    assert [(u.kind, u.at) for u in units] == [
        ("user", ((0, 0, 1),)),
        ("step", ((1, 0, 1), (2, 0, 1))),
        ("user", ((2, 1, 3),)),
    ]
    assert units[2].text == "my words\nmore of them"


def test_the_items_of_one_reply_are_one_unit() -> None:
    items = [
        {"role": "user", "content": "go"},
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"role": "assistant", "content": "I look."},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "b", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "1"},
        {"type": "function_call_output", "call_id": "b", "output": "2"},
        {"type": "reasoning", "id": "s", "summary": []},
        {"role": "assistant", "content": "Done."},
        {"role": "assistant", "content": "Anything else?"},
    ]
    assert [[i for i, _, _ in u.at] for u in units_of("responses", items)] == [
        [0],
        [1, 2, 3, 4, 5, 6],
        [7, 8],
        [9],
    ]


def test_pins_hold_the_whole_unit_and_provider_held_blocks_pin_themselves() -> None:
    units = units_of("chat", [user(), call("a"), result("a"), said()], pins={2})
    assert [unit.pinned for unit in units] == [False, True, False]
    held = split([Message("assistant", (Opaque({"type": "compaction"}),)), Message("user", (Text("x"),))], COUNTER)
    assert held[0].pinned


@pytest.mark.parametrize(
    ("messages", "index"),
    [
        ([user(), result("ghost"), user()], 1),
        ([user(), call("a"), result("a"), result("a"), user()], 3),
        ([result("a"), call("a"), user()], 0),
        ([user(), {"role": "tool", "content": "no id"}], 1),
    ],
)
def test_check_names_the_result_that_answers_nothing(messages: list[Any], index: int) -> None:
    with pytest.raises(RequestError) as error:
        check(units_of("chat", messages))
    assert error.value.message == index


@given(any_dialect())
def test_check_accepts_what_is_valid(conversation: tuple[str, Any]) -> None:
    check(units_of(*conversation))
