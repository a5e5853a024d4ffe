"""What goes wrong around the proxy: the client gets its reply, or the error that there is, and all of it is counted."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from functools import partial
from threading import Event
from types import SimpleNamespace
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from starlette.responses import JSONResponse, Response, StreamingResponse

from forgetless import registry
from forgetless.errors import StoreError
from forgetless.policies.base import Context, assemble, floor
from forgetless.proxy import journal
from forgetless.stores.inmemory import InMemory
from forgetless.stores.sqlite import Sqlite
from live import Provider, Said, events, reply
from sent import check, count

Start = Callable[..., str]
PATH = "/v1/chat/completions"
KEY = {"authorization": "Bearer k"}
OVER = {"messages": {"role": "user", "content": "too long " * 400}}


def history(turns: int) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = [{"role": "system", "content": "be brief"}]
    for n in range(turns):
        said.append({"role": "user", "content": f"question {n} " + "word " * 40})
        said.append({"role": "assistant", "content": f"ok {n}"})
    return said[:-1]


def body(turns: int, **more: Any) -> bytes:
    return json.dumps({"model": "m", "messages": history(turns), **more}).encode()


def ask(http: httpx2.Client, base: str, data: bytes, path: str = PATH, **headers: str) -> httpx2.Response:
    return http.post(base + path, content=data, headers={**KEY, "content-type": "application/json", **headers})


def figure(http: httpx2.Client, base: str, name: str) -> float:
    """A figure of /metrics, by its name and labels; 0 where it is not there."""
    lines = http.get(f"{base}/metrics").text.splitlines()
    return next((float(line.rpartition(" ")[2]) for line in lines if line.rpartition(" ")[0] == name), 0.0)


class Policy:
    """A policy that does what its case says."""

    lazy = True

    def __init__(self, case: str = "") -> None:
        self.case = case

    def __call__(self, units: Any, budget: int, query: Any = None) -> Any:
        kept = floor(units)
        good = assemble(units, kept, budget, pinned=kept)
        if self.case == "raises":
            raise ZeroDivisionError("what somebody said")
        if self.case == "recurses":
            return self(units, budget, query)
        every = dict.fromkeys(range(len(units)), "fits")
        return {
            "nothing": None,
            "text": "nonsense",
            "no ledger": Context(good.units, (), good.tokens, budget),
            "no messages": Context((), good.ledger, 0, budget),
            "too much": assemble(units, every, budget, pinned=kept),
            "not what must stay": assemble(units, {1: "selected"}, budget, pinned=kept),
        }[self.case]


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The policy `odd`, as an installed package would offer it."""
    monkeypatch.setitem(sys.modules, "odd_policies", SimpleNamespace(odd=Policy))  # type: ignore[arg-type]
    monkeypatch.setattr(registry, "POLICIES", {**registry.POLICIES, "odd": "odd_policies:odd"})


CASES = ["raises", "recurses", "nothing", "text", "no ledger", "no messages", "too much", "not what must stay"]


@pytest.mark.usefixtures("offered")
@pytest.mark.parametrize("case", CASES)
def test_a_policy_that_fails_costs_nothing_but_what_it_would_have_saved(
    case: str, provider: Provider, start: Start, http: httpx2.Client, caplog: pytest.LogCaptureFixture
) -> None:
    base = start(policy="odd", options={"case": case})
    assert ask(http, base, body(3)).headers["x-forgetless-outcome"] == "unchanged"
    answer = ask(http, base, body(12))
    assert (answer.status_code, answer.headers["x-forgetless-outcome"]) == (200, "fault")
    assert provider.seen[-1][1] == body(12)
    assert figure(http, base, 'forgetless_faults_total{kind="policy"}') == 1
    assert ask(http, base, body(3)).headers["x-forgetless-outcome"] == "unchanged", "afterwards all goes on"
    assert "somebody" not in caplog.text


def too_long(path: str) -> dict[str, Any]:
    said = [{"role": "user", "content": "too long " * 400}]
    return {"model": "m", "max_tokens": 9, ("input" if path.endswith("responses") else "messages"): said}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
def test_a_floor_above_the_budget_is_sent_said_and_counted(
    path: str, provider: Provider, store: InMemory, start: Start, http: httpx2.Client
) -> None:
    base = start(store)
    data = too_long(path)
    key = "input" if "input" in data else "messages"
    data[key] = [{"role": "user", "content": "first"}, {"role": "assistant", "content": "fine"}, *data[key]]
    answer = ask(http, base, json.dumps(data).encode(), path)
    assert (answer.status_code, answer.headers["x-forgetless-outcome"]) == (200, "floor")
    assert provider.bodies[-1] == {**data, key: data[key][-1:]}
    assert int(answer.headers["x-forgetless-tokens-after"]) > 400
    (one,) = [e for s in store.conversations() for b in store.branches(s.caller, s.conversation) for e in b.exchanges]
    assert one.outcome == "floor"
    told = http.get(f"{base}/forgetless/requests/{answer.headers['x-forgetless-request-id']}", headers=KEY).json()
    assert [(entry["form"], entry["reason"]) for entry in told["ledger"]][-1] == ("raw", "last_user")
    dialect = one.dialect
    assert figure(http, base, f'forgetless_requests_total{{dialect="{dialect}",outcome="floor",status="200"}}') == 1


def test_strict_is_an_error_that_the_openai_sdk_knows(provider: Provider, start: Start) -> None:
    base = start(strict=True)
    with openai.OpenAI(base_url=f"{base}/v1", api_key="k") as client:
        for call in (
            lambda: client.chat.completions.create(**too_long("messages")),
            lambda: client.chat.completions.create(**too_long("messages"), stream=True),
            lambda: client.responses.create(model="m", input=too_long("responses")["input"]),
        ):
            with pytest.raises(openai.BadRequestError, match="the budget is 400") as caught:
                call()
            assert caught.value.code == "budget_exceeded"
            assert caught.value.type == "invalid_request_error"
            assert caught.value.response.headers["x-forgetless-request-id"].startswith("fr_")
    assert provider.seen == [], "once, and nothing is sent"


def test_strict_is_an_error_that_the_anthropic_sdk_knows(provider: Provider, start: Start) -> None:
    base = start(strict=True)
    with anthropic.Anthropic(base_url=base, api_key="k") as client:
        with pytest.raises(anthropic.BadRequestError, match="the budget is 400") as caught:
            client.messages.create(**too_long("messages"))
        assert caught.value.body["error"]["type"] == "invalid_request_error"  # type: ignore[index]
        with pytest.raises(anthropic.BadRequestError), client.messages.stream(**too_long("messages")):
            pass
    assert provider.seen == []


def test_shadow_sends_everything_as_it_came_and_records_what_would_have_gone(
    provider: Provider, store: InMemory, start: Start, http: httpx2.Client
) -> None:
    base = start(store, shadow=True, strict=True)
    for turns in range(1, 15):
        answer = ask(http, base, body(turns))
        assert provider.seen[-1][1] == body(turns)
        assert answer.headers["x-forgetless-outcome"] == "shadow"
        assert int(answer.headers["x-forgetless-tokens-after"]) <= 400
        assert int(answer.headers["x-forgetless-tokens-before"]) == count({"messages": history(turns)})
    told = http.get(f"{base}/forgetless/requests/{answer.headers['x-forgetless-request-id']}", headers=KEY).json()
    assert any(entry["form"] == "omitted" for entry in told["ledger"])
    assert figure(http, base, "forgetless_tokens_saved_total") == 0
    before, after = (figure(http, base, f"forgetless_tokens_{name}_total") for name in ("before", "after"))
    assert before > after > 0
    long = json.dumps(too_long("messages")).encode()
    assert ask(http, base, long).status_code == 200, "what is only watched is not refused"
    assert provider.seen[-1][1] == long


def test_a_model_that_nobody_knows_passes_without_a_budget(
    provider: Provider, store: InMemory, start: Start, http: httpx2.Client
) -> None:
    base = start(store, budget=None)
    for turns in (1, 30):
        answer = ask(http, base, body(turns))
        assert (answer.status_code, answer.headers["x-forgetless-outcome"]) == (200, "no_budget")
        assert provider.seen[-1][1] == body(turns)
    known = ask(http, base, body(30, model="gpt-4o"), **{"x-forgetless-conversation": "known"})
    assert known.headers["x-forgetless-outcome"] == "unchanged"
    for odd in (body(2, model=7), body(2, model=None), body(2, model="gpt-4o", max_tokens=10**9), b'{"messages": []}'):
        assert ask(http, base, odd).status_code == 200
        assert provider.seen[-1][1] == odd
    assert store.check() == []


def test_an_upstream_that_is_not_there(start: Start, http: httpx2.Client, store: InMemory) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound and not listening
        base = start(store, upstream=f"http://127.0.0.1:{held.getsockname()[1]}")
        answer = ask(http, base, body(1))
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_unreachable")
        assert ask(http, base, body(1, stream=True)).status_code == 502
        assert http.get(f"{base}/v1/models").status_code == 502
        told = ask(http, base, body(1), "/v1/messages").json()
        assert (told["type"], told["error"]["type"]) == ("error", "api_error")
        client = openai.OpenAI(base_url=f"{base}/v1", api_key="k", max_retries=0)
        with client, pytest.raises(openai.InternalServerError):
            client.chat.completions.create(model="m", messages=history(1))  # type: ignore[arg-type]
        assert figure(http, base, 'forgetless_faults_total{kind="upstream"}') >= 4
        assert {
            e.status
            for s in store.conversations()
            for b in store.branches(s.caller, s.conversation)
            for e in b.exchanges
        } == {502}
        assert http.get(f"{base}/healthz").json() == {"status": "ok"}


ERRORS = {
    400: openai.BadRequestError,
    401: openai.AuthenticationError,
    500: openai.InternalServerError,
    529: openai.InternalServerError,
}


def test_an_error_of_the_provider_reaches_the_client_as_it_is(provider: Provider, start: Start) -> None:
    told = {"error": {"message": "so it is", "type": "x", "code": "y", "param": None, "more": [1e5]}}
    with openai.OpenAI(base_url=f"{start()}/v1", api_key="k", max_retries=0) as client:
        for status, kind in ERRORS.items():
            provider.answer = partial(lambda status, *_: (status, told), status)
            for stream in (False, True):
                with pytest.raises(kind) as caught:
                    client.chat.completions.create(model="m", messages=history(12), stream=stream)  # type: ignore[call-overload]
                assert (caught.value.status_code, caught.value.body) == (status, told["error"])


def test_too_many_requests_says_when_to_come_again(provider: Provider, start: Start, http: httpx2.Client) -> None:
    headers = {"retry-after": "7", "x-ratelimit-remaining-tokens": "0", "x-should-retry": "true"}
    provider.answer = lambda *_: JSONResponse({"error": {"message": "slow down, TPM limit reached"}}, 429, headers)
    answer = ask(http, start(), body(12))
    assert answer.status_code == 429
    assert headers.items() <= dict(answer.headers).items()
    assert len(provider.seen) == 1, "that is the client's to try again"


def test_an_error_inside_an_event_stream_reaches_the_client_as_it_is(
    provider: Provider, start: Start, http: httpx2.Client, store: InMemory
) -> None:
    half = reply("/v1/chat/completions", Said("half a word"), stream=True)[:2]
    told = {"error": {"message": "the engine stopped", "code": "server_error"}}
    provider.answer = lambda *_: [*half, ("", told)]
    base = start(store)
    text = ask(http, base, body(2, stream=True)).text
    assert text.endswith(f"data: {json.dumps(told)}\n\n")
    assert text.count("data: ") == 3
    client = openai.OpenAI(base_url=f"{base}/v1", api_key="k", max_retries=0)
    with client, pytest.raises(openai.APIError, match="the engine stopped"):
        list(client.chat.completions.create(model="m", messages=history(2), stream=True))  # type: ignore[arg-type]
    overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    provider.answer = lambda *_: [("error", overloaded)]
    other = anthropic.Anthropic(base_url=base, api_key="k", max_retries=0)
    with other, pytest.raises(anthropic.APIStatusError, match="Overloaded"):
        list(other.messages.create(model="m", max_tokens=9, messages=history(1)[1:], stream=True))  # type: ignore[arg-type]
    assert store.check() == []


def broken(parts: list[bytes], kind: str) -> Callable[..., Response]:
    async def body() -> AsyncIterator[bytes]:
        for part in parts:
            yield part
        raise ConnectionError("cut")

    return lambda *_: StreamingResponse(body(), media_type=kind)


@pytest.mark.parametrize("path", [PATH, "/v1/messages", "/v1/responses"])
def test_a_stream_that_breaks_off_is_seen_to_be_broken(
    path: str, provider: Provider, start: Start, http: httpx2.Client, store: InMemory
) -> None:
    parts = [b'data: {"choices":[{"index":0,"delta":{"content":"half"}}]}\n\n', b'data: {"choi']
    provider.answer = broken(parts, "text/event-stream")
    base = start(store)
    data = {"model": "m", "stream": True, "max_tokens": 9, "messages": history(1)[1:], "input": history(1)[1:]}
    got: list[bytes] = []
    answer = http.send(http.build_request("POST", base + path, json=data, headers=KEY), stream=True)
    with pytest.raises(httpx2.RemoteProtocolError):
        got.extend(answer.iter_raw())
    answer.close()
    assert b"".join(got).startswith(parts[0]), "what came is passed on"
    (summary,) = store.conversations()
    (branch,) = store.branches(summary.caller, summary.conversation)
    assert [one.status for one in branch.exchanges] == [0]
    provider.answer = None
    assert ask(http, base, body(2)).status_code == 200


def test_a_body_that_breaks_off_is_an_error(provider: Provider, start: Start, http: httpx2.Client) -> None:
    provider.answer = broken([b'{"choices": ['], "application/json")
    base = start()
    answer = ask(http, base, body(1))
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_broke_off")
    with pytest.raises(httpx2.RemoteProtocolError):
        http.get(f"{base}/v1/files/1/content")
    provider.answer = lambda *_: Response(b"not gzip", headers={"content-encoding": "gzip"})
    assert ask(http, base, body(1)).status_code == 502


def test_a_slow_upstream_is_given_up(provider: Provider, start: Start, http: httpx2.Client) -> None:
    async def late() -> AsyncIterator[bytes]:
        yield b"data: 1\n\n"
        await asyncio.sleep(0.6)
        yield b"data: 2\n\n"

    async def nothing() -> None:
        await asyncio.sleep(0.6)

    base = start(timeout=0.2)
    provider.answer = lambda *_: nothing()
    began = time.monotonic()
    answer = ask(http, base, body(1))
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "upstream_timeout")
    told = ask(http, base, body(1), "/v1/messages").json()
    assert told["error"]["type"] == "timeout_error"
    assert http.get(f"{base}/v1/models").status_code == 504
    provider.answer = lambda *_: StreamingResponse(late(), media_type="text/event-stream")
    with pytest.raises(httpx2.RemoteProtocolError), http.stream("POST", base + PATH, content=body(1)) as stream:
        assert b"".join(stream.iter_raw()) == b"data: 1\n\n"
    assert time.monotonic() - began < 2.4


def full(limit: int, wording: str = "") -> Callable[[str, Any], Any]:
    """A provider whose window is so many tokens."""

    def answer(_: str, body: Any) -> Any:
        tokens = count(body)
        if tokens <= limit:
            return Said("fits", tokens=tokens)
        told = f"This model's maximum context length is {limit} tokens. Your messages resulted in {tokens} tokens."
        return 400, {
            "error": {"message": wording or told, "type": "invalid_request_error", "code": "context_length_exceeded"}
        }

    return answer


@pytest.mark.parametrize("case", [(said, budget) for said in ("", "prompt is too long") for budget in (1200, None)])
def test_an_overflow_is_tried_again_once_shorter_and_not_run_into_again(
    case: tuple[str, int | None], provider: Provider, store: InMemory, start: Start, http: httpx2.Client
) -> None:
    wording, budget = case
    base = start(store, budget=budget)
    provider.answer = full(1000, wording)
    outcomes = []
    for turns in range(2, 40):
        answer = ask(http, base, body(turns))
        assert answer.status_code == 200, answer.text
        outcomes.append(answer.headers["x-forgetless-outcome"])
    assert outcomes.count("overflow") == 1
    assert len(provider.seen) == 39, "one request more than there were turns"
    at = outcomes.index("overflow")
    assert provider.seen[at][1] == body(at + 2)
    assert count(json.loads(provider.seen[at + 1][1])) < count({"messages": history(at + 2)})
    assert figure(http, base, 'forgetless_faults_total{kind="overflow"}') == 1
    check([(body(39), provider.seen[-1][1])], "chat", 1000)
    assert store.check() == []
    (summary,) = store.conversations()
    assert summary.requests == 38


def test_an_overflow_that_stays_one_is_told_as_it_is(provider: Provider, start: Start, http: httpx2.Client) -> None:
    base = start(budget=1200)
    provider.answer = full(1, "prompt is too long")
    answer = ask(http, base, body(20))
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert len(provider.seen) == 2
    provider.seen.clear()
    assert ask(http, base, json.dumps(too_long("messages")).encode()).status_code == 400
    assert len(provider.seen) <= 2


def test_what_must_stay_is_not_tried_again(provider: Provider, start: Start, http: httpx2.Client) -> None:
    provider.answer = full(100)
    answer = ask(http, start(budget=10_000), json.dumps(too_long("messages")).encode())
    assert (answer.status_code, len(provider.seen)) == (400, 1)


def test_shadow_does_not_try_again(provider: Provider, start: Start, http: httpx2.Client) -> None:
    provider.answer = full(100)
    assert ask(http, start(shadow=True), body(20)).status_code == 400
    assert len(provider.seen) == 1


class Weak(InMemory):
    """A store that is away when it is told to be, and takes no record of a conversation that it was told not to.

    `script` says what becomes of the next writes: `fail`, `pass`, or `leave`, after which it is away.
    """

    down = False
    hates = ""

    def __init__(self) -> None:
        super().__init__()
        self.script: list[str] = []

    def _check(self) -> None:
        if self.down:
            raise StoreError("the store is away")

    def write(self, exchanges: Any) -> None:
        self._check()
        step = self.script.pop(0) if self.script else "pass"
        self.down = step == "leave"
        if step != "pass":
            raise StoreError("it failed this once")
        if any(one.conversation == self.hates for one in exchanges):
            raise StoreError("it will not have it")
        super().write(exchanges)

    def locate(self, *args: Any) -> Any:
        self._check()
        return super().locate(*args)

    def state(self, *args: Any) -> Any:
        self._check()
        return super().state(*args)

    def request(self, *args: Any) -> Any:
        self._check()
        return super().request(*args)

    def pins(self, *args: Any) -> Any:
        self._check()
        return super().pins(*args)

    def pin(self, *args: Any, **options: Any) -> None:
        self._check()
        super().pin(*args, **options)


@pytest.fixture
def weak(monkeypatch: pytest.MonkeyPatch, provider: Provider) -> Weak:
    monkeypatch.setattr(journal, "PATIENCE", 0.1)
    monkeypatch.setattr(journal, "PAUSE", 0.02)
    provider.answer = same
    return Weak()


def same(_: str, body: Any) -> Said:
    """The reply that stands in `history`."""
    last = body["messages"][-1]["content"]
    return Said(f"ok {last.split()[1]}", tokens=count(body))


def until(what: Callable[[], bool]) -> None:
    """Wait until it is so; for at most five seconds."""
    end = time.monotonic() + 5
    while not what():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def test_a_store_that_is_away_is_written_to_when_it_is_back(
    weak: Weak, provider: Provider, start: Start, http: httpx2.Client
) -> None:
    base = start(weak)
    assert ask(http, base, body(1)).status_code == 200
    weak.down = True
    for turns in range(2, 12):
        answer = ask(http, base, body(turns))
        assert answer.status_code == 200
        assert answer.headers["x-forgetless-outcome"] in ("unchanged", "compacted"), "a known conversation goes on"
    new = http.post(base + PATH, content=body(15), headers={"authorization": "Bearer other"})
    assert (new.status_code, new.headers["x-forgetless-outcome"]) == (200, "fault")
    assert figure(http, base, 'forgetless_faults_total{kind="store"}') == 1
    assert http.get(f"{base}/forgetless/requests/{answer.headers['x-forgetless-request-id']}").status_code == 503
    assert figure(http, base, 'forgetless_records_total{fate="late"}') == 10
    assert figure(http, base, "forgetless_records_waiting") == 10
    weak.down = False
    until(lambda: figure(http, base, "forgetless_records_waiting") == 0)
    assert figure(http, base, 'forgetless_records_total{fate="kept"}') == 11
    (summary,) = weak.conversations()
    assert (summary.messages, summary.requests, weak.check()) == (22, 11, [])


def test_records_are_counted_once_however_often_they_are_tried(
    weak: Weak, provider: Provider, start: Start, http: httpx2.Client
) -> None:
    base = start(weak)
    for turns in (1, 2):
        weak.down = turns == 2
        for n in range(5):
            named = {"x-forgetless-conversation": f"c{n}"}
            assert ask(http, base, body(turns), **named).headers["x-forgetless-outcome"] == "unchanged"
    weak.script = ["fail", "pass", "leave"]  # all of them; the first half of them; the rest
    weak.down = False
    until(lambda: weak.down)
    weak.down = False
    until(lambda: figure(http, base, "forgetless_records_waiting") == 0)
    fates = {name: figure(http, base, f'forgetless_records_total{{fate="{name}"}}') for name in ("kept", "refused")}
    assert fates == {"kept": 10, "refused": 0}
    assert [summary.requests for summary in weak.conversations()] == [2] * 5


def test_a_record_that_is_refused_holds_up_nothing_and_the_next_stands_whole(
    weak: Weak, provider: Provider, start: Start, http: httpx2.Client
) -> None:
    base = start(weak)
    named = {"x-forgetless-conversation": "c"}
    assert ask(http, base, body(6), **named).status_code == 200
    weak.hates = "c"
    for turns in (7, 8):
        assert ask(http, base, body(turns), **named).status_code == 200
    weak.hates = ""
    answer = ask(http, base, body(9), **named)
    assert figure(http, base, 'forgetless_records_total{fate="refused"}') == 2
    assert weak.check() == []
    (summary,) = weak.conversations()
    assert (summary.messages, summary.requests) == (18, 2)
    told = http.get(f"{base}/forgetless/requests/{answer.headers['x-forgetless-request-id']}", headers=KEY).json()
    assert {index for entry in told["ledger"] for index in entry["messages"]} == set(range(18))


def test_a_full_queue_refuses_and_counts(
    weak: Weak, provider: Provider, start: Start, http: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "MOST", 3)
    monkeypatch.setattr(journal, "PATIENCE", 0.01)
    base = start(weak)
    assert ask(http, base, body(1)).status_code == 200
    weak.down = True
    for turns in range(2, 9):
        assert ask(http, base, body(turns)).status_code == 200
    assert figure(http, base, 'forgetless_records_total{fate="refused"}') == 4
    weak.down = False
    until(lambda: figure(http, base, "forgetless_records_waiting") == 0)
    assert ask(http, base, body(9)).status_code == 200
    (summary,) = weak.conversations()
    assert (summary.messages, summary.requests, weak.check()) == (18, 5, [])


def test_a_conversation_that_was_removed_begins_anew(
    store: InMemory, provider: Provider, start: Start, http: httpx2.Client
) -> None:
    base = start(store)
    provider.answer = same
    for turns in range(1, 6):
        ask(http, base, body(turns))
    assert store.purge() == 1
    statuses = [ask(http, base, body(turns)).status_code for turns in (6, 7)]
    assert statuses == [200, 200]
    (summary,) = store.conversations()
    assert (summary.messages, store.check()) == (14, [])


def test_without_contents_only_decisions_and_numbers_stay(
    provider: Provider, start: Start, http: httpx2.Client, tmp_path: Any
) -> None:
    provider.answer = lambda _, body: Said("unmistakable reply", tokens=count(body))
    base = start(store=str(tmp_path / "s.db"), contents=False)
    for turns in range(1, 12):
        answer = ask(http, base, body(turns))
    assert answer.headers["x-forgetless-outcome"] == "compacted"
    told = http.get(f"{base}/forgetless/requests/{answer.headers['x-forgetless-request-id']}", headers=KEY).json()
    assert len(told["ledger"]) == 22
    bytes_ = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert not any(said in bytes_ for said in (b"question", b"word word", b"unmistakable", b"brief"))


def test_what_is_older_than_is_to_be_kept_is_removed(
    provider: Provider, start: Start, http: httpx2.Client, tmp_path: Any
) -> None:
    base = start(store=str(tmp_path / "s.db"))
    assert ask(http, base, body(3)).status_code == 200
    with closing(Sqlite(tmp_path / "s.db")) as store:
        assert len(store.conversations()) == 1
        start(store=str(tmp_path / "s.db"), keep_days=30)
        start(store=str(tmp_path / "s.db"), keep_days=1e-9)
        until(lambda: store.conversations() == [])
    assert ask(http, base, body(4)).status_code == 200


def test_what_the_provider_holds_is_passed_through(
    provider: Provider, store: InMemory, start: Start, http: httpx2.Client
) -> None:
    base = start(store)
    said = [{"role": "user", "content": "too long " * 400}, {"role": "user", "content": "go on"}]
    for more in ({"previous_response_id": "resp_1"}, {"conversation": "conv_1"}, {"conversation": {"id": "conv_1"}}):
        data = json.dumps({"model": "m", "input": said, **more}).encode()
        answer = ask(http, base, data, "/v1/responses")
        assert answer.headers["x-forgetless-outcome"] == "held"
        assert provider.seen[-1][1] == data
        assert "".join(reply("/v1/responses", Said("ok"))["object"]) == answer.json()["object"]
    assert store.conversations() == []


def raw(base: str, request: bytes) -> bytes:
    """What comes back for bytes on a connection that the server is asked to close."""
    host, _, port = base.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65536), b""))


TARGETS = [
    "/v1/models?limit=2&after=a%20b+c&x[]=1&x[]=2&empty=&q=%7e'|",
    "/v1/files/a%2Fb/content",
    "//v1//models",
    "/v1/caf%C3%A9?%F0%9F%98%80",
    "/v1beta/models/gemini:countTokens?key=1",
    "/v1/messages/count_tokens?beta=true",
    "/v1/responses/resp_1/input_items?order=asc",
    "/",
    "/v1/models?",
]


def test_other_paths_go_as_they_came(provider: Provider, start: Start) -> None:
    base = start()
    for target in TARGETS:
        raw(base, f"GET {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
    assert [path for path, _, _ in provider.seen] == [target.removesuffix("?") for target in TARGETS]


def test_headers_go_as_they_came_but_for_those_of_one_connection(provider: Provider, start: Start) -> None:
    sent = [
        (b"Authorization", b"Bearer k"),
        (b"X-Api-Key", b"sk"),
        (b"Anthropic-Beta", b"a"),
        (b"Anthropic-Beta", b"b"),
        (b"Cookie", b"a=1; b=2"),
        (b"X-Title", "Café 漢字".encode()),
        (b"X-Latin", "Café".encode("latin-1")),
        (b"X-Empty", b""),
    ]
    hop = [
        (b"Connection", b"close, X-Mine"),
        (b"X-Mine", b"1"),
        (b"Keep-Alive", b"timeout=5"),
        (b"TE", b"trailers"),
        (b"Proxy-Authorization", b"Basic x"),
        (b"Proxy-Connection", b"keep-alive"),
    ]
    provider.answer = lambda *_: Response(
        b"x",
        headers={"x-answer": "1", "connection": "x-secret", "x-secret": "1", "keep-alive": "timeout=5", "x-name": "é"},
    )
    base = start()
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in (*sent, *hop))
    for method in (b"GET /v1/models", b"POST /v1/chat/completions"):
        tail = b"Content-Length: 0\r\n" if method.startswith(b"POST") else b""
        got = raw(base, method + b" HTTP/1.1\r\nHost: x\r\n" + lines + tail + b"\r\n")
        head = got.partition(b"\r\n\r\n")[0].lower()
        assert b"x-answer: 1" in head
        assert b"x-name: \xe9" in head
        assert not any(name in head for name in (b"x-secret", b"keep-alive"))
        received = provider.seen[-1][2].raw  # type: ignore[attr-defined]
        ours = {b"host", b"accept-encoding", b"connection", b"content-length"}
        assert [(n.lower(), v) for n, v in received if n.lower() not in ours] == [(n.lower(), v) for n, v in sent]


def test_answers_come_as_they_are(provider: Provider, start: Start, http: httpx2.Client) -> None:
    packed = gzip.compress(b'{"data": []}' * 50)
    cookies = [(b"set-cookie", b"a=1"), (b"set-cookie", b"b=2")]

    def answer(path: str, _: Any) -> Response:
        if path.endswith("empty"):
            return Response(status_code=204)
        if path.endswith("moved"):
            return Response(status_code=302, headers={"location": "/elsewhere"})
        made = Response(packed, headers={"content-encoding": "gzip", "etag": '"x"', "content-type": "application/json"})
        made.raw_headers += cookies
        return made

    provider.answer = answer
    base = start()
    with http.stream("GET", f"{base}/v1/models", headers={"accept-encoding": "gzip"}) as got:
        assert b"".join(got.iter_raw()) == packed
        assert got.headers["content-encoding"] == "gzip"
        assert got.headers["content-length"] == str(len(packed))
        assert got.headers.get_list("set-cookie") == ["a=1", "b=2"]
    assert (http.delete(f"{base}/v1/files/empty").status_code, provider.seen[-1][0]) == (204, "/v1/files/empty")
    moved = http.get(f"{base}/v1/moved")
    assert (moved.status_code, moved.headers["location"]) == (302, "/elsewhere")
    zipped = ask(http, base, body(1), **{"accept-encoding": "gzip"})
    assert zipped.content == b'{"data": []}' * 50
    assert "content-encoding" not in zipped.headers
    assert zipped.headers.get_list("set-cookie") == ["a=1", "b=2"]


def test_methods_and_uploads_go_through(provider: Provider, start: Start, http: httpx2.Client) -> None:
    base = start()
    provider.answer = lambda *_: Response(b"four", headers={"x-seen": "1"})
    head = http.head(f"{base}/v1/models/m")
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", "4")
    for method in ("DELETE", "PUT", "PATCH", "OPTIONS"):
        assert http.request(method, f"{base}/v1/chat/completions/{method}").text == "four"
    assert http.get(f"{base}/v1/chat/completions").text == "four", "a list of stored completions"

    def chunks() -> Iterator[bytes]:
        for n in range(64):
            yield bytes([n]) * 4096

    http.post(f"{base}/v1/files", content=chunks())
    assert provider.seen[-1][1] == b"".join(chunks())
    assert provider.seen[-1][2]["transfer-encoding"] == "chunked"
    files = {"file": ("a.bin", b"\x00\xff" * 5000, "application/octet-stream")}
    request = http.build_request("POST", f"{base}/v1/files", files=files, data={"purpose": "batch"})
    http.send(request)
    assert provider.seen[-1][1] == request.read()
    assert provider.seen[-1][2]["content-type"] == request.headers["content-type"]
    assert provider.seen[-1][2]["content-length"] == request.headers["content-length"]
    assert figure(http, base, "forgetless_passed_through_total") >= 8


@pytest.mark.parametrize("path", [PATH, "/v1/messages", "/v1/responses"])
def test_a_provider_that_keeps_the_connection_open_after_its_last_event_does_not_keep_the_client(
    path: str, provider: Provider, store: InMemory, start: Start, http: httpx2.Client
) -> None:
    heard = Event()

    async def lingering() -> AsyncIterator[str]:
        async for event in events(reply(path, Said("all of it"), stream=True)):
            yield event
        await asyncio.to_thread(heard.wait, 3)

    provider.answer = lambda *_: StreamingResponse(lingering(), media_type="text/event-stream")
    data = {"model": "m", "stream": True, "max_tokens": 9, "messages": history(1)[1:], "input": history(1)[1:]}
    began = time.monotonic()
    with http.stream("POST", start(store) + path, json=data, headers=KEY) as answer:
        for line in answer.iter_lines():
            if line in ("data: [DONE]", "event: message_stop", "event: response.completed"):
                assert [summary.requests for summary in store.conversations()] == [1], "by then it is recorded"
                assert time.monotonic() - began < 2
                heard.set()
    assert heard.is_set()
