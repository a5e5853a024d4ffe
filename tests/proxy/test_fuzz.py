"""Anything at all on every endpoint, from clients that are slow or leave: no error of ours, and nothing left behind."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.responses import Response, StreamingResponse

from forgetless.proxy import incoming
from forgetless.proxy.app import build
from forgetless.proxy.conversations import Live
from forgetless.proxy.settings import Settings
from live import Provider, Said, serving

PATHS = ["/v1/chat/completions", "/v1/responses", "/v1/messages"]
KEYS = {"/v1/chat/completions": "messages", "/v1/responses": "input", "/v1/messages": "messages"}
MOST = 200_000


@dataclass
class Scene:
    """A proxy, its provider, and what of them is open."""

    base: str
    provider: Provider
    http: httpx2.Client
    loops: list[asyncio.AbstractEventLoop] = field(default_factory=list)  # the provider's and the proxy's

    def tasks(self) -> int:
        async def count() -> int:
            return len(asyncio.all_tasks()) - 1

        return asyncio.run_coroutine_threadsafe(count(), self.loops[1]).result(5)

    def locked(self) -> list[Live]:
        return [one for one in gc.get_objects() if type(one) is Live and one.lock.locked()]

    def ask(self, path: str, data: bytes, **headers: str) -> httpx2.Response:
        return self.http.post(self.base + path, content=data, headers={"content-type": "application/json", **headers})

    def metric(self, name: str) -> float:
        lines = self.http.get(f"{self.base}/metrics").text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.base.removeprefix("http://").partition(":")
        return host, int(port)


def watched(app: Any, loops: list[asyncio.AbstractEventLoop]) -> Any:
    async def serve(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            loops.append(asyncio.get_running_loop())
        await app(scope, receive, send)

    return serve


@pytest.fixture(scope="module")
def running() -> Iterator[Scene]:
    loops: list[asyncio.AbstractEventLoop] = []
    provider = Provider()
    with serving(watched(provider.app, loops)) as upstream:
        app = build(Settings(upstream=upstream, budget=300, policy="masking", store="memory", max_body=MOST))
        with serving(watched(app, loops)) as base, httpx2.Client(timeout=20) as http:
            yield Scene(base, provider, http, loops)


@pytest.fixture
def scene(running: Scene) -> Scene:
    running.provider.answer = None
    running.provider.seen.clear()
    return running


def still_there(scene: Scene) -> None:
    """The proxy answers, and does what it is for."""
    assert scene.http.get(f"{scene.base}/healthz").json() == {"status": "ok"}
    scene.provider.answer = None
    said = [{"role": ("user", "assistant")[n % 2], "content": f"turn {n} " + "word " * 30} for n in range(31)]
    answer = scene.ask(PATHS[0], json.dumps({"model": "m", "messages": said}).encode())
    assert (answer.status_code, answer.headers["x-forgetless-outcome"]) == (200, "compacted")


@contextmanager
def nothing_left(scene: Scene, idle: int = 4) -> Iterator[None]:
    """Tasks, descriptors and locks are afterwards what they were before, but for some connections kept for later."""
    still_there(scene)
    tasks, files = scene.tasks(), len(os.listdir("/proc/self/fd"))
    yield
    still_there(scene)
    end = time.monotonic() + 5
    while scene.tasks() > tasks or len(os.listdir("/proc/self/fd")) > files + 2 * idle or scene.locked():
        left = scene.tasks() - tasks, len(os.listdir("/proc/self/fd")) - files, scene.locked()
        assert time.monotonic() < end, f"left behind: tasks, descriptors, locks: {left}"
        time.sleep(0.02)


SAID = b'{"role":"user","content":"hi"}'

BROKEN = {
    "empty": b"",
    "cut": b'{"model":"m","messages":[' + SAID,
    "null": b"null",
    "number": b"7",
    "text": b'"messages"',
    "list": b"[" + SAID + b"]",
    "two": b'{"messages":[]}{"messages":[]}',
    "no messages": b'{"model":"m"}',
    "NaN": b'{"messages":[' + SAID + b'],"temperature":NaN}',
    "infinite": b'{"messages":[{"role":"user","content":"hi","w":1e999}],"input":[{"role":"user","content":-1e999}]}',
    "huge number": b'{"messages":[' + SAID + b'],"seed":' + b"9" * 6000 + b"}",
    "not UTF-8": b'{"messages":[{"role":"user","content":"\xff\xfe\x80"}]}',
    "half a pair": rb'{"messages":[{"role":"user","content":"\ud83d"}],"input":"\udc00","model":"\ud800"}',
    "UTF-16": json.dumps({"messages": [{"role": "user", "content": "hi"}], "input": "hi"}).encode("utf-16"),
    "byte order mark": b"\xef\xbb\xbf" + b'{"messages":[' + SAID + b'],"input":[' + SAID + b"]}",
    "NUL": rb'{"messages":[{"role":"user","content":"a\u0000b"}],"input":"a\u0000b","model":"\u0000"}',
    "deep": b'{"messages":' + b"[" * 90_000 + b"]" * 90_000 + b"}",
    "deep content": b'{"messages":[{"role":"user","content":' + b"[" * 900 + b"]" * 900 + b"}]}",
    "deep block": b'{"messages":[{"role":"user","content":[{"type":"x","x":'
    + b'{"x":' * 400
    + b"1"
    + b"}" * 400
    + b"}]}]}",
    "twice": b'{"messages":[],"messages":[' + SAID + b'],"input":1,"input":"hi"}',
    "gzip": b"\x1f\x8b\x08\x00" + bytes(20),
    "form": b"messages=hi&model=m",
}


@pytest.mark.parametrize("path", PATHS)
def test_what_is_no_request_goes_to_the_provider_who_knows_what_to_say(path: str, scene: Scene) -> None:
    scene.provider.answer = lambda *_: (400, {"error": {"message": "what?"}})
    for name, data in BROKEN.items():
        for _ in range(2):
            answer = scene.ask(path, data)
            assert (answer.status_code, answer.json()) == (400, {"error": {"message": "what?"}}), name
            assert scene.provider.seen[-1][1] == data, name
    still_there(scene)


NAMES = ["role", "content", "type", "text", "tool_calls", "id", "function", "name", "arguments", "input", "tool_use_id"]
NAMES += ["call_id", "tool_call_id", "output", "thinking", "signature", "data", "summary", "cache_control", "source"]
NAMES += ["image_url", "url", "refusal", "audio", "encrypted_content", "function_call", "custom", "action", "status"]
WORDS = ["user", "assistant", "system", "developer", "tool", "function", "text", "tool_use", "tool_result", "thinking"]
WORDS += ["redacted_thinking", "message", "function_call", "function_call_output", "reasoning", "item_reference", "c1"]
WORDS += ["computer_call_output", "image_url", "image", "input_text", "output_text", "custom", "{}", "", "\ud83d", "\0"]

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(WORDS)
    | st.text(max_size=9)
)


def _inside(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, max_size=4) | st.dictionaries(
        st.sampled_from(NAMES) | st.text(max_size=4), inner, max_size=6
    )


VALUES = st.recursive(SCALARS, _inside, max_leaves=12)
ROLES = st.sampled_from(["user", "assistant", "tool", "system", "developer"])
MESSAGES = st.fixed_dictionaries({}, optional={name: VALUES for name in NAMES} | {"role": ROLES | VALUES})
LISTS = st.lists(MESSAGES | VALUES, max_size=6) | VALUES


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    found = draw(st.fixed_dictionaries({}, optional={n: VALUES for n in ("model", "tools", "system", "instructions")}))
    more = {
        "stream": VALUES,
        "max_tokens": VALUES,
        "previous_response_id": VALUES,
        "text": VALUES,
        "tool_choice": VALUES,
    }
    return {
        **found,
        **draw(st.fixed_dictionaries({}, optional=more)),
        "said": draw(LISTS),
        "first": draw(st.booleans()),
    }


@settings(max_examples=60)
@given(body=requests(), path=st.sampled_from(PATHS))
def test_values_of_any_kind_in_any_place(body: dict[str, Any], path: str, running: Scene) -> None:
    running.provider.answer = None
    said, first = body.pop("said"), body.pop("first")
    long = [{"role": ("user", "assistant")[n % 2], "content": f"turn {n} " + "word " * 30} for n in range(14)]
    asked = [said, [*said, {"role": "user", "content": "go on"}]] if isinstance(said, list) else [said]
    for one in asked:
        listed = [*long, *one] if first and isinstance(one, list) else one
        data = json.dumps({**body, KEYS[path]: listed}).encode()
        answer = running.ask(path, data)
        assert answer.status_code == 200, answer.text
        outcome = answer.headers["x-forgetless-outcome"]
        assert outcome in ("unchanged", "compacted", "floor", "invalid", "held", "no_budget"), outcome
        if outcome != "compacted" and outcome != "floor":
            assert running.provider.seen[-1][1] == data
    running.provider.seen.clear()
    assert not running.locked()


@settings(max_examples=60)
@given(st.binary(max_size=60) | st.text(max_size=40).map(str.encode))
def test_bytes_of_any_kind(running: Scene, data: bytes) -> None:
    running.provider.answer = None
    for path in PATHS:
        answer = running.ask(path, data)
        assert answer.status_code == 200, answer.text
        assert running.provider.seen[-1][1] == data
    running.provider.seen.clear()


REPLIES = st.binary(max_size=60) | VALUES.map(lambda value: json.dumps(value).encode()) | st.just(b"data: [DONE]\n\n")


@settings(max_examples=60)
@given(
    data=REPLIES | st.lists(REPLIES.map(lambda data: b"data: " + data + b"\n\n"), max_size=4).map(b"".join),
    status=st.sampled_from([200, 201, 400, 413, 429, 500]),
    kind=st.sampled_from(["text/event-stream", "application/json", "text/plain"]),
)
def test_replies_of_any_kind_reach_the_client_as_they_are(running: Scene, data: bytes, status: int, kind: str) -> None:
    running.provider.answer = lambda *_: Response(data, status, media_type=kind)
    for path in PATHS:
        answer = running.ask(path, b'{"model":"m","messages":[' + SAID + b'],"input":[' + SAID + b"]}")
        assert (answer.status_code, answer.content) == (status, data)
    running.provider.seen.clear()


def test_none_of_this_cost_a_record(scene: Scene) -> None:
    still_there(scene)
    assert scene.metric("forgetless_faults_total") == 0
    assert scene.metric("forgetless_records_waiting") == 0
    assert scene.metric('forgetless_records_total{fate="refused"}') == 0


@pytest.mark.parametrize("path", PATHS)
def test_a_huge_body_is_refused_and_not_sent(path: str, scene: Scene) -> None:
    data = b'{"model":"m","messages":[{"role":"user","content":"' + b"x" * (2 * MOST) + b'"}]}'

    def chunks() -> Iterator[bytes]:
        for start in range(0, len(data), 4096):
            yield data[start : start + 4096]

    with nothing_left(scene):
        scene.provider.seen.clear()
        for body in (data, chunks()):
            answer = scene.http.post(scene.base + path, content=body)
            assert answer.status_code == 413
            error = answer.json()["error"]
            assert error.get("code", error["type"]) in ("body_too_large", "request_too_large")
        assert scene.provider.seen == []
        assert scene.http.post(f"{scene.base}/v1/files", content=data).status_code == 200, "files may be large"


def head(path: str, length: int, *more: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {length}", *more]
    return "\r\n".join([*lines, "", ""]).encode()


@contextmanager
def connected(scene: Scene) -> Iterator[socket.socket]:
    with socket.create_connection(scene.address, timeout=10) as connection:
        yield connection


def everything(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65536), b""))


def test_a_body_that_does_not_come_in_time(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "SLOW_CLIENT", 0.1)
    with nothing_left(scene):
        for path in PATHS:
            for sent in (b"", b'{"mess'):
                with connected(scene) as connection:
                    connection.sendall(head(path, 500) + sent)
                    got = everything(connection)
                    assert got.startswith(b"HTTP/1.1 408 ")
                    assert b"request_timeout" in got or b"did not come in time" in got
    assert scene.metric('forgetless_requests_total{dialect="chat",outcome="request_timeout"') == 2


def test_a_body_that_trickles_in_is_waited_for(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "SLOW_CLIENT", 0.5)
    data = b'{"model":"m","messages":[' + SAID + b"]}"
    with connected(scene) as connection:
        connection.sendall(head(PATHS[0], len(data), "Connection: close"))
        for at in range(len(data)):
            connection.sendall(data[at : at + 1])
            time.sleep(0.005)
        got = everything(connection)
    assert got.startswith(b"HTTP/1.1 200 ")
    assert scene.provider.seen[-1][1] == data


def test_a_client_that_trickles_after_it_was_refused_is_cut_off(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "SLOW_CLIENT", 0.05)
    with nothing_left(scene), connected(scene) as connection:
        connection.sendall(head(PATHS[0], 10_000) + b"{")
        assert connection.recv(65536).startswith(b"HTTP/1.1 408 ")

        def trickle() -> None:
            end = time.monotonic() + 3
            while time.monotonic() < end:
                connection.sendall(b" ")
                time.sleep(0.02)

        with pytest.raises(OSError, match=r"reset|[Bb]roken"):
            trickle()


def reset(connection: socket.socket) -> None:
    """Leave without a goodbye."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


WAYS: dict[str, Callable[[socket.socket], None]] = {"close": socket.socket.close, "reset": reset}


@pytest.mark.parametrize("way", WAYS)
def test_clients_that_leave_before_or_in_the_middle_of_a_body(way: str, scene: Scene) -> None:
    with nothing_left(scene):
        scene.provider.seen.clear()
        for path in (*PATHS, "/v1/files", "/v1/models"):
            for sent in (b"", b"{", b'{"model":"m","messages":[' + SAID):
                connection = socket.create_connection(scene.address, timeout=10)
                connection.sendall(head(path, 5000) + sent)
                WAYS[way](connection)
                connection = socket.create_connection(scene.address, timeout=10)
                connection.sendall(
                    f'POST {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{{"a'.encode()
                )
                WAYS[way](connection)
        assert not [body for path, body, _ in scene.provider.seen if path in PATHS], "nothing unfinished is sent"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("stream", [False, True])
def test_clients_that_leave_while_the_provider_thinks(way: str, stream: bool, scene: Scene) -> None:
    came = 0
    enough = asyncio.Event()

    async def thinking(*_: Any) -> None:
        nonlocal came
        came += 1
        await enough.wait()

    data = json.dumps({"model": "m", "stream": stream, "messages": [json.loads(SAID)], "input": "hi"}).encode()
    with nothing_left(scene):
        scene.provider.answer = thinking
        for wanted, path in enumerate(PATHS * 3, 1):
            connection = socket.create_connection(scene.address, timeout=10)
            connection.sendall(head(path, len(data)) + data)
            until(lambda: came == wanted)  # noqa: B023
            WAYS[way](connection)
    scene.loops[0].call_soon_threadsafe(enough.set)


@pytest.mark.parametrize("way", WAYS)
def test_clients_that_leave_in_the_middle_of_a_stream(way: str, scene: Scene) -> None:
    ended = 0

    async def forever() -> AsyncIterator[bytes]:
        nonlocal ended
        try:
            while True:
                yield b'data: {"choices":[{"index":0,"delta":{"content":"more"}}]}\n\n' * 50
                await asyncio.sleep(0.005)
        finally:
            ended += 1

    data = json.dumps({"model": "m", "stream": True, "messages": [json.loads(SAID)], "input": "hi"}).encode()
    with nothing_left(scene):
        scene.provider.answer = lambda *_: StreamingResponse(forever(), media_type="text/event-stream")
        for n, path in enumerate([*PATHS, "/v1/threads/runs"] * 3, 1):
            connection = socket.create_connection(scene.address, timeout=10)
            connection.sendall(head(path, len(data)) + data)
            assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
            WAYS[way](connection)
            until(lambda: ended == n)  # noqa: B023 - the provider is not left talking to nobody


def test_a_client_that_does_not_read_holds_back_the_provider(scene: Scene) -> None:
    made = 0

    async def flood() -> AsyncIterator[bytes]:
        nonlocal made
        for _ in range(2000):
            made += 1
            yield b"data: " + b"x" * 65536 + b"\n\n"

    data = json.dumps({"model": "m", "stream": True, "messages": [json.loads(SAID)]}).encode()
    with nothing_left(scene):
        scene.provider.answer = lambda *_: StreamingResponse(flood(), media_type="text/event-stream")
        with connected(scene) as connection:
            connection.sendall(head(PATHS[0], len(data)) + data)
            connection.recv(10)
            last = -1
            while made != last:
                last = made
                time.sleep(0.15)
            assert made < 500, "what nobody reads is not fetched"


def until(what: Callable[[], bool]) -> None:
    """Wait until it is so; for at most five seconds."""
    end = time.monotonic() + 5
    while not what():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.005)


def test_many_at_once_of_one_conversation(scene: Scene) -> None:
    async def go() -> list[httpx2.Response]:
        said = [{"role": ("user", "assistant")[n % 2], "content": f"turn {n} " + "word " * 30} for n in range(21)]
        async with httpx2.AsyncClient(timeout=20) as http:
            calls = [
                http.post(scene.base + PATHS[0], json={"model": "m", "messages": said[: 5 + 2 * (n % 8)]})
                for n in range(40)
            ]
            return list(await asyncio.gather(*calls))

    scene.provider.answer = lambda *_: Said("fine")
    with nothing_left(scene, idle=45):
        answers = asyncio.run(go())
        assert {answer.status_code for answer in answers} == {200}
        assert {answer.headers["x-forgetless-outcome"] for answer in answers} <= {"unchanged", "compacted"}
