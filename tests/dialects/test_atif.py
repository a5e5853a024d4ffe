"""ATIF trajectories become valid chat messages, or an error that names the step."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetless import compact
from forgetless.dialects.atif import atif_from_messages, is_atif, messages_from_atif
from forgetless.errors import RequestError
from forgetless.registry import load_dialect
from forgetless.splitting import split
from forgetless.tokens import for_model
from forgetless.units import check


def trajectory(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"schema_version": "ATIF-v1.7", "agent": {"name": "a", "version": "1"}, "steps": list(steps)}


def agent(calls: list[str], results: list[dict[str, Any]], message: Any = "so") -> dict[str, Any]:
    made = [{"tool_call_id": c, "function_name": "sh", "arguments": {"cmd": c}} for c in calls]
    return {"source": "agent", "message": message, "tool_calls": made, "observation": {"results": results}}


def answers(messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {m["tool_call_id"]: m["content"] for m in messages if m["role"] == "tool"}


def test_a_whole_run() -> None:
    run = trajectory(
        {"source": "system", "message": "Be brief."},
        {"source": "user", "message": "List the files."},
        {
            **agent(["c1"], [{"source_call_id": "c1", "content": "a.txt"}]),
            "reasoning_content": "I must look.",
        },
        {"source": "agent", "message": "One file: a.txt"},
    )
    assert is_atif(run)
    assert is_atif({"task": "t", "trajectory": run})
    assert messages_from_atif({"trajectory": run}) == messages_from_atif(run)
    assert messages_from_atif(run) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "List the files."},
        {
            "role": "assistant",
            "content": "so",
            "reasoning_content": "I must look.",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "sh", "arguments": '{"cmd": "c1"}'}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "a.txt"},
        {"role": "assistant", "content": "One file: a.txt"},
    ]


def test_one_screen_for_several_calls_goes_to_the_last() -> None:
    messages = messages_from_atif(trajectory(agent(["a", "b", "c"], [{"content": "screen"}])))
    assert answers(messages) == {"a": "", "b": "", "c": "screen"}


def test_unnamed_results_go_in_order_and_the_last_to_the_last() -> None:
    two = [{"content": "1"}, {"content": "2"}]
    assert answers(messages_from_atif(trajectory(agent(["a", "b"], two)))) == {"a": "1", "b": "2"}
    assert answers(messages_from_atif(trajectory(agent(["a", "b", "c"], two)))) == {
        "a": "1",
        "b": "",
        "c": "2",
    }
    assert answers(messages_from_atif(trajectory(agent(["a"], two)))) == {"a": "1\n2"}


def test_unnamed_results_pass_over_answered_calls() -> None:
    results = [
        {"content": "x"},
        {"source_call_id": "a", "content": "1"},
        {"source_call_id": "a", "content": "2"},
    ]
    assert answers(messages_from_atif(trajectory(agent(["a", "b"], results)))) == {"a": "1\n2", "b": "x"}
    assert answers(messages_from_atif(trajectory(agent(["a"], results)))) == {"a": "1\n2\nx"}


def test_a_result_that_is_only_a_subagent_is_empty() -> None:
    ref = {"source_call_id": "a", "subagent_trajectory_ref": [{"trajectory_id": "sub"}]}
    assert answers(messages_from_atif(trajectory(agent(["a"], [ref])))) == {"a": ""}


def test_results_without_calls_become_user_messages() -> None:
    messages = messages_from_atif(
        trajectory(agent([], [{"content": "parse error"}]), {"source": "system", "message": ""})
    )
    assert messages == [
        {"role": "assistant", "content": "so"},
        {"role": "user", "content": "parse error"},
        {"role": "system", "content": ""},
    ]
    silent = trajectory({"source": "system", "message": "", "observation": {"results": [{"content": "reset"}]}})
    assert messages_from_atif(silent) == [{"role": "user", "content": "reset"}]


def test_content_parts() -> None:
    parts = [
        {"type": "text", "text": "see"},
        {"type": "image", "source": {"media_type": "image/png", "path": "i/1.png"}},
    ]
    wired = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "i/1.png"}}]
    assert messages_from_atif(trajectory({"source": "user", "message": parts}))[0]["content"] == wired
    both = [{"content": "a"}, {"content": parts}]
    assert answers(messages_from_atif(trajectory(agent(["c"], both)))) == {"c": [{"type": "text", "text": "a"}, *wired]}


@pytest.mark.parametrize(
    ("step", "says"),
    [
        ("nothing", "step 2: the step must be an object"),
        ({"source": "robot", "message": ""}, "step 2: 'source' must be"),
        ({"source": "user", "message": 3}, "step 2: content must be"),
        ({"source": "user", "message": [{"type": "sound"}]}, "step 2: a content part"),
        ({"source": "agent", "message": "", "tool_calls": {}}, "step 2: 'tool_calls' must be a list"),
        (
            {"source": "agent", "message": "", "tool_calls": [{"function_name": "f"}]},
            "step 2: a tool call needs",
        ),
        ({"source": "agent", "message": "", "observation": {"results": [1]}}, "step 2: a result must be"),
        (agent(["a", "a"], []), "step 2: two calls share"),
        (agent(["a"], [{"source_call_id": "b", "content": ""}]), "step 2: a result names the call 'b'"),
    ],
)
def test_errors_name_the_step(step: Any, says: str) -> None:
    with pytest.raises(RequestError, match=says):
        messages_from_atif(trajectory({"source": "user", "message": "hi"}, step))


@pytest.mark.parametrize("value", [None, [], {}, {"steps": []}, {"trajectory": {"steps": []}}, {"messages": []}])
def test_other_values_are_not_atif(value: Any) -> None:
    assert not is_atif(value)
    with pytest.raises(RequestError, match="not an ATIF trajectory"):
        messages_from_atif(value)


@st.composite
def runs(draw: st.DrawFn) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"source": "user", "message": draw(st.text(max_size=20))}]
    for number in range(draw(st.integers(0, 6))):
        calls = [f"call_{number}_{i}" for i in range(draw(st.integers(0, 4)))]
        named = st.fixed_dictionaries({"source_call_id": st.sampled_from(calls), "content": st.text(max_size=9)})
        unnamed = st.fixed_dictionaries({"content": st.none() | st.text(max_size=9)})
        steps.append(agent(calls, draw(st.lists(named | unnamed if calls else unnamed, max_size=5))))
    return trajectory(*steps)


@given(runs())
def test_every_call_has_one_result_and_no_text_is_lost(run: dict[str, Any]) -> None:
    before = json.dumps(run)
    messages = messages_from_atif(run)
    assert json.dumps(run) == before
    made = [call["id"] for m in messages for call in m.get("tool_calls", [])]
    assert [m["tool_call_id"] for m in messages if m["role"] == "tool"] == made
    request = load_dialect("chat").parse(messages)
    units = split(request.messages, for_model())
    check(units)
    assert not any(unit.open and unit is not units[-1] and unit.kind == "step" for unit in units[:-2])
    given_texts = [
        r["content"] for s in run["steps"] for r in s.get("observation", {}).get("results", []) if r["content"]
    ]
    kept = "\n".join(m["content"] or "" for m in messages if m["role"] != "assistant")
    assert all(text in kept for text in given_texts)
    assert compact(messages, budget=10**6).messages == messages


said = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@st.composite
def runs(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Whole runs of chat messages: a task, then steps with calls and results, or words."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": draw(said)}]
    for number in range(draw(st.integers(0, 5))):
        idents = [f"c{number}_{at}" for at in range(draw(st.integers(0, 3)))]
        words = draw(said) or "so"
        if not idents:
            messages += [{"role": "assistant", "content": words}, {"role": "user", "content": draw(said) or "go on"}]
            continue
        given = [json.dumps({"action": draw(said)}, ensure_ascii=False) for _ in idents]
        calls = [
            {"id": ident, "type": "function", "function": {"name": "act", "arguments": arguments}}
            for ident, arguments in zip(idents, given, strict=True)
        ]
        messages.append({"role": "assistant", "content": draw(st.sampled_from([None, words])), "tool_calls": calls})
        messages += [{"role": "tool", "tool_call_id": ident, "content": draw(said)} for ident in idents]
    return messages


@given(runs())
def test_a_run_that_is_written_is_read_back(messages: list[dict[str, Any]]) -> None:
    replies = sum(message["role"] == "assistant" for message in messages)
    notes = [{"metrics": {"prompt_tokens": at}} for at in range(replies)]
    written = atif_from_messages(messages, agent={"name": "a", "version": "1"}, session="s", notes=notes)
    assert messages_from_atif(json.loads(json.dumps(written))) == messages
    assert [step["step_id"] for step in written["steps"]] == list(range(1, len(written["steps"]) + 1))
    noted = [step["metrics"]["prompt_tokens"] for step in written["steps"] if step["source"] == "agent"]
    assert noted == list(range(replies))


def test_arguments_that_are_no_object_stay_what_they_are() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "act", "arguments": "[1"}}
    run = [
        {"role": "assistant", "content": "x", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": ""},
    ]
    written = atif_from_messages(run, agent={"name": "a", "version": "1"}, session="s", extra={"reward": 1})
    assert written["extra"] == {"reward": 1}
    assert messages_from_atif(written) == run


def test_a_result_without_a_reply_before_it_is_not_written() -> None:
    with pytest.raises(RequestError, match="message 1: a tool result must follow"):
        atif_from_messages(
            [{"role": "user", "content": "x"}, {"role": "tool", "tool_call_id": "c", "content": "y"}],
            agent={"name": "a", "version": "1"},
            session="s",
        )
