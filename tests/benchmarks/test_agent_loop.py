"""The loop that all agents run in, with environments small enough to say what happens at each turn."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forgetless.benchmarks.agent_loop import ACT, OVER, PLAIN, Agent, Episode, Limits, play
from forgetless.benchmarks.keepers import EVERY_TURN, UNLIMITED, Keeper, Rewriting, Sessioned
from forgetless.benchmarks.prices import Request
from forgetless.benchmarks.scale import Scale
from forgetless.benchmarks.solvers import MEMORY, scripted
from forgetless.benchmarks.stand_ins import Summariser
from forgetless.benchmarks.validators.chat import validate
from forgetless.environments.base import Start, Step
from forgetless.environments.recall import Recall
from forgetless.errors import ModelError
from forgetless.messages import Message, Text
from forgetless.models.scripted import Scripted
from forgetless.policies.base import Context, assemble
from forgetless.registry import load_rewriter, policy_names
from forgetless.tokens import for_model
from forgetless.units import Unit

COUNTER = for_model()
SMALL = Recall(codes=2, pages=6, distance=2, words=20)


class Echo:
    """Says what was done; `end` ends it, and every `gain` earns a quarter."""

    name = "echo@1"

    def start(self, seed: int) -> Start:
        return Start(f"task {seed}", "it begins")

    def step(self, action: str) -> Step:
        return Step(f"did {action}", 0.25 * (action == "gain"), action == "end", action != "bad")

    def close(self) -> None:
        pass


class Notes:
    """A rewriter of a few lines: the task, the memory behind it, and the newest step."""

    def __init__(self, most: int = 10_000) -> None:
        self.most = most

    def prompt(self, units: Sequence[Unit], memory: str, budget: int) -> Context:
        first, last = units[0], units[-1]
        shown = replace(first.messages[0], parts=(*first.messages[0].parts, Text(f"<memory>{memory}</memory>")))
        made = replace(first, messages=(shown,), tokens=COUNTER.message(shown))
        kept = dict.fromkeys((first.index, last.index), "open")
        return assemble(units, kept, budget, pinned=kept, changed={0: made})

    def absorb(self, reply: Message, memory: str) -> tuple[Message, str]:
        texts = [part for part in reply.parts if isinstance(part, Text)]
        said = "".join(part.text for part in texts)
        rest = tuple(part for part in reply.parts if part not in texts)
        return replace(reply, parts=rest), said.removeprefix("<memory>").removesuffix("</memory>\n")[: self.most]


def call(*actions: str) -> dict[str, Any]:
    """A reply with a call for each action."""
    return {
        "tool_calls": [
            {
                "id": f"c{at}",
                "type": "function",
                "function": {"name": "act", "arguments": json.dumps({"action": action})},
            }
            for at, action in enumerate(actions)
        ]
    }


def whole() -> Sessioned:
    return Sessioned("full", UNLIMITED, COUNTER)


def run(script: Any, *limits: int, **agent: Any) -> tuple[Episode, Scripted]:
    model = Scripted(script)
    return play(Echo(), 7, whole(), Agent(model, Scale(COUNTER), **agent), Limits(*limits or (9,))), model


def recalled(keeper: Keeper, *, seed: int = 1, tools: bool = True, environment: Recall = SMALL) -> Episode:
    model = scripted("recall", COUNTER)
    episode = play(environment, seed, keeper, Agent(model, Scale(COUNTER), tools), Limits(300))
    assert all("Read the pages" in json.dumps(body["messages"]) for body in model.requests)  # the task always stands
    return episode


def test_what_happens_turn_by_turn() -> None:
    episode, model = run([call("gain"), call("bad"), call("end")])
    assert [message["role"] for message in episode.messages] == ["user", *["assistant", "tool"] * 3]
    assert episode.messages[0]["content"] == "task 7\n\nit begins"
    assert [message["content"] for message in episode.messages[2::2]] == ["did gain", "did bad", "did end"]
    assert (episode.reward, episode.actions, episode.invalid, episode.ended) == (0.25, 3, 1, "done")
    assert [body["tools"] for body in model.requests] == [[ACT]] * 3
    assert "seed" not in model.requests[0]
    assert not validate(episode.messages)


def test_every_call_of_a_reply_is_done_in_order_and_answered() -> None:
    episode, _ = run([call("gain", "gain"), call("a", "end", "b")])
    assert [message["content"] for message in episode.messages[2:4]] == ["did gain", "did gain"]
    assert [message["content"] for message in episode.messages[-3:]] == ["did a", "did end", OVER]
    assert (episode.reward, episode.actions) == (0.5, 4)
    assert not validate(episode.messages)


def test_words_in_place_of_a_call_are_taken_as_the_action() -> None:
    function = {"name": "act", "arguments": "no json"}
    odd = {"tool_calls": [{"id": "x", "type": "function", "function": function}]}
    episode, _ = run(["gain", odd, call("end")])
    assert episode.messages[2] == {"role": "user", "content": "did gain"}
    assert episode.messages[4]["content"] == "did no json"
    assert [fault.kind for fault in validate(episode.messages)] == ["arguments_not_json"]  # the model's own


def test_a_model_without_tools_reads_and_writes_plain_turns() -> None:
    episode, model = run(["gain", "end"], tools=False, temperature=0.5)
    assert [message["role"] for message in episode.messages] == ["user", *["assistant", "user"] * 2]
    assert PLAIN in episode.messages[0]["content"]
    assert "tools" not in model.requests[0]
    assert (model.requests[0]["seed"], model.requests[0]["temperature"]) == (7, 0.5)


def test_the_account_is_the_wires() -> None:
    episode, model = run([call("a"), call("b"), call("end")])
    before = 0
    for body, request in zip(model.requests, episode.requests, strict=True):
        counted = Scripted(["x"])(body)["usage"]["prompt_tokens"]
        assert (request.tokens, request.prefix, request.unmarked) == (counted, before, 0)
        before = counted


def test_limits_end_an_episode() -> None:
    episode, _ = run(lambda _: call("go"), 4)
    assert (episode.ended, len(episode.requests)) == ("turns", 4)
    most = sum(request.tokens for request in episode.requests[:2])
    episode, _ = run(lambda _: call("go"), 9, most)
    assert (episode.ended, len(episode.requests)) == ("tokens", 2)


def test_a_refusal_ends_an_episode_and_a_model_out_of_reach_ends_the_run() -> None:
    episode, _ = run([call("gain"), ModelError("too long", status=400)])
    assert (episode.ended, episode.error, episode.reward) == ("refused", "too long", 0.25)
    for status in (None, 429, 503):
        with pytest.raises(ModelError, match="gone"):
            run([call("a"), ModelError("gone", status=status)])


def test_what_cannot_be_brought_within_the_budget_ends_an_episode() -> None:
    episode = recalled(Sessioned("fifo", 60, COUNTER))
    assert (episode.ended, episode.reward) == ("budget", 0)
    assert "what must stay" in episode.error


def test_who_sees_all_recalls_all() -> None:
    episode = recalled(whole())
    assert (episode.reward, episode.ended, episode.invalid) == (1, "done", 0)
    assert len(episode.requests) == 6 + 1 + 2


@pytest.mark.parametrize("tools", [True, False])
def test_an_agent_with_a_memory_recalls_all_in_prompts_that_stay_short(tools: bool) -> None:
    template = "chat" if tools else "tags"
    long = Recall(codes=4, pages=30, distance=2, words=40)
    with_memory = recalled(
        Rewriting(load_rewriter("ccm", template=template), 2_000, COUNTER), tools=tools, environment=long
    )
    full = recalled(whole(), tools=tools, environment=long)
    assert with_memory.reward == full.reward == 1
    sizes = [request.tokens for request in with_memory.requests]
    assert max(sizes) < 1.8 * sizes[1]
    assert full.requests[-1].tokens > 5 * max(sizes)
    assert not any("<memory>" in json.dumps(message) for message in with_memory.messages)
    assert with_memory.memories[-1].count("\n") == 3  # a line for each code


def test_wiped_memory_is_chance() -> None:
    kept = recalled(Rewriting(Notes(), 2_000, COUNTER))
    wiped = recalled(Rewriting(Notes(most=0), 2_000, COUNTER))
    assert kept.reward == 1
    assert wiped.reward == 0
    assert (wiped.ended, len(wiped.requests)) == ("done", len(kept.requests))


def test_a_scripted_memory_is_bounded_and_loses_the_oldest() -> None:
    many = Recall(codes=90, pages=45, distance=0, words=0)
    episode = recalled(Rewriting(load_rewriter("ccm"), 4_000, COUNTER), environment=many)
    sizes = [COUNTER.text(memory) for memory in episode.memories]
    assert MEMORY - 20 < max(sizes) <= MEMORY
    assert 0.5 < episode.reward < 1


def test_of_a_rewritten_prompt_only_what_comes_again_is_marked() -> None:
    episode = recalled(Rewriting(Notes(), 2_000, COUNTER))
    static = episode.requests[1].prefix
    assert 0 < static < episode.requests[1].tokens
    assert episode.requests[0] == replace(episode.requests[0], prefix=0, unmarked=episode.requests[0].tokens - static)
    assert all(request.prefix == static == request.tokens - request.unmarked for request in episode.requests[1:])


def test_what_a_policy_asks_of_a_model_is_counted() -> None:
    environment = Recall(codes=4, pages=30, distance=2, words=40)
    keeper = Sessioned("summary", 800, COUNTER, summariser=Summariser())
    assert recalled(keeper, environment=environment).compressor_calls > 0
    assert recalled(Sessioned("fifo", 800, COUNTER), environment=environment).compressor_calls == 0


@given(
    st.sampled_from([*policy_names(), f"bm25{EVERY_TURN}"]), st.integers(350, 1_500), st.integers(0, 99), st.booleans()
)
@settings(max_examples=25)
def test_under_every_policy_prompts_stay_within_the_budget(policy: str, budget: int, seed: int, tools: bool) -> None:
    keeper = Sessioned(policy, budget, COUNTER)
    episode = recalled(keeper, seed=seed, tools=tools, environment=Recall(codes=4, pages=16, distance=2, words=40))
    assert all(request.tokens <= budget for request in episode.requests)
    assert episode.ended == "done" or (policy == "full" and episode.ended == "budget")
    assert not validate(episode.messages)
    assert 0 <= episode.reward <= 1
    before = Request(0, 0, 0)
    for request in episode.requests:
        assert request.prefix <= min(before.tokens, request.tokens)
        before = request
