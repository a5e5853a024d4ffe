"""What a terminal agent sends: the task and the newest output always, within a budget, in turns that alternate."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forgetless.errors import BudgetError, ConfigError
from forgetless.integrations.harbor.contexts import UNLIMITED, Rewritten, Steps
from forgetless.policies.base import Context
from forgetless.registry import policy_names
from forgetless.tokens import for_model
from forgetless.units import Unit

MODEL = "gpt-4.1"
SCREEN = "\n\nCurrent terminal state:\n"
TASK = f"Rules, with the name context_window in them.\n\nTask: tidy up.{SCREEN}root@host:/#"
COUNT = for_model(MODEL)


def wire(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def run(steps: int, words: int = 60) -> list[dict[str, Any]]:
    """A history that ends with what the last of so many steps showed."""
    history = [wire("user", TASK)]
    for step in range(steps):
        reply = {"analysis": f"step {step}", "plan": "go on", "commands": [{"keystrokes": f"cat log-{step}.txt\n"}]}
        history += [wire("assistant", json.dumps(reply)), wire("user", f"log-{step}.txt: " + f"word{step} " * words)]
    return history


def tokens(messages: Sequence[dict[str, Any]]) -> int:
    return sum(COUNT.text(str(message["content"])) + 4 for message in messages)


def roles(messages: Sequence[dict[str, Any]]) -> list[str]:
    return [message["role"] for message in messages]


def test_what_fits_is_sent_as_it_is():
    history = run(5)
    history[1]["reasoning_content"] = "what it thought"
    assert Steps(MODEL, "lre", 100_000).prepare(history) == history
    assert Steps(MODEL, "full", UNLIMITED).prepare(run(200)) == run(200)


@settings(max_examples=25)
@given(st.integers(0, 30), st.integers(600, 3_000), st.sampled_from(policy_names()))
def test_requests_are_within_the_budget_and_alternate_from_the_task_to_the_newest_output(steps, budget, policy):
    history = run(steps)
    keeper = Steps(MODEL, policy, budget)
    try:
        sent = keeper.prepare(history)
    except BudgetError:
        assert policy == "full"
        return
    assert tokens(sent) <= keeper.note["tokens"] <= budget
    assert roles(sent) == [("user", "assistant")[at % 2] for at in range(len(sent))]
    assert len(sent) % 2 == 1
    assert sent[0] == history[0]
    assert sent[-1] == history[-1]
    assert all(message in history for message in sent if message["role"] == "assistant")


def test_a_policy_sees_a_reply_and_what_it_showed_as_one_step():
    sent = Steps(MODEL, "masking", 1_500).prepare(run(12))
    masked = [message["content"] for message in sent if "left out" in message["content"]]
    assert masked
    assert all(text.startswith("[result of terminal left out") for text in masked)
    assert len(sent) == len(run(12))  # each reply is still there


def test_between_evictions_a_request_begins_with_the_one_before():
    keeper, before, kept = Steps(MODEL, "lre", 2_000), [], 0
    for steps in range(1, 30):
        sent, evictions = keeper.prepare(run(steps)), keeper.note["evictions"]
        if before and evictions == before[1]:
            assert sent[: len(before[0])] == before[0]
            kept += 1
        keeper.observe("{}", {"prompt_tokens": keeper.note["tokens"]})
        before = [sent, evictions]
    assert kept > 20
    assert evictions > 1


def test_what_a_policy_tells_of_the_task_joins_it():
    class Told:
        lazy = False

        def __call__(self, units: Sequence[Unit], budget: int, query: Unit | None = None) -> Context:
            told = replace(units[0], index=1, at=((1, 0, 1),))
            return Context((units[0], told, units[-1]), (), 0, budget)

    sent = Steps(MODEL, Told(), 10_000).prepare(run(3))
    assert roles(sent) == ["user", "assistant", "user"]
    assert sent[0]["content"] == f"{TASK}\n\n{TASK}"


def test_a_long_output_is_cut_rather_than_the_run_ended():
    history = [*run(3), wire("assistant", "{}"), wire("user", "x1 " * 5_000)]
    sent = Steps(MODEL, "lre", 2_000).prepare(history)
    assert tokens(sent) <= 2_000
    assert "tokens left out here" in sent[-1]["content"]


@pytest.mark.parametrize("made", [Steps, Rewritten])
def test_a_model_of_unknown_window_needs_a_budget(made):
    with pytest.raises(ConfigError, match="'mystery' is not known: give a budget"):
        made("mystery")
    made("mystery", budget=10_000)


def reply(memory: object = None, **more: Any) -> str:
    field = {} if memory is None else {"context_window": memory}
    return json.dumps({**field, "analysis": "a", "plan": "p", "commands": [], **more})


def play(keeper: Rewritten, replies: Sequence[str]) -> list[list[dict[str, Any]]]:
    """The requests of a run in which the model says these things, and one more."""
    history, requests = [wire("user", TASK)], []
    for step, said in enumerate(replies):
        requests.append(keeper.prepare(history))
        history += [wire("assistant", keeper.observe(said, None)), wire("user", f"output {step} " + "word " * 200)]
    return [*requests, keeper.prepare(history)]


def rewritten(**options: Any) -> Rewritten:
    return Rewritten(MODEL, 20_000, screen=SCREEN, **options)


def test_the_prompt_is_one_message_of_task_memory_and_newest_output_and_stays_as_long_as_it_was():
    first, *later = play(rewritten(), [reply(f"done: {step:03}") for step in range(40)])
    assert all(roles(sent) == ["user"] for sent in [first, *later])
    assert "root@host:/#" in first[0]["content"]
    for step, (sent,) in enumerate(later):
        text = sent["content"]
        assert text.count("Task: tidy up.") == 1
        assert f"done: {step:03}\n\noutput {step} word" in text
        assert "root@host:/#" not in text
        assert text.count("output ") == 1
    assert max(map(tokens, later)) - min(map(tokens, later)) <= 2


def test_the_memory_is_taken_out_of_what_the_agent_reads():
    keeper = rewritten()
    keeper.prepare([wire("user", TASK)])
    seen = keeper.observe(reply("port 8081", task_complete=True), None)
    assert json.loads(seen) == json.loads(reply(task_complete=True))
    assert keeper.memory == "port 8081"
    assert keeper.note == {"tokens": keeper.note["tokens"], "memory": "port 8081", "outcome": "whole"}


def test_what_no_memory_knows_of_is_sent_as_well():
    *_, third, last = play(rewritten(), [reply("one"), reply(), "no JSON at all", reply("two")])
    assert roles(third) == ["user", "assistant", "user", "assistant", "user"]
    assert "one\n\noutput 0" in third[0]["content"]
    assert [message["content"] for message in third[1::2]] == [reply(), "no JSON at all"]
    assert roles(last) == ["user"]
    assert "two\n\noutput 3" in last[0]["content"]


def test_the_memory_may_be_changed_line_by_line():
    keeper = rewritten(edits=True)
    play(keeper, [reply("Done: tests\nNext: docs"), json.dumps({"context_window_edit": "- Next:\n+ Next: release"})])
    assert keeper.memory == "Done: tests\nNext: release"


def test_what_does_not_change_is_a_block_of_its_own_with_the_only_mark():
    requests = play(rewritten(marks=True), [reply(f"done: {step}") for step in range(4)])
    static = requests[0][0]["content"][:2]
    for sent in requests:
        (message,) = sent
        assert message["content"][:2] == static
        assert [block.get("cache_control") for block in message["content"]].count({"type": "ephemeral"}) == 1
        assert message["content"][1]["cache_control"]
    assert static[1]["text"].endswith("Task: tidy up.")


def test_without_what_parts_task_and_output_the_first_message_is_the_task():
    first, later = play(Rewritten(MODEL, 20_000), [reply("one")])
    assert first[0]["content"].endswith(TASK)
    assert "root@host:/#" in later[0]["content"]


def test_memory_and_output_of_any_length_are_refused_by_name_where_they_do_not_fit():
    keeper = Rewritten(MODEL, 300, screen=SCREEN)
    with pytest.raises(BudgetError, match="the budget is 300"):
        play(keeper, [reply("word " * 2_000)])
