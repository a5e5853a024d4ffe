"""A model that reads back what was left out: the SDKs that people have see one reply, whatever went on behind it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from secrets import token_hex
from typing import Any, TypeAlias

import anthropic
import httpx2
import openai
import pytest
from starlette.responses import StreamingResponse

from forgetless.errors import ConfigError
from forgetless.proxy.app import build
from forgetless.proxy.rounds import ROUNDS
from forgetless.proxy.settings import Settings
from forgetless.stores.inmemory import InMemory
from live import Call, Provider, Said, events, reply, serving
from sent import KEYS, VALIDATORS, count, pieces

BUDGET = 4000
Start: TypeAlias = Callable[..., str]
DIALECTS = ["chat", "responses", "anthropic"]
KINDS = [(dialect, stream) for dialect in DIALECTS for stream in (False, True)]
BOTH = pytest.mark.parametrize(("dialect", "stream"), KINDS)

PARAMETERS = {"type": "object", "properties": {"at": {"type": "string"}}}
LOOK = {
    "chat": {"type": "function", "function": {"name": "look", "parameters": PARAMETERS}},
    "responses": {"type": "function", "name": "look", "parameters": PARAMETERS, "strict": False},
    "anthropic": {"name": "look", "input_schema": PARAMETERS},
}


@dataclass
class Heard:
    """A reply as an SDK gives it, and what its user keeps of it."""

    text: str
    calls: list[Call]
    finish: str
    tokens: tuple[int, int]
    keeps: list[Any]
    headers: Any


class Client:
    """A client of any dialect, streaming or not."""

    def __init__(self, http: httpx2.Client, dialect: str, base: str, stream: bool, more: dict[str, Any]) -> None:
        self.dialect, self.stream, self.more = dialect, stream, more
        self._headers: list[Any] = []
        http.event_hooks = {"response": [lambda response: self._headers.append(response.headers)]}
        given: dict[str, Any] = {"api_key": token_hex(8), "http_client": http, "max_retries": 0}
        self._sdk: Any = (
            anthropic.Anthropic(base_url=base, **given)
            if dialect == "anthropic"
            else openai.OpenAI(base_url=f"{base}/v1", **given)
        )

    def ask(self, history: list[Any]) -> Heard:
        heard: Heard = getattr(self, f"_{self.dialect}")(self._sdk, history)
        heard.headers = self._headers[-1]
        return heard

    def _chat(self, client: openai.OpenAI, history: list[Any]) -> Heard:
        asked: dict[str, Any] = {"model": "m", "messages": history, **self.more}
        if self.stream:
            with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as events:
                done: Any = events.get_final_completion()
        else:
            done = client.chat.completions.create(**asked)
        (choice,) = done.choices
        calls = [(c.id, c.function.name, c.function.arguments) for c in choice.message.tool_calls or ()]
        kept = choice.message.model_dump(include={"role", "content", "tool_calls"}, exclude_none=True)
        for call in kept.get("tool_calls", ()):
            call["function"].pop("parsed_arguments", None)
            call.pop("index", None)
        tokens = (done.usage.prompt_tokens, done.usage.completion_tokens)
        return Heard(choice.message.content or "", calls, choice.finish_reason, tokens, [kept], None)

    def _responses(self, client: openai.OpenAI, history: list[Any]) -> Heard:
        asked: dict[str, Any] = {"model": "m", "input": history, **self.more}
        if self.stream:
            with client.responses.stream(**asked) as events:
                done: Any = events.until_done().get_final_response()
        else:
            done = client.responses.create(**asked)
        calls = [(i.call_id, i.name, i.arguments) for i in done.output if i.type == "function_call"]
        kept = [i.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for i in done.output]
        tokens = (done.usage.input_tokens, done.usage.output_tokens)
        text = "\n\n".join(i.content[0].text for i in done.output if i.type == "message")
        return Heard(text, calls, done.status, tokens, kept, None)

    def _anthropic(self, client: anthropic.Anthropic, history: list[Any]) -> Heard:
        asked: dict[str, Any] = {"model": "m", "max_tokens": 500, "messages": history, **self.more}
        if self.stream:
            with client.messages.stream(**asked) as events:
                done: Any = events.get_final_message()
        else:
            done = client.messages.create(**asked)
        calls = [(b.id, b.name, json.dumps(b.input)) for b in done.content if b.type == "tool_use"]
        kept = {"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in done.content]}
        used = done.usage
        tokens = (used.input_tokens + used.cache_read_input_tokens, used.output_tokens)
        text = "\n\n".join(b.text for b in done.content if b.type == "text")
        return Heard(text, calls, done.stop_reason, tokens, [kept], None)


Connect: TypeAlias = Callable[..., Client]


@pytest.fixture(scope="module")
def recalling(_served: tuple[Provider, str]) -> Iterator[str]:
    """A proxy that recalls."""
    settings = Settings(upstream=_served[1], budget=BUDGET, policy="fifo", store="memory", recall=True)
    with serving(build(settings)) as base:
        yield base


@pytest.fixture
def connect(recalling: str, start: Start, http: httpx2.Client) -> Connect:
    """Points a client of a dialect at a proxy that recalls: one for all, or one with settings of its own."""

    def made(dialect: str, *, stream: bool = False, more: Any = None, store: Any = None, **settings: Any) -> Client:
        given = {"budget": BUDGET, "recall": True, **settings}
        base = start(store, **given) if settings or store is not None else recalling
        return Client(http, dialect, base, stream, more or {})

    return made


def note(n: int) -> str:
    return f"Note {n}: the code of shelf {n} is ZX-{n * 7}. " + f"dust{n} " * 75


def history(turns: int = 28) -> list[Any]:
    said: list[Any] = []
    for n in range(turns):
        said += [{"role": "user", "content": note(n)}, {"role": "assistant", "content": f"Noted {n}. " + "yes " * 20}]
    return [*said, {"role": "user", "content": "Which code has shelf 3?"}]


def recall(ident: str = "r1", **arguments: Any) -> Call:
    return (ident, "recall", json.dumps(arguments))


def script(provider: Provider, *saids: Any) -> list[Any]:
    """Have a provider say these things one after the other; hands on those still to be said."""
    left = list(saids)

    def say(_: str, body: dict[str, Any]) -> Any:
        said = left.pop(0) if left else Said("done", n=99)
        if not isinstance(said, Said):
            return said
        return Said(said.text, said.calls, said.thinking, count(body), len(provider.seen))

    provider.answer = say
    return left


def names(body: Any) -> list[str]:
    return [tool.get("name") or tool["function"]["name"] for tool in body.get("tools", ())]


def told(body: Any) -> str:
    """What a provider reads."""
    return json.dumps(body.get("messages", body.get("input")), ensure_ascii=False)


def sound(provider: Provider, dialect: str, budget: int = BUDGET) -> list[Any]:
    """All that was sent, each valid, within the budget, and the start of what was sent after it."""
    bodies = provider.bodies
    for body in bodies:
        assert VALIDATORS[dialect](body) == []
        assert count(body) <= budget
    return bodies


def grown(provider: Provider, dialect: str) -> None:
    """Each request begins with the whole of the one before, tools included unless it is the last."""
    key = KEYS[dialect]
    for before, now in pairwise(provider.seen):
        start = pieces(before[1], key)
        assert pieces(now[1], key)[: len(start)] == start


FINISH = {"chat": ("stop", "tool_calls"), "responses": ("completed",) * 2, "anthropic": ("end_turn", "tool_use")}


@pytest.mark.parametrize("kind", [(*kind, text) for kind in KINDS for text in ("", "Let me look.")])
def test_what_is_asked_for_is_answered_behind_the_reply(
    kind: tuple[str, bool, str], provider: Provider, store: InMemory, connect: Connect
) -> None:
    dialect, stream, text = kind
    client = connect(dialect, stream=stream, store=store)
    thinking = "" if dialect == "chat" else "hm"
    script(provider, Said(text, [recall(ids=[6])], thinking), Said("It is ZX-21.", (), thinking))
    said = history()
    heard = client.ask(said)
    first, second = sound(provider, dialect)
    grown(provider, dialect)
    assert names(first) == names(second) == ["recall"]
    assert first["tools"] == second["tools"], "the provider's cache holds"
    assert note(3) not in told(first)
    assert note(3) in told(second)
    assert heard.text == (f"{text}\n\n" if text else "") + "It is ZX-21."
    assert (heard.calls, heard.finish) == ([], FINISH[dialect][0])
    assert heard.tokens == (count(first) + count(second), 4)
    assert stream or heard.headers["x-forgetless-recalled"] == "6"
    assert int(heard.headers["x-forgetless-tokens-after"]) == pytest.approx(count(first), abs=3)

    said = [*said, *heard.keeps, {"role": "user", "content": "Thanks."}]
    script(provider, Said("Welcome."))
    client.ask(said)
    assert "recall" not in told(provider.bodies[-1])
    assert store.check() == []
    (summary,) = store.conversations()
    assert (summary.requests, summary.messages) == (2, len(said) + 1)


@BOTH
def test_a_call_beside_the_clients_own_comes_true_in_the_next_request(
    dialect: str, stream: bool, provider: Provider, connect: Connect
) -> None:
    client = connect(dialect, stream=stream, more={"tools": [LOOK[dialect]]})
    look = ("l1", "look", '{"at": "3"}')
    script(provider, Said("I look.", [recall(ids=[6, 8]), look]), Said("So."), Said("So it is."))
    said = history()
    heard = client.ask(said)
    assert len(provider.seen) == 1
    assert [(i, name, json.loads(given)) for i, name, given in heard.calls] == [("l1", "look", {"at": "3"})]
    assert heard.finish == FINISH[dialect][1]
    said = [*said, *heard.keeps, result(dialect, "l1", "nothing there")]
    heard = client.ask(said)
    first, second = sound(provider, dialect)
    assert names(first) == names(second) == ["look", "recall"]
    assert note(3) not in told(first)
    assert {"role": "user", "content": note(3)} in second[KEYS[dialect]]
    assert {"role": "user", "content": note(4)} in second[KEYS[dialect]]
    assert "r1" not in told(second)
    client.ask([*said, *heard.keeps, {"role": "user", "content": "Thanks."}])
    sound(provider, dialect)
    grown_last = pieces(provider.seen[1][1], KEYS[dialect])
    assert pieces(provider.seen[2][1], KEYS[dialect])[: len(grown_last)] == grown_last


def result(dialect: str, ident: str, text: str) -> Any:
    if dialect == "chat":
        return {"role": "tool", "tool_call_id": ident, "content": text}
    if dialect == "responses":
        return {"type": "function_call_output", "call_id": ident, "output": text}
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": ident, "content": text}]}


@BOTH
@pytest.mark.parametrize("own", [False, True])
def test_there_is_no_loop(dialect: str, stream: bool, own: bool, provider: Provider, connect: Connect) -> None:
    more = {"tools": [LOOK[dialect]]} if own else {}
    client = connect(dialect, stream=stream, more=more)
    left = script(provider, *(Said(f"again {n}", [recall(f"r{n}", ids=[n])]) for n in range(9)))
    heard = client.ask(history())
    bodies = sound(provider, dialect)
    grown(provider, dialect)
    assert len(bodies) == ROUNDS == 9 - len(left)
    assert heard.calls == []
    assert heard.finish == FINISH[dialect][0]
    assert heard.text.startswith("again 0")
    last = bodies[-1]
    if own or dialect != "anthropic":
        assert names(last) == (["look"] if own else [])
    else:
        assert last["tool_choice"] == {"type": "none"}
    assert heard.tokens == (sum(map(count, bodies)), 2 * ROUNDS)


@BOTH
def test_several_calls_wrong_ids_and_a_query(dialect: str, stream: bool, provider: Provider, connect: Connect) -> None:
    client = connect(dialect, stream=stream)
    calls = [recall("a", ids=[999]), recall("b", query="shelf ZX-35"), recall("c")]
    script(provider, Said("", calls), Said("It is ZX-35."))
    assert client.ask(history()).text == "It is ZX-35."
    _, second = sound(provider, dialect)
    assert note(5) in told(second)
    assert "Not among what was left out: 999." in told(second)
    assert "Give `ids`" in told(second)


@BOTH
def test_a_round_that_the_provider_refuses_costs_the_client_nothing(
    dialect: str, stream: bool, provider: Provider, connect: Connect
) -> None:
    client = connect(dialect, stream=stream)
    refusal = (400, {"type": "error", "error": {"type": "invalid_request_error", "message": "no such thing"}})
    script(provider, Said("", [recall(ids=[6])]), refusal, Said("I don't know."))
    assert client.ask(history()).text == "I don't know."
    first, _, plain = sound(provider, dialect)
    assert "tools" not in plain
    assert told(plain) == told(first)


@BOTH
def test_an_error_of_the_provider_in_a_later_round_reaches_the_client(
    dialect: str, stream: bool, provider: Provider, connect: Connect
) -> None:
    client = connect(dialect, stream=stream)
    away = (529, {"type": "error", "error": {"type": "overloaded_error", "message": "too much to do"}})
    script(provider, Said("", [recall(ids=[6])]), away)
    with pytest.raises((openai.APIError, anthropic.APIError), match="too much to do"):
        client.ask(history())
    assert len(provider.seen) == 2


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_long_part_is_cut_to_the_room_that_there_is(dialect: str, provider: Provider, connect: Connect) -> None:
    client = connect(dialect)
    said = history()
    said[4] = {"role": "user", "content": "begin " + "long " * 9_000 + "finis"}
    script(provider, Said("", [recall(ids=[4])]), Said("", [recall("r2", ids=[4, 6])]), Said("That is all."))
    assert client.ask(said).text == "That is all."
    bodies = sound(provider, dialect)
    assert "tokens left out here" in told(bodies[1])
    assert "begin long" in told(bodies[1])
    assert "long finis" in told(bodies[1])
    assert count(bodies[1]) > BUDGET - 100, "all the room is used"
    assert "tools" not in bodies[2], "no room is left for another round, so the tool is gone"
    assert told(bodies[2]) == told(bodies[0])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_offer_stays_the_same_between_evictions(dialect: str, provider: Provider, connect: Connect) -> None:
    client = connect(dialect, more={"tools": [LOOK[dialect]]})
    script(provider)
    said: list[Any] = []
    heads = []
    for n in range(40):
        said.append({"role": "user", "content": note(n)})
        heard = client.ask(said)
        said += heard.keeps
        heads.append(heard.headers)
    bodies = sound(provider, dialect)
    evictions = tools_changed = offered = 0
    key = KEYS[dialect]
    for (before, now), headers in zip(pairwise(bodies), heads[1:], strict=True):
        same = now[key][: len(before[key])] == before[key]
        evictions += not same
        tools_changed += before["tools"] != now["tools"]
        offered += "recall" in names(now)
        assert (before["tools"] == now["tools"]) == same, "the tool changes with what was left out, and never else"
        reused = int(headers["x-forgetless-tokens-reused"])
        assert reused == (pytest.approx(count(before), abs=4) if same else 0)
    assert 2 <= evictions == tools_changed <= 12
    assert offered > 15


def test_under_the_budget_and_where_it_cannot_be_offered_nothing_changes(provider: Provider, connect: Connect) -> None:
    script(provider)
    assert connect("chat").ask(history(10)).headers["x-forgetless-outcome"] == "unchanged"
    clash = {"type": "function", "function": {"name": "recall", "parameters": PARAMETERS}}
    connect("chat", more={"tools": [clash]}).ask(history())
    connect("chat", shadow=True).ask(history())
    connect("chat", budget=100).ask([{"role": "user", "content": "w " * 300}])
    assert [names(body) for body in provider.bodies] == [[], ["recall"], [], []]
    assert provider.bodies[1]["tools"] == [clash]


def test_a_model_that_calls_no_tools_is_offered_none() -> None:
    with pytest.raises(ConfigError, match="calls none"):
        Settings(upstream="embedded", recall=True)


@BOTH
def test_a_call_of_a_tool_that_was_not_offered_is_the_clients(
    dialect: str, stream: bool, provider: Provider, connect: Connect
) -> None:
    for on, turns in ((True, 3), (False, 28)):
        script(provider, Said("", [recall(ids=[6])]))
        heard = connect(dialect, stream=stream, recall=on).ask(history(turns))
        assert [name for _, name, _ in heard.calls] == ["recall"]


def test_what_a_model_wanted_is_no_reason_to_fail(provider: Provider, connect: Connect) -> None:
    client = connect("chat", more={"tools": [LOOK["chat"]]})
    look = ("l1", "look", "{}")
    script(provider, Said("", [recall(ids=[6, 8, 10]), look]), Said("So."))
    said = history()
    heard = client.ask(said)
    said = [*said, *heard.keeps, result("chat", "l1", "found " * 3_350)]
    heard = client.ask(said)
    assert heard.headers["x-forgetless-outcome"] == "compacted"
    sound(provider, "chat")


def test_later_counts_are_corrected_by_the_first_round_alone(provider: Provider, connect: Connect) -> None:
    client = connect("chat")
    script(provider, *(Said("", [recall(ids=[6])]), Said("It is ZX-21.")) * 3)
    said = history()
    for _ in range(3):
        heard = client.ask(said)
        said = [*said, *heard.keeps, {"role": "user", "content": "And again?"}]
    bodies = sound(provider, "chat")
    firsts = bodies[::2]
    assert all(now["messages"][:5] == firsts[0]["messages"][:5] for now in firsts), "no eviction for a wrong count"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_reply_that_breaks_off_is_no_call(
    dialect: str, provider: Provider, recalling: str, http: httpx2.Client
) -> None:
    """Cut short by the provider's limit, a call is out of the reply and answered by nobody."""
    whole = {
        "chat": {"choices": [{"index": 0, "finish_reason": "length", "message": {"role": "assistant", "content": "Hm",
                 "tool_calls": [{"id": "a", "type": "function", "function": {"name": "recall", "arguments": "{"}}]}}]},
        "responses": {"id": "r", "status": "incomplete", "output": [{"type": "function_call", "id": "fc_a", "name":
                      "recall", "call_id": "a", "arguments": '{"id'}], "incomplete_details": {"reason": "max"}},
        "anthropic": {"type": "message", "role": "assistant", "stop_reason": "max_tokens", "content": [
            {"type": "text", "text": "Hm"}, {"type": "tool_use", "id": "a", "name": "recall", "input": {}}]},
    }[dialect]  # fmt: skip
    path = {"chat": "chat/completions", "responses": "responses", "anthropic": "messages"}[dialect]
    script(provider, whole)
    said = http.post(f"{recalling}/v1/{path}", json={"model": "m", KEYS[dialect]: history()})
    assert len(provider.seen) == 1
    assert "recall" not in said.text
    assert ("Hm" in said.text) == (dialect != "responses")
    assert said.headers["x-forgetless-outcome"] == "compacted"


def test_a_client_that_leaves_in_a_later_round_ends_it(provider: Provider, recalling: str, http: httpx2.Client) -> None:
    ended = threading.Event()

    async def second() -> AsyncIterator[str]:
        try:
            async for event in events(reply("/chat/completions", Said("It is"), stream=True)[:-3]):
                yield event
            await asyncio.Event().wait()
        finally:
            ended.set()

    script(provider, Said("I look.", [recall(ids=[6])]), StreamingResponse(second(), media_type="text/event-stream"))
    asked = {"model": "m", "messages": history(), "stream": True}
    heard = ""
    with http.stream("POST", f"{recalling}/v1/chat/completions", json=asked) as answer:
        for text in answer.iter_text():
            heard += text
            if "It is" in heard:
                break
    assert ended.wait(10)
