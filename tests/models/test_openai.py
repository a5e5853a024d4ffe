"""A client of OpenAI-compatible servers, against a real server that answers as told."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from forgetless.errors import ConfigError, ModelError
from forgetless.models import openai
from forgetless.models.openai import OpenAI
from live import serving

KEY = "sk-secret-123"
HELLO = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}]}
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi \ud83d"}]}


class Server:
    """Answers with the next of `answers`, the last one again and again; keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: list[Response | Callable[[], Response]] = []
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str] = []

    async def handle(self, request: Request) -> Response:
        self.bodies.append(json.loads(await request.body()))
        self.keys.append(request.headers.get("authorization", ""))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return answer if isinstance(answer, Response) else answer()


@pytest.fixture(scope="module")
def address() -> Iterator[tuple[str, Server]]:
    server = Server()
    with serving(Starlette(routes=[Route("/v1/chat/completions", server.handle, methods=["POST"])])) as url:
        yield f"{url}/v1", server


@pytest.fixture
def server(address: tuple[str, Server]) -> Server:
    server = address[1]
    server.bodies, server.keys, server.answers = [], [], []
    return server


@pytest.fixture
def model(address: tuple[str, Server], monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAI]:
    monkeypatch.setattr(openai, "DELAY", 0.001)
    with closing(OpenAI(address[0], "small", KEY)) as made:
        yield made


def events(*data: Any) -> bytes:
    return b"".join(b"data: " + (d if isinstance(d, bytes) else json.dumps(d).encode()) + b"\n\n" for d in data)


def chunk(text: str, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}


def test_a_completion_and_what_was_asked(model: OpenAI, server: Server) -> None:
    server.answers = [JSONResponse(HELLO)]
    assert model({**ASK, "stream": True, "stream_options": {"include_usage": True}}) == HELLO
    assert model({**ASK, "model": "other"}) == HELLO
    first, second = server.bodies
    assert first == {"model": "small", "messages": [{"role": "user", "content": "Hi ?"}], "stream": False}
    assert second["model"] == "other"
    assert server.keys == [f"Bearer {KEY}"] * 2


def test_a_stream_ends_at_done_and_skips_comments(model: OpenAI, server: Server) -> None:
    sent = b": wait\r\n\r\n" + events(chunk("He"), chunk("llo", "stop"), b"[DONE]", chunk("never"))
    server.answers = [Response(sent, media_type="text/event-stream")]
    assert list(model.stream(ASK)) == [chunk("He"), chunk("llo", "stop")]
    assert server.bodies[0]["stream"] is True


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (events(chunk("He")), "broke off"),
        (events(chunk("He"), {"error": {"message": "out of memory"}}), "out of memory"),
        (events(chunk("He"), b"{not json"), "{not json"),
        (events(chunk("He"), [1]), "no chunk"),
    ],
)
def test_a_stream_that_goes_wrong(model: OpenAI, server: Server, sent: bytes, told: str) -> None:
    server.answers = [Response(sent)]
    stream = model.stream(ASK)
    assert next(stream) == chunk("He")
    with pytest.raises(ModelError, match=told):
        list(stream)


@pytest.mark.parametrize(
    ("answer", "status", "told"),
    [
        (JSONResponse({"error": {"message": f"no such key {KEY}", "code": KEY}}, 401), 401, r"no such key \*\*\*"),
        (Response("<h1>Not here</h1>", 404), 404, "Not here"),
        (JSONResponse({}, 400), 400, "refused the request"),
        (JSONResponse({"error": "bad"}), 200, "bad"),
        (JSONResponse({"choices": []}), 200, "no completion"),
        (Response("hello"), 200, "hello"),
        (Response("", 302, headers={"location": "/elsewhere"}), 302, "refused the request"),
    ],
)
def test_an_error_has_the_servers_words_and_not_the_key(
    model: OpenAI, server: Server, answer: Response, status: int, told: str
) -> None:
    server.answers = [answer]
    with pytest.raises(ModelError, match=told) as caught:
        model(ASK)
    assert caught.value.status == status
    assert KEY not in f"{caught.value}{caught.value!r}{caught.value.body}{model!r}{vars(caught.value)}"
    assert len(server.bodies) == 1, "what would fail again is not sent again"


def test_what_may_pass_is_tried_again(model: OpenAI, server: Server) -> None:
    busy = JSONResponse({"error": {"message": "busy"}}, 429, headers={"retry-after": "0"})
    server.answers = [busy, Response("", 503, headers={"retry-after": "soon"}), JSONResponse(HELLO)]
    assert model(ASK) == HELLO
    server.answers = [Response("", 529)]
    with pytest.raises(ModelError) as caught:
        list(model.stream(ASK))
    assert caught.value.status == 529
    assert len(server.bodies) == 3 + openai.TRIES


def test_a_server_that_wants_long_rest_is_left_alone(model: OpenAI, server: Server) -> None:
    server.answers = [JSONResponse({"error": {"message": "busy"}}, 429, headers={"retry-after": "3600"})]
    with pytest.raises(ModelError, match="busy"):
        model(ASK)
    assert len(server.bodies) == 1


def test_closing_a_stream_closes_the_connection(model: OpenAI, server: Server) -> None:
    gone = threading.Event()

    async def endless() -> AsyncIterator[bytes]:
        try:
            while True:
                yield events(chunk("more " * 1000))
                await asyncio.sleep(0)
        finally:
            gone.set()

    server.answers = [lambda: StreamingResponse(endless())]
    stream = model.stream(ASK)
    next(stream)
    assert not gone.is_set()
    stream.close()
    assert gone.wait(5)


def test_broken_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai, "DELAY", 0.001)
    heard: list[bytes] = []

    def answer(listener: socket.socket) -> None:
        for reply in (b"", b"", b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n" + events(chunk("He"))):
            connection, _ = listener.accept()
            with connection:
                heard.append(connection.recv(65536))
                connection.sendall(reply)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with closing(OpenAI(url, "m", "")) as broken:
            stream = broken.stream(ASK)
            assert next(stream) == chunk("He"), "the third try was answered"
            with pytest.raises(ModelError, match="could not be reached"):
                next(stream)
        thread.join()
    assert len(heard) == 3
    assert b"uthorization" not in heard[0]
    with closing(OpenAI(url, "m", KEY)) as absent, pytest.raises(ModelError, match="not be reached") as caught:
        absent(ASK)
    assert caught.value.status is None


def test_the_key_of_the_environment_and_a_proxy_that_is_none_of_its_business(
    address: tuple[str, Server], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\n")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    server.answers = [JSONResponse(HELLO)]
    with closing(OpenAI(address[0].replace("//", "//user:pass@"), "gpt-4o")) as made:
        assert made.window == 128_000
        assert "pass" not in repr(made)
        made(ASK)
    assert server.bodies


@pytest.mark.parametrize("url", ["", "localhost:80", "ftp://host/v1", "http://", "http:///v1", "http://a b\n"])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(ConfigError):
        OpenAI(url, "m", "k")


@pytest.mark.parametrize("key", ["two\nlines", "schlüssel"])
def test_a_key_that_no_header_carries(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        OpenAI("http://localhost/v1", "m", key)
    assert key not in str(caught.value)
