"""What the proxy has no part in goes through it as it came."""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from starlette.responses import Response

from asked import Start, ask, body, figure
from forgetless.stores.inmemory import InMemory
from live import Provider, Said, reply


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


@pytest.mark.parametrize("path", ["nothing", "conversations/x/pins/", "requests/"])
def test_paths_of_ours_never_go_upstream(
    path: str, provider: Provider, store: InMemory, start: Start, http: httpx2.Client
) -> None:
    url = f"{start(store)}/forgetless/{path}"
    for method in ("PUT", "GET", "DELETE", "POST"):
        answer = http.request(method, url, headers={"authorization": "Bearer secret"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    assert provider.seen == []
