"""The SDKs that people have, pointed at the proxy by `base_url`: whole agent loops under a small budget."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from forgetless.stores.inmemory import InMemory
from live import Provider, Said
from sent import KEYS, check, count, pieces, subsequence

BUDGET = 1200
TURNS, STEPS = 3, 6

PARAMETERS = {
    "type": "object",
    "properties": {"at": {"type": "string"}},
    "required": ["at"],
    "additionalProperties": False,
}
KINDS = [("bm25", False), ("masking", True)]


@dataclass
class Watch:
    """An HTTP client that keeps what an SDK sends and the headers that it gets."""

    sent: list[bytes] = field(default_factory=list)
    headers: list[httpx2.Headers] = field(default_factory=list)

    def client(self) -> httpx2.Client:
        def asked(request: httpx2.Request) -> None:
            self.sent.append(request.read())

        def answered(response: httpx2.Response) -> None:
            self.headers.append(response.headers)

        return httpx2.Client(event_hooks={"request": [asked], "response": [answered]})


@dataclass
class Script:
    """A model that looks things up for five steps, two at once now and then, and then speaks."""

    thinks: bool = False
    said: list[Said] = field(default_factory=list)

    def __call__(self, path: str, body: dict[str, Any]) -> Said:
        n = len(self.said)
        calls = [(f"call_{n}_{k}", "look", json.dumps({"at": f"shelf {n}, é {k}"})) for k in range(1 + n % 3 // 2)]
        if n % STEPS == STEPS - 1:
            calls = []
        thinking = f"I wonder about {n}" if self.thinks else ""
        said = Said("" if calls and n % 2 else f"Step {n}.", calls, thinking, count(body), n)
        self.said.append(said)
        return said


def seen(ident: str) -> str:
    """What the tool finds: long, and different each time."""
    return f"found {ident}: " + " ".join(f"{ident}-{n}" for n in range(30))


def told(turn: int) -> str:
    return f"Task {turn}: count the books about topic {turn}. “Mind the dust.”"


def said_by_provider(script: Script) -> list[tuple[str, list[tuple[str, str, Any]]]]:
    return [(one.text, [(i, name, json.loads(given)) for i, name, given in one.calls]) for one in script.said]


Heard = list[tuple[str, list[tuple[str, str, Any]]]]


def chat_agent(client: openai.OpenAI, stream: bool) -> tuple[list[Any], Heard]:
    tool = {"type": "function", "function": {"name": "look", "strict": True, "parameters": PARAMETERS}}
    messages: list[Any] = [{"role": "system", "content": "You are a librarian."}]
    heard: Heard = []
    for turn in range(TURNS):
        messages.append({"role": "user", "content": told(turn)})
        while True:
            asked: dict[str, Any] = {"model": "m", "messages": messages, "tools": [tool]}
            if stream:
                with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as events:
                    done: Any = events.get_final_completion()
                assert done.usage.completion_tokens == 2
            else:
                done = client.chat.completions.create(**asked)
            message = done.choices[0].message
            calls = [(c.id, c.function.name, c.function.arguments) for c in message.tool_calls or ()]
            kept: dict[str, Any] = {"role": "assistant", "content": message.content}
            if calls:
                kept["tool_calls"] = [
                    {"id": i, "type": "function", "function": {"name": name, "arguments": given}}
                    for i, name, given in calls
                ]
            messages.append(kept)
            heard.append((message.content or "", [(i, name, json.loads(given)) for i, name, given in calls]))
            if not calls:
                break
            messages += [{"role": "tool", "tool_call_id": i, "content": seen(i)} for i, _, _ in calls]
    return messages, heard


def responses_agent(client: openai.OpenAI, stream: bool) -> tuple[list[Any], Heard]:
    tool = {"type": "function", "name": "look", "strict": True, "parameters": PARAMETERS}
    items: list[Any] = []
    heard: Heard = []
    for turn in range(TURNS):
        items.append({"role": "user", "content": told(turn)})
        while True:
            asked: dict[str, Any] = {
                "model": "m",
                "input": items,
                "tools": [tool],
                "instructions": "You are a librarian.",
            }
            if stream:
                with client.responses.stream(**asked) as events:
                    done: Any = events.until_done().get_final_response()
            else:
                done = client.responses.create(**asked, store=False)
            calls = [item for item in done.output if item.type == "function_call"]
            items += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in done.output]
            heard.append((done.output_text, [(c.call_id, c.name, json.loads(c.arguments)) for c in calls]))
            if not calls:
                break
            items += [{"type": "function_call_output", "call_id": c.call_id, "output": seen(c.call_id)} for c in calls]
    return items, heard


def anthropic_agent(client: anthropic.Anthropic, stream: bool) -> tuple[list[Any], Heard]:
    tool = {"name": "look", "input_schema": PARAMETERS}
    messages: list[Any] = []
    heard: Heard = []
    for turn in range(TURNS):
        messages.append({"role": "user", "content": [{"type": "text", "text": told(turn)}]})
        while True:
            asked: dict[str, Any] = {
                "model": "m",
                "max_tokens": 2048,
                "messages": marked(messages),
                "tools": [tool],
                "system": [{"type": "text", "text": "You are a librarian.", "cache_control": {"type": "ephemeral"}}],
                "thinking": {"type": "enabled", "budget_tokens": 1024},
            }
            if stream:
                with client.messages.stream(**asked) as events:
                    done: Any = events.get_final_message()
            else:
                done = client.messages.create(**asked)
            calls = [block for block in done.content if block.type == "tool_use"]
            messages.append({"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in done.content]})
            text = "".join(block.text for block in done.content if block.type == "text")
            heard.append((text, [(c.id, c.name, c.input) for c in calls]))
            if not calls:
                break
            results = [{"type": "tool_result", "tool_use_id": c.id, "content": seen(c.id)} for c in calls]
            messages.append({"role": "user", "content": results})
    return messages, heard


def marked(messages: list[Any]) -> list[Any]:
    """With the cache mark on the last block of the last two user messages, as clients move it along."""
    copy = json.loads(json.dumps(messages))
    for message in [message for message in copy if message["role"] == "user"][-2:]:
        message["content"][-1]["cache_control"] = {"type": "ephemeral"}
    return list(copy)


def made(dialect: str, base: str, http: httpx2.Client) -> Any:
    if dialect == "anthropic":
        return anthropic.Anthropic(base_url=base, api_key="secret", http_client=http)
    return openai.OpenAI(base_url=f"{base}/v1", api_key="secret", http_client=http)


AGENTS: dict[str, Callable[[Any, bool], tuple[list[Any], Heard]]] = {
    "chat": chat_agent,
    "responses": responses_agent,
    "anthropic": anthropic_agent,
}


@pytest.mark.parametrize("kind", [(dialect, *kind) for dialect in AGENTS for kind in KINDS])
def test_a_whole_agent_run(
    kind: tuple[str, str, bool], provider: Provider, store: InMemory, start: Callable[..., str]
) -> None:
    dialect, policy, stream = kind
    base = start(store, budget=BUDGET, policy=policy)
    script = Script(thinks=dialect != "chat")
    provider.answer = script
    watch = Watch()
    with watch.client() as http:
        history, heard = AGENTS[dialect](made(dialect, base, http), stream)
        ledgers = [
            http.get(
                f"{base}/forgetless/requests/{told['x-forgetless-request-id']}",
                headers={"authorization": "Bearer secret"},
            ).json()
            for told in watch.headers[: TURNS * STEPS]
        ]
    assert heard == said_by_provider(script), "the client hears what the provider said"
    pairs = list(zip(watch.sent, (data for _, data, _ in provider.seen), strict=False))
    assert len(pairs) == len(provider.seen) == TURNS * STEPS

    evictions = check(pairs, dialect, BUDGET, selects=policy != "masking")
    outcomes = [told["x-forgetless-outcome"] for told in watch.headers[: len(pairs)]]
    assert "compacted" in outcomes
    assert 1 <= evictions <= TURNS * STEPS // 3, "evictions come in batches"
    assert all(int(told["x-forgetless-tokens-after"]) <= BUDGET for told in watch.headers[: len(pairs)])

    stored(store, history, dialect, len(pairs))
    for (came, went), ledger in zip(pairs, ledgers, strict=True):
        accounted(ledger, came, went, dialect)


def stored(store: InMemory, history: list[Any], dialect: str, requests: int) -> None:
    """One conversation in the store, each of its messages once and as the client has it."""
    assert store.check() == []
    (summary,) = store.conversations()
    said = [message for message in history if message.get("role") != "system"]
    assert (summary.messages, summary.requests, summary.dialect) == (len(said), requests, dialect)
    (branch,) = store.branches(summary.caller, summary.conversation)
    kept = [json.loads(node.wire or b"") for node in branch.nodes]
    assert [read(message) for message in kept] == [read(message) for message in said]
    assert len(branch.exchanges) == requests
    assert [json.loads(text) for text in branch.system] == [
        {"chat": {"role": "system", "content": "You are a librarian."}}.get(dialect, json.loads(branch.system[0]))
    ]
    assert all(one.input_tokens and one.cached_tokens == 5 and one.output_tokens == 2 for one in branch.exchanges)


def read(message: Any) -> Any:
    """A message, less what says nothing: cache marks and fields without a value."""
    if isinstance(message, dict):
        empty = (None, [], "")
        return {n: read(v) for n, v in message.items() if n not in ("cache_control", "logprobs") and v not in empty}
    return [read(inner) for inner in message] if isinstance(message, list) else message


def accounted(ledger: Any, came: bytes, went: bytes, dialect: str) -> None:
    """Every message stands in the ledger, and its figures are those of what went."""
    entries = ledger["ledger"]
    listed = len(pieces(came, KEYS[dialect]))
    named = {index for entry in entries for index in entry["messages"]}
    assert named == set(range(0 if dialect == "chat" else -1, listed))
    assert (ledger["tokens_before"], ledger["tokens_after"]) == (count(json.loads(came)), count(json.loads(went)))
    sums = [sum(entry[side] for entry in entries) for side in ("tokens_before", "tokens_after")]
    assert sums[0] - sums[1] == ledger["tokens_before"] - ledger["tokens_after"]
    gone = {index for entry in entries if entry["form"] == "omitted" for index in entry["messages"]}
    stays = {index for entry in entries if entry["form"] != "omitted" for index in entry["messages"]}
    assert len(pieces(went, KEYS[dialect])) == len([index for index in stays if index >= 0])
    assert all(entry["reason"] for entry in entries)
    assert ledger["status"] == 200
    assert bool(gone) <= (ledger["outcome"] == "compacted")


ODD = [
    r'{ "role":"user" , "content":"Read shelf \u0034\u00e9 \ud83d\ude00", "weight": 1e5, "z": -0.0, "a": 1.50 }',
    r'{"content":"\/ok\u2028","role":"assistant","big":123456789012345678901234567890}',
    r'{"role":"user","role":"user","content":[{"text":"more\u0020words","type":"text"}],"n":1E+2}',
]


def test_kept_messages_are_sent_byte_for_byte(
    provider: Provider, start: Callable[..., str], http: httpx2.Client
) -> None:
    base = start(budget=400)
    provider.answer = lambda _, body: Said("yes", tokens=count(body))
    texts: list[str] = []
    pairs = []
    for turn in range(40):
        texts += [ODD[0].replace("Read", f"Read {turn} times"), ODD[1]] if turn % 2 else [ODD[2], ODD[1]]
        listed = " ,\n".join(texts[:-1])
        body = f'{{"temperature": 1e0,"messages" : [ {listed} ],\t"model":"\\u006d","seed":10E1}}'.encode()
        assert http.post(f"{base}/v1/chat/completions", content=body).status_code == 200
        pairs.append((body, provider.seen[-1][1]))
    assert pairs[3][0] == pairs[3][1]
    assert pairs[-1][0] != pairs[-1][1]
    assert check(pairs, "chat", 400) >= 2


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/chat/completions", "/openai/v1/chat/completions"])
def test_what_follows_the_address_may_be_said_on_either_side(
    path: str, provider: Provider, start: Callable[..., str], http: httpx2.Client, upstream: str
) -> None:
    base = start(upstream=f"{upstream}/v1")
    said = http.post(base + path, json={"model": "m", "messages": [{"role": "user", "content": "hi"}]})
    assert said.headers["x-forgetless-outcome"] == "unchanged"
    assert provider.seen[-1][0] == f"/v1{path.removeprefix('/v1')}"


def test_halves_of_surrogate_pairs_change_no_byte_of_the_other_messages(
    provider: Provider, start: Callable[..., str], http: httpx2.Client
) -> None:
    base = start(budget=400)
    texts = [r'{"role":"user","content":"cut emoji \ud83d"}', ODD[1]]
    for turn in range(30):
        texts += [ODD[0].replace("Read", f"Read {turn} times"), ODD[1]]
    body = f'{{"model":"m","messages":[{",".join(texts[:-1])}]}}'.encode()
    said = http.post(f"{base}/v1/chat/completions", content=body)
    assert said.headers["x-forgetless-outcome"] == "compacted"
    went = provider.seen[-1][1]
    assert subsequence(pieces(went), [text.encode() for text in texts])
    assert len(pieces(went)) < len(texts) - 1


@pytest.mark.parametrize("path", ["chat/completions", "responses", "messages"])
def test_a_stream_comes_as_the_provider_sent_it(
    path: str, provider: Provider, start: Callable[..., str], http: httpx2.Client, upstream: str
) -> None:
    provider.answer = lambda *_: Said("It is “so”.", [("call_1", "look", '{"at": "é"}')], "hm")
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    body["input"] = body["messages"]
    del body["input" if path != "responses" else "messages"]
    direct, through = (http.post(f"{base}/v1/{path}", json=body) for base in (upstream, start()))
    assert through.content == direct.content
    assert through.headers["content-type"] == direct.headers["content-type"]
