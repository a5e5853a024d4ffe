"""A provider that answers at once, or at a pace that the request asks for: what stands behind every proxy measured.

Run as a script. It speaks all three dialects. The last message says how it is to be answered: one that ends in
`[client events pause]` gets so many pieces, each `client:number:time ` and each after a pause of so many seconds, the
time being that of the system's monotonic clock. Any other gets a text made from it, the same each time.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from hashlib import blake2b
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from forgetless.benchmarks.loopback import serve
from forgetless.models.served_events import events
from forgetless.models.served_replies import Block, Head, anthropic_reply, responses_reply
from forgetless.replies.base import Completion, Usage

__all__ = ["PATHS", "app", "asking"]

PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "anthropic": "/v1/messages"}
"""Where each dialect is spoken."""

USAGE = Usage(input=1_000, cached=0, output=10)
WORDS = 80

_ASKED = re.compile(r"\[(\d+) (\d+) ([\d.]+)\]$")


class _Body(msgspec.Struct):
    """As much of a request as is looked at: not the history."""

    stream: bool = False
    messages: list[msgspec.Raw] = []
    input: list[msgspec.Raw] = []


def asking(client: int, events: int, pause: float) -> str:
    """The end of a message that wants an answer at a pace."""
    return f"[{client} {events} {pause}]"


def _last(body: _Body) -> str:
    listed = body.messages or body.input
    content = msgspec.json.decode(listed[-1])["content"] if listed else ""
    return content if isinstance(content, str) else json.dumps(content)


def _answer(text: str) -> str:
    """About as long as the messages of the benchmark's histories."""
    return " ".join(blake2b(f"{n}{text}".encode(), digest_size=2).hexdigest() for n in range(WORDS))


async def _pieces(text: str) -> AsyncIterator[str]:
    if (asked := _ASKED.search(text)) is None:
        yield _answer(text)
        return
    start, pause = time.monotonic(), float(asked[3])
    for number in range(int(asked[2])):
        await asyncio.sleep(start + (number + 1) * pause - time.monotonic())
        yield f"{asked[1]}:{number}:{time.monotonic():.6f} "


def _head() -> Head:
    return Head(int(time.time()), "mock", {})


def _whole(dialect: str, text: str) -> dict[str, Any]:
    head = _head()
    done = Completion((), USAGE, "stop")
    if dialect == "responses":
        return responses_reply(head, [Block(0, text)], done)
    if dialect == "anthropic":
        return anthropic_reply(head, [Block(0, text)], done)
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {**_about(head, "chat.completion"), "choices": [choice], "usage": _usage()}


def _about(head: Head, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{head.ident}", "object": kind, "created": head.created, "model": head.model}


def _usage() -> dict[str, int]:
    return {
        "prompt_tokens": USAGE.input,
        "completion_tokens": USAGE.output,
        "total_tokens": USAGE.input + USAGE.output,
    }


async def _stream(dialect: str, text: str) -> AsyncIterator[bytes]:
    """The events of a stream, each as soon as its piece is there."""
    head, waiting = _head(), list[dict[str, Any]]()

    def chunk(delta: dict[str, str], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {**_about(head, "chat.completion.chunk"), "choices": [choice]}

    if dialect == "chat":
        yield _event(chunk({"role": "assistant", "content": ""}))
        async for piece in _pieces(text):
            yield _event(chunk({"content": piece}))
        yield _event(chunk({}, "stop"))
        yield _event({**_about(head, "chat.completion.chunk"), "choices": [], "usage": _usage()})
        yield b"data: [DONE]\n\n"
        return
    async for piece in _pieces(text):
        waiting.append(chunk({"content": piece}))
    waiting += [chunk({}, "stop"), {**chunk({}), "choices": [], "usage": _usage()}]
    for event in events(dialect, head, waiting):
        yield event
        await asyncio.sleep(0)


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


def _route(dialect: str) -> Route:
    async def answer(request: Request) -> Response:
        body = msgspec.json.decode(await request.body(), type=_Body)
        text = _last(body)
        if body.stream:
            return StreamingResponse(_stream(dialect, text), media_type="text/event-stream")
        said = "".join([piece async for piece in _pieces(text)])
        return Response(msgspec.json.encode(_whole(dialect, said)), media_type="application/json")

    return Route(PATHS[dialect], answer, methods=["POST"])


def app() -> Starlette:
    """The provider."""
    return Starlette(routes=list(map(_route, PATHS)))


if __name__ == "__main__":
    serve(app())
