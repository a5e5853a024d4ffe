"""Servers on loopback for tests: any ASGI app under uvicorn in a thread, and a provider that answers by script."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

__all__ = ["Provider", "serving"]


@contextmanager
def serving(app: Any, **options: Any) -> Iterator[str]:
    """Serve an app on a free port of loopback; hands on its base address."""
    with socket.socket(
        socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP
    ) as listener:  # else asyncio lets Nagle be
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=5, **options)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=asyncio.run, args=(server.serve([listener]),))
        thread.start()
        try:
            while not server.started:
                thread.join(0.005)
                assert thread.is_alive(), "the server did not start"
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


Answer = Callable[[str, dict[str, Any]], Any]


class Provider:
    """A provider that keeps what it was sent and answers "ok <n>" in whatever dialect it is asked.

    Attributes:
        seen: for each request its path, its body as bytes, and its headers.
        answer: takes a path and a body, gives a whole reply body, a (status, body) pair, a list of (event name, data)
            to stream, or None for the usual answer.
    """

    def __init__(self) -> None:
        self.seen: list[tuple[str, bytes, Mapping[str, str]]] = []
        self.answer: Answer | None = None
        self.app = Starlette(routes=[Route("/{path:path}", self._serve, methods=["GET", "POST", "DELETE"])])

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The bodies of all requests."""
        return [json.loads(body) for _, body, _ in self.seen if body]

    async def _serve(self, request: Request) -> Response:
        data = await request.body()
        path = request.url.path
        self.seen.append(
            (str(request.url.path) + (f"?{request.url.query}" if request.url.query else ""), data, request.headers)
        )
        body = json.loads(data) if data else {}
        made = self.answer(path, body) if self.answer is not None else None
        if isinstance(made, Awaitable):
            made = await made
        if isinstance(made, Response):
            return made
        if isinstance(made, tuple):
            return JSONResponse(made[1], made[0])
        if isinstance(made, dict):
            return JSONResponse(made)
        if made is None:
            made = reply(path, f"ok {len(self.seen)}", stream=bool(body.get("stream")), tokens=len(data) // 5)
        if isinstance(made, list):
            return StreamingResponse(_events(made), media_type="text/event-stream")
        return JSONResponse(made)


async def _events(events: list[tuple[str, Any]]) -> Any:
    for name, data in events:
        text = data if isinstance(data, str) else json.dumps(data)
        yield (f"event: {name}\n" if name else "") + f"data: {text}\n\n"


def reply(path: str, text: str, *, stream: bool = False, tokens: int = 11) -> Any:
    """A reply of a provider: a body, or the events of a stream."""
    if path.endswith("/messages"):
        return _anthropic(text, stream, tokens)
    if path.endswith("/responses"):
        return _responses(text, stream, tokens)
    if not path.endswith("/chat/completions"):
        return {"path": path}
    head = {"id": "chatcmpl-1", "created": 1, "model": "m"}
    usage = {
        "prompt_tokens": tokens,
        "completion_tokens": 2,
        "total_tokens": tokens + 2,
        "prompt_tokens_details": {"cached_tokens": 5},
    }
    if not stream:
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        return {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}, *({"content": piece} for piece in text)]
    events: list[tuple[str, Any]] = [("", _chunk(head, delta, None)) for delta in deltas]
    return [
        *events,
        ("", _chunk(head, {}, "stop")),
        ("", {**_chunk(head, {}, None), "choices": [], "usage": usage}),
        ("", "[DONE]"),
    ]


def _chunk(head: dict[str, Any], delta: Any, finish: str | None) -> dict[str, Any]:
    return {
        **head,
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }


def _anthropic(text: str, stream: bool, tokens: int) -> Any:
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
    usage = {
        "input_tokens": tokens - 5,
        "cache_read_input_tokens": 5,
        "cache_creation_input_tokens": 0,
        "output_tokens": 2,
    }
    if not stream:
        return {**head, "content": [{"type": "text", "text": text}], "stop_reason": "end_turn", "usage": usage}
    events: list[Any] = [
        {"type": "message_start", "message": {**head, "content": [], "stop_reason": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": p}} for p in text),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 2},
        },
        {"type": "message_stop"},
    ]
    return [(event["type"], event) for event in events]


def _responses(text: str, stream: bool, tokens: int) -> Any:
    item = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }
    usage = {
        "input_tokens": tokens,
        "input_tokens_details": {"cached_tokens": 5},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": tokens + 2,
    }
    whole = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": "completed",
        "output": [item],
        "usage": usage,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    if not stream:
        return whole
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    started = {**whole, "status": "in_progress", "output": [], "usage": None}
    events: list[Any] = [
        {"type": "response.created", "response": started},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**item, "content": [], "status": "in_progress"},
        },
        {
            "type": "response.content_part.added",
            **place,
            "part": {"type": "output_text", "text": "", "annotations": []},
        },
        *({"type": "response.output_text.delta", **place, "delta": piece, "logprobs": []} for piece in text),
        {"type": "response.output_text.done", **place, "text": text, "logprobs": []},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole},
    ]
    return [(event["type"], {**event, "sequence_number": n}) for n, event in enumerate(events)]
