"""Servers on loopback for tests: any ASGI app under uvicorn in a thread, and a provider that answers by script."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

__all__ = ["Call", "Provider", "Said", "events", "reply", "serving"]


@contextmanager
def serving(app: Any, **options: Any) -> Iterator[str]:
    """Serve an app on a free port of loopback; hands on its base address."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:  # else Nagle's delay stays
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

Call = tuple[str, str, str]
"""A tool call: id, name, arguments as JSON text."""


METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


class Provider:
    """A provider that keeps what it was sent and answers "ok <n>" in whatever dialect it is asked.

    Attributes:
        seen: for each request its path with its query, its body as bytes, and its headers.
        answer: takes a path and a body, gives a `Said`, a whole reply body, a (status, body) pair, a list of (event
            name, data) to stream, a response, or None for the usual answer.
    """

    def __init__(self) -> None:
        self.seen: list[tuple[str, bytes, Mapping[str, str]]] = []
        self.answer: Answer | None = None
        self.app = Starlette(routes=[Route("/{path:path}", self._serve, methods=METHODS)])

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The bodies of all requests."""
        return [json.loads(body) for _, body, _ in self.seen if body]

    async def _serve(self, request: Request) -> Response:
        data = await request.body()
        scope = request.scope
        query = b"?" + scope["query_string"] if scope["query_string"] else b""
        self.seen.append(((scope["raw_path"] + query).decode("latin-1"), data, request.headers))
        n = len(self.seen)
        try:
            body = json.loads(data)
        except (ValueError, RecursionError):
            body = {}
        made = self.answer(request.url.path, body) if self.answer is not None else None
        if isinstance(made, Awaitable):
            made = await made
        if made is None:
            made = Said(f"ok {n}", tokens=len(data) // 5, n=n)
        if isinstance(made, Said):
            made = reply(request.url.path, made, stream=isinstance(body, dict) and bool(body.get("stream")))
        if isinstance(made, Response):
            return made
        if isinstance(made, tuple):
            return JSONResponse(made[1], made[0])
        if isinstance(made, list):
            return StreamingResponse(events(made), media_type="text/event-stream")
        return JSONResponse(made)


async def events(made: Sequence[tuple[str, Any]]) -> AsyncIterator[str]:
    """Events as they stand in a stream."""
    for name, data in made:
        text = data if isinstance(data, str) else json.dumps(data)
        yield (f"event: {name}\n" if name else "") + f"data: {text}\n\n"


def cut(text: str) -> list[str]:
    """A text in the pieces in which a stream brings it."""
    return [text[start : start + 7] for start in range(0, len(text), 7)]


@dataclass(frozen=True)
class Said:
    """A reply in no dialect: what is said, called and thought, and what the provider counts for the request."""

    text: str = ""
    calls: Sequence[Call] = ()
    thinking: str = ""
    tokens: int = 11
    n: int = 1


def reply(path: str, said: Said, *, stream: bool = False) -> Any:
    """A reply in the dialect of a path: a body, or the events of a stream; `said.n` makes its ids unique."""
    if path.endswith("/messages"):
        return _anthropic(said, stream)
    if path.endswith("/responses"):
        return _responses(said, stream)
    return _chat(said, stream) if path.endswith("/chat/completions") else {"path": path}


def _chat(said: Said, stream: bool) -> Any:
    head = {"id": f"chatcmpl-{said.n}", "created": 1, "model": "m"}
    usage = {
        "prompt_tokens": said.tokens,
        "completion_tokens": 2,
        "total_tokens": said.tokens + 2,
        "prompt_tokens_details": {"cached_tokens": 5},
    }
    calls = [
        {"id": ident, "type": "function", "function": {"name": name, "arguments": given}}
        for ident, name, given in said.calls
    ]
    finish = "tool_calls" if calls else "stop"
    if not stream:
        message: dict[str, Any] = {"role": "assistant", "content": said.text or None, "refusal": None}
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
        return {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
    deltas: list[dict[str, Any]] = [
        {"role": "assistant", "content": ""},
        *({"content": piece} for piece in cut(said.text)),
    ]
    for index, call in enumerate(calls):
        function = {"name": call["function"]["name"], "arguments": ""}  # type: ignore[index]
        pieces = ({"index": index, "function": {"arguments": piece}} for piece in cut(said.calls[index][2]))
        deltas += [{"tool_calls": [one]} for one in ({**call, "index": index, "function": function}, *pieces)]
    return [
        *(("", _chunk(head, delta, None)) for delta in deltas),
        ("", _chunk(head, {}, finish)),
        ("", {**_chunk(head, {}, None), "choices": [], "usage": usage}),
        ("", "[DONE]"),
    ]


def _chunk(head: dict[str, Any], delta: Any, finish: str | None) -> dict[str, Any]:
    return {
        **head,
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }


def _anthropic(said: Said, stream: bool) -> Any:
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
    usage = {
        "input_tokens": said.tokens - 5,
        "cache_read_input_tokens": 5,
        "cache_creation_input_tokens": 0,
        "output_tokens": 2,
    }
    blocks: list[dict[str, Any]] = []
    if said.thinking:
        blocks.append({"type": "thinking", "thinking": said.thinking, "signature": f"signed {said.thinking}"})
    if said.text:
        blocks.append({"type": "text", "text": said.text})
    blocks += [{"type": "tool_use", "id": i, "name": name, "input": json.loads(given)} for i, name, given in said.calls]
    why = "tool_use" if said.calls else "end_turn"
    if not stream:
        return {**head, "content": blocks, "stop_reason": why, "usage": usage}
    events: list[Any] = [
        {"type": "message_start", "message": {**head, "content": [], "stop_reason": None, "usage": usage}}
    ]
    for index, block in enumerate(blocks):
        opened, deltas = _grown(block)
        events.append({"type": "content_block_start", "index": index, "content_block": opened})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    ended = {"stop_reason": why, "stop_sequence": None}
    events += [{"type": "message_delta", "delta": ended, "usage": {"output_tokens": 2}}, {"type": "message_stop"}]
    return [(event["type"], event) for event in events]


def _grown(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A block as a stream opens it, and the deltas that follow."""
    match block["type"]:
        case "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in cut(block["text"])]
        case "thinking":
            deltas: list[dict[str, Any]] = [{"type": "thinking_delta", "thinking": block["thinking"]}]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
            return {**block, "thinking": "", "signature": ""}, deltas
        case _:
            given = json.dumps(block["input"])
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": piece} for piece in cut(given)]


def _responses(said: Said, stream: bool) -> Any:
    usage = {
        "input_tokens": said.tokens,
        "input_tokens_details": {"cached_tokens": 5},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": said.tokens + 2,
    }
    whole = {
        "id": f"resp_{said.n}",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": "completed",
        "output": list(_items(said)),
        "usage": usage,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    if not stream:
        return whole
    started = {**whole, "status": "in_progress", "output": [], "usage": None}
    events: list[Any] = [{"type": "response.created", "response": started}]
    for index, item in enumerate(_items(said)):
        events += _item_events(index, item)
    events.append({"type": "response.completed", "response": whole})
    return [(event["type"], {**event, "sequence_number": at}) for at, event in enumerate(events)]


def _items(said: Said) -> Iterator[dict[str, Any]]:
    if said.thinking:
        sealed = f"sealed {said.thinking}"
        yield {"id": f"rs_{said.n}", "type": "reasoning", "summary": [], "encrypted_content": sealed}
    done = {"status": "completed"}
    if said.text:
        part = {"type": "output_text", "text": said.text, "annotations": []}
        yield {"id": f"msg_{said.n}", "type": "message", "role": "assistant", **done, "content": [part]}
    for ident, name, given in said.calls:
        yield {"id": f"fc_{ident}", "type": "function_call", **done, "call_id": ident, "name": name, "arguments": given}


def _item_events(index: int, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    place = {"item_id": item["id"], "output_index": index}
    opened = {**item, **{key: value for key, value in (("content", []), ("arguments", "")) if key in item}}
    yield {"type": "response.output_item.added", "output_index": index, "item": opened}
    if item["type"] == "message":
        at = {**place, "content_index": 0}
        (part,) = item["content"]
        yield {"type": "response.content_part.added", **at, "part": {**part, "text": ""}}
        for piece in cut(part["text"]):
            yield {"type": "response.output_text.delta", **at, "delta": piece, "logprobs": []}
        yield {"type": "response.output_text.done", **at, "text": part["text"], "logprobs": []}
    elif item["type"] == "function_call":
        for piece in cut(item["arguments"]):
            yield {"type": "response.function_call_arguments.delta", **place, "delta": piece}
        given = {"arguments": item["arguments"], "name": item["name"]}
        yield {"type": "response.function_call_arguments.done", **place, **given}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}
