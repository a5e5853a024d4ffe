"""CCM through the proxy: a client that resends its history is served task, memory and newest observation."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias

import httpx2
import pytest

from forgetless.errors import ConfigError
from forgetless.messages import Message, Text
from forgetless.proxy.settings import Settings
from forgetless.registry import load_dialect
from forgetless.replies.base import Completion
from forgetless.replies.readers import reader
from forgetless.replies.sse import Events
from forgetless.stores.open import open_store
from forgetless.units import text_of
from live import Call, Provider, Said
from sent import KEYS, VALIDATORS, count

Start: TypeAlias = Callable[..., str]
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "anthropic": "/v1/messages"}
KINDS = [(dialect, stream) for dialect in PATHS for stream in (False, True)]
BOTH = pytest.mark.parametrize(("dialect", "stream"), KINDS)
PARAMETERS = {"type": "object", "properties": {"at": {"type": "string"}}}
LOOK = {
    "chat": {"type": "function", "function": {"name": "look", "parameters": PARAMETERS}},
    "responses": {"type": "function", "name": "look", "parameters": PARAMETERS, "strict": False},
    "anthropic": {"name": "look", "input_schema": PARAMETERS},
}
TASK = "Add up the values of all steps."
BUDGET = 4_000

_MEMORY = re.compile(r"<memory>\nsteps=(\d+) total=(\d+)\n</memory>")
_VALUE = re.compile(r"value (\d+) for step (\d+)")


class Adder:
    """A model that adds up values. It knows nothing but what stands in its prompt.

    Attributes:
        knew: for each request the steps and the total that it wrote into its memory.
        spoil: what becomes of the text of a reply, memory included, by the number of the step.
    """

    def __init__(self) -> None:
        self.knew: list[tuple[int, int]] = []
        self.spoil: dict[int, Callable[[str], str]] = {}

    def __call__(self, path: str, body: dict[str, Any]) -> Said:
        dialect = next(name for name, end in PATHS.items() if path.endswith(end))
        text = "\n".join(text_of(p) for m in load_dialect(dialect).parse(body).messages for p in m.parts)
        steps, total = max(((int(a), int(b)) for a, b in _MEMORY.findall(text)), default=(0, 0))
        for value, step in sorted(_VALUE.findall(text), key=lambda pair: int(pair[1])):
            if int(step) == steps + 1:
                steps, total = steps + 1, total + int(value)
        self.knew.append((steps, total))
        said = f"<memory>\nsteps={steps} total={total}\n</memory>\n" + (f"Step {steps} is done." if steps % 3 else "")
        calls: list[Call] = [(f"call_{steps}_{len(self.knew)}", "look", json.dumps({"at": str(steps + 1)}))]
        if steps % 5 == 4:
            calls.append((f"more_{steps}_{len(self.knew)}", "look", json.dumps({"at": "besides"})))
        thought = f"after step {steps}" if dialect == "anthropic" else ""
        return Said(self.spoil.get(steps, str)(said), calls, thought, count(body), len(self.knew))


class Agent:
    """A client that keeps its whole history and sends it each time."""

    def __init__(self, http: httpx2.Client, dialect: str, base: str, stream: bool) -> None:
        self.http, self.dialect, self.base, self.stream = http, dialect, base, stream
        self.history: list[Any] = [{"role": "user", "content": TASK}]
        self.heard: list[bytes] = []
        self.texts: list[str] = []

    def body(self) -> dict[str, Any]:
        more = {"max_tokens": 500} if self.dialect == "anthropic" else {}
        tools = [LOOK[self.dialect]]
        return {"model": "m", **more, "stream": self.stream, "tools": tools, KEYS[self.dialect]: self.history}

    def ask(self) -> Completion:
        """One request; the reply joins the history."""
        path, headers = PATHS[self.dialect], {"authorization": "Bearer k"}
        answer = self.http.post(self.base + path, json=self.body(), headers=headers)
        assert answer.status_code == 200
        self.heard.append(answer.content)
        read = reader(self.dialect)
        if self.stream:
            events = Events()
            for event in [*events.feed(answer.content), *events.rest()]:
                if event.data and event.data != "[DONE]":
                    read.event(event.name, json.loads(event.data))
        else:
            read.body(answer.json())
        done = read.done()
        self.history.extend(done.messages)
        parsed = load_dialect(self.dialect).parse(list(done.messages)).messages
        self.texts.append("".join(p.text for m in parsed for p in m.parts if isinstance(p, Text)))
        return done

    def observe(self, value: int, step: int) -> None:
        """Answer the calls of the last reply; the first one with a value."""
        texts = [f"value {value} for step {step} " + "noise " * 60, "nothing here"]
        calls = [call for message in self.said() for call in message.calls]
        results = [(call.id, text) for call, text in zip(calls, texts, strict=False)]
        if self.dialect == "chat":
            self.history += [{"role": "tool", "tool_call_id": ident, "content": text} for ident, text in results]
        elif self.dialect == "responses":
            self.history += [
                {"type": "function_call_output", "call_id": ident, "output": text} for ident, text in results
            ]
        else:
            blocks = [{"type": "tool_result", "tool_use_id": ident, "content": text} for ident, text in results]
            self.history.append({"role": "user", "content": blocks})

    def said(self) -> list[Message]:
        """The last reply."""
        messages = load_dialect(self.dialect).parse(self.history).messages
        last = next(at for at in reversed(range(len(messages))) if messages[at].role != "assistant" or at == 0)
        return list(messages[last + 1 :])


def turns(agent: Agent, model: Adder, first: int, last: int, values: dict[int, int]) -> None:
    """Steps, every other one streamed, each checked: the model knew the values of all steps before it."""
    for step in range(first, last + 1):
        agent.stream = bool(step % 2)
        agent.ask()
        assert model.knew[-1] == (step - 1, sum(values[n] for n in range(1, step))), step
        agent.observe(values[step], step)


def sizes(provider: Provider) -> list[int]:
    return [count(body) for body in provider.bodies]


def check(provider: Provider, agent: Agent) -> None:
    """What went upstream was valid, and nothing of a memory came back."""
    for body in provider.bodies:
        assert VALIDATORS[agent.dialect](body) == []
    assert not any(b"memory" in heard or b"total=" in heard for heard in agent.heard)


@pytest.fixture
def model(provider: Provider) -> Adder:
    """The provider's model."""
    provider.answer = model = Adder()
    return model


@pytest.fixture
def agent(http: httpx2.Client, start: Start) -> Callable[..., Agent]:
    """A client of a proxy with CCM."""

    def made(dialect: str, stream: bool = False, kept: Any = None, **settings: Any) -> Agent:
        return Agent(http, dialect, start(kept, policy="ccm", **{"budget": BUDGET, **settings}), stream)

    return made


@pytest.mark.parametrize("dialect", PATHS)
def test_fifty_turns_with_a_branch_an_edit_and_a_crash(
    dialect: str, agent: Callable[..., Agent], model: Adder, provider: Provider, tmp_path: Path
) -> None:
    kept = str(tmp_path / "kept.db")
    values = {n: 7 * n % 101 for n in range(1, 60)}
    one = agent(dialect, store=kept)
    turns(one, model, 1, 20, values)
    branch = list(one.history)
    turns(one, model, 21, 25, values)
    one.base = agent(dialect, store=kept).base  # the first proxy says and hears nothing any more
    turns(one, model, 26, 35, values)
    assert max(sizes(provider)) < sizes(provider)[1] + 120, "the prompt is flat"

    main, one.history = one.history, branch
    other = values | {21: 5_000}
    turns(one, model, 21, 23, other)
    one.history = json.loads(json.dumps(main).replace("value 35 for step 5 ", "value 36 for step 5 "))
    turns(one, model, 36, 37, values | {5: 36})
    one.history = main
    turns(one, model, 36, 50, values)
    assert count(one.body()) > BUDGET >= max(sizes(provider))
    check(provider, one)


@pytest.mark.parametrize("dialect", PATHS)
def test_a_reply_without_a_memory_leaves_what_it_knew_in_the_next_prompt(
    dialect: str, agent: Callable[..., Agent], model: Adder, provider: Provider
) -> None:
    values = dict.fromkeys(range(1, 20), 3)
    model.spoil = {
        n + stream: spoil
        for stream in (0, 1)
        for n, spoil in (
            (1, lambda said: "No block here."),
            (4, lambda said: said.replace("</memory>", "")),
            (7, lambda said: "```\n" + said + "```\n"),
        )
    }
    one = agent(dialect)
    turns(one, model, 1, 12, values)
    said = [f"Step {n} is done." if n % 3 else "" for n in range(12)]
    for n in (0, 1):
        said[1 + n] = "No block here."
        said[4 + n] = f"\nsteps={4 + n} total={12 + 3 * n}\n\n" + said[4 + n]
        said[7 + n] = f"```\n<memory>\nsteps={7 + n} total={21 + 3 * n}\n</memory>\n{said[7 + n]}```\n"
    assert one.texts == said


def test_a_client_that_spells_replies_anew_is_served_from_the_same_memory(
    agent: Callable[..., Agent], model: Adder, provider: Provider
) -> None:
    one = agent("anthropic")
    for step in range(1, 9):
        one.ask()
        assert model.knew[-1] == (step - 1, 3 * (step - 1))
        blocks = [block for block in one.history[-1]["content"] if block["type"] != "thinking"]
        one.history[-1]["content"] = [
            {**block, "text": f"  {block['text']}\n"} if block["type"] == "text" else block for block in blocks
        ]
        one.observe(3, step)
    assert max(sizes(provider)[2:]) < sizes(provider)[1] + 120


@pytest.mark.parametrize("settings", [{"store": "none"}, {"contents": False}, {"budget": None}])
def test_neither_a_store_nor_a_budget_is_needed_as_long_as_the_proxy_lives(
    settings: dict[str, Any], agent: Callable[..., Agent], model: Adder, provider: Provider
) -> None:
    one = agent("chat", **settings)
    turns(one, model, 1, 10, dict.fromkeys(range(20), 2))
    assert max(sizes(provider)[2:]) < sizes(provider)[1] + 120


def test_a_long_history_that_no_memory_knows_of_is_sent_as_far_as_it_fits_and_flat_from_then_on(
    agent: Callable[..., Agent], model: Adder, provider: Provider, start: Start
) -> None:
    one = agent("chat", budget=10**6)
    turns(one, model, 1, 30, dict.fromkeys(range(40), 2))
    one.base = start(policy="ccm", budget=1_500)
    one.ask()
    assert 1_500 >= sizes(provider)[-1] > 1_000
    one.observe(2, 31)
    one.ask()
    assert sizes(provider)[-1] < sizes(provider)[1] + 120


def test_branches_at_once_keep_to_their_own_memories(agent: Callable[..., Agent], model: Adder) -> None:
    one, values = agent("chat"), dict.fromkeys(range(1, 20), 1)
    turns(one, model, 1, 4, values)
    other = Agent(one.http, "chat", one.base, False)
    other.history = json.loads(json.dumps(one.history).replace("value 1 for step 4 ", "value 9 for step 4 "))
    for step in range(5, 10):
        for branch, extra in ((one, 0), (other, 8)):
            branch.ask()
            assert model.knew[-1] == (step - 1, step - 1 + extra)
            branch.observe(1, step)


def test_the_ledger_and_the_store_say_what_the_client_saw(
    agent: Callable[..., Agent], model: Adder, provider: Provider, tmp_path: Path
) -> None:
    kept = str(tmp_path / "kept.db")
    one = agent("chat", store=kept)
    turns(one, model, 1, 5, dict.fromkeys(range(9), 1))
    answer = one.http.post(one.base + PATHS["chat"], json=one.body(), headers={"authorization": "Bearer k"})
    head = answer.headers
    assert head["x-forgetless-outcome"] == "compacted"
    path = f"/forgetless/requests/{head['x-forgetless-request-id']}"
    told = one.http.get(one.base + path, headers={"authorization": "Bearer k"}).json()
    assert [row["reason"] for row in told["ledger"]] == ["task", *["memory"] * 4, "open"]
    tools = told["tokens_after"] - sum(row["tokens_after"] for row in told["ledger"])
    assert 0 < tools < 60
    assert told["policy"] == "ccm"
    with closing(open_store(kept)) as store:
        (summary,) = store.conversations()
        (branch,) = store.branches(summary.caller, summary.conversation)
        wires = [node.wire or b"" for node in branch.nodes]
    assert len(wires) == len(one.history) + 1
    assert not any(b"memory" in wire for wire in wires)
    assert 'forgetless_memories_total{outcome="whole"} 6.0' in one.http.get(f"{one.base}/metrics").text


@pytest.mark.parametrize(
    ("template", "made"),
    [
        ("tags", lambda steps, total: f"<memory>\nsteps={steps} total={total}\n</memory>\n\nrun {steps + 1}"),
        (
            "terminal",
            lambda steps, total: json.dumps(
                {"analysis": "hm", "context_window": f"steps={steps} total={total}", "commands": [steps + 1]}
            ),
        ),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_agents_whose_actions_are_text(
    template: str, made: Callable[[int, int], str], stream: bool, agent: Callable[..., Agent], provider: Provider
) -> None:
    knew: list[tuple[int, int]] = []

    def answer(path: str, body: dict[str, Any]) -> Said:
        (message,) = body["messages"]
        steps, total = max(
            ((int(a), int(b)) for a, b in re.findall(r"steps=(\d+) total=(\d+)", message["content"])), default=(0, 0)
        )
        for value, step in _VALUE.findall(message["content"]):
            if int(step) == steps + 1:
                steps, total = steps + 1, total + int(value)
        knew.append((steps, total))
        return Said(made(steps, total), tokens=count(body))

    provider.answer = answer
    one = agent("chat", stream, options={"template": template})
    for step in range(1, 13):
        one.ask()
        assert knew[-1] == (step - 1, 4 * (step - 1))
        one.history.append({"role": "user", "content": f"value 4 for step {step} " + "noise " * 60})
    assert max(sizes(provider)) < sizes(provider)[1] + 60
    assert not any("total" in text for text in one.texts)
    assert TASK in provider.bodies[-1]["messages"][0]["content"]


def test_what_must_stay_over_the_budget_is_sent_or_refused(
    agent: Callable[..., Agent], model: Adder, provider: Provider
) -> None:
    long = [{"role": "user", "content": "add these up: " + "number " * 900}]
    for settings, status, outcome in (
        ({}, 200, "floor"),
        ({"strict": True}, 400, None),
        ({"truncate": True}, 200, "compacted"),
    ):
        one = agent("chat", budget=600, **settings)
        one.history = long
        answer = one.http.post(one.base + PATHS["chat"], json=one.body())
        assert answer.status_code == status
        assert answer.headers.get("x-forgetless-outcome") == outcome
    assert sizes(provider)[0] > 600 >= sizes(provider)[1]
    assert "tokens left out here" in provider.bodies[1]["messages"][0]["content"]


def test_a_history_that_the_provider_holds_is_not_touched_and_its_memory_does_not_leak(
    agent: Callable[..., Agent], model: Adder, provider: Provider
) -> None:
    one = agent("responses")
    answer = one.http.post(one.base + PATHS["responses"], json={**one.body(), "previous_response_id": "resp_0"})
    assert provider.bodies[-1] == {**one.body(), "previous_response_id": "resp_0"}
    assert answer.headers["x-forgetless-outcome"] == "held"
    assert b"memory" not in answer.content


def test_a_reply_too_short_for_a_memory_is_not_asked_for_one(
    agent: Callable[..., Agent], model: Adder, provider: Provider
) -> None:
    one = agent("chat")
    asked = {**one.body(), "max_tokens": 20}
    one.http.post(one.base + PATHS["chat"], json=asked)
    assert provider.bodies[-1] == asked


def test_a_second_try_where_the_provider_takes_less_leaves_out_the_oldest_that_no_memory_knows_of(
    agent: Callable[..., Agent], model: Adder, provider: Provider
) -> None:
    model.spoil = dict.fromkeys(range(3, 9), lambda said: "No block here.")
    one = agent("chat")
    turns(one, model, 1, 8, dict.fromkeys(range(9), 1))
    said = {"error": {"message": "maximum context length is 800 tokens. However, you requested 900 tokens"}}
    provider.answer = lambda path, body: (400, said) if len(provider.seen) == 9 else model(path, body)
    one.ask()
    first, second = provider.bodies[-2:]
    assert count(second) < count(first)
    assert "steps=2 total=2" in second["messages"][0]["content"]
    assert second["messages"][1:] == first["messages"][-len(second["messages"]) + 1 :]


@pytest.mark.parametrize(
    "more", [{"recall": True}, {"shadow": True}, {"options": {"template": "xml"}}, {"options": {"no": 1}}]
)
def test_settings_that_do_not_go_together_are_refused(more: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Settings(upstream="http://127.0.0.1:1", policy="ccm", **more)
    assert Settings(upstream="http://127.0.0.1:1", policy="ccm", options={"limit": 9}).rewrites
