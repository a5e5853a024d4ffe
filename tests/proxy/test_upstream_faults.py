"""What goes wrong upstream: the client gets the error that there is, a too long request a second try."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from threading import Event
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from starlette.responses import JSONResponse, Response, StreamingResponse

from asked import KEY, PATH, Start, ask, body, figure, history, too_long
from forgetless.stores.inmemory import InMemory
from live import Provider, Said, events, reply
from sent import check, count


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
