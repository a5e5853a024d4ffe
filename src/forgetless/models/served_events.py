"""Chunks of a completion as the event stream of each dialect, an error in mid-stream included."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from forgetless.models.served_replies import Block, Head, anthropic_reply, grown, responses_item, responses_reply
from forgetless.replies.chat import ChatReader
from forgetless.replies.sse import encode

__all__ = ["broken", "events"]

Chunks = Iterable[Mapping[str, Any]]


def events(dialect: str, head: Head, chunks: Chunks) -> Iterator[bytes]:
    """The events of a whole stream."""
    if dialect == "chat":
        return _chat(chunks)
    return _responses(head, chunks) if dialect == "responses" else _anthropic(head, chunks)


def broken(dialect: str, head: Head, body: Mapping[str, Any]) -> bytes:
    """The event that ends a stream with an error; `body` is the dialect's error body."""
    if dialect == "chat":
        return encode(_json(body))
    if dialect == "anthropic":
        return encode(_json(body), "error")
    error = {"code": "server_error", "message": body["error"]["message"]}
    response = {**responses_reply(head), "status": "failed", "error": error}
    return encode(_json({"type": "response.failed", "response": response}), "response.failed")


def _chat(chunks: Chunks) -> Iterator[bytes]:
    for chunk in chunks:
        yield encode(_json(chunk))
    yield encode("[DONE]")


def _responses(head: Head, chunks: Chunks) -> Iterator[bytes]:
    for number, (name, data) in enumerate(_responses_events(head, chunks)):
        yield encode(_json({"type": name, "sequence_number": number, **data}), name)


def _responses_events(head: Head, chunks: Chunks) -> Iterator[tuple[str, dict[str, Any]]]:
    begun = responses_reply(head)
    yield "response.created", {"response": begun}
    yield "response.in_progress", {"response": begun}
    reader = ChatReader()
    blocks: list[Block] = []
    for block, piece in grown(chunks, reader):
        if not blocks or block is not blocks[-1]:
            if blocks:
                yield from _responses_end(head, blocks[-1])
            blocks.append(block)
            yield from _responses_start(head, block)
        if piece:
            about, kind, logprobs = _about(head, block)
            yield f"response.{kind}.delta", {**about, "delta": piece, **logprobs}
    if blocks:
        yield from _responses_end(head, blocks[-1])
    response = responses_reply(head, blocks, reader.done())
    yield f"response.{response['status']}", {"response": response}


def _about(head: Head, block: Block) -> tuple[dict[str, Any], str, dict[str, Any]]:
    """Where a block stands, what its events are called, and what they carry besides."""
    about = {"item_id": responses_item(head, block)["id"], "output_index": block.index}
    if block.name:
        return about, "function_call_arguments", {}
    return {**about, "content_index": 0}, "output_text", {"logprobs": []}


def _responses_start(head: Head, block: Block) -> Iterator[tuple[str, dict[str, Any]]]:
    item = responses_item(head, Block(block.index, "", block.ident, block.name), "in_progress")
    yield "response.output_item.added", {"output_index": block.index, "item": item}
    if not block.name:
        part = {"type": "output_text", "text": "", "annotations": []}
        yield "response.content_part.added", {**_about(head, block)[0], "part": part}


def _responses_end(head: Head, block: Block) -> Iterator[tuple[str, dict[str, Any]]]:
    about, kind, logprobs = _about(head, block)
    item = responses_item(head, block)
    if block.name:
        yield f"response.{kind}.done", {**about, "name": block.name, "arguments": block.text}
    else:
        yield f"response.{kind}.done", {**about, "text": block.text, **logprobs}
        yield "response.content_part.done", {**about, "part": item["content"][0]}
    yield "response.output_item.done", {"output_index": block.index, "item": item}


def _anthropic(head: Head, chunks: Chunks) -> Iterator[bytes]:
    for name, data in _anthropic_events(head, chunks):
        yield encode(_json({"type": name, **data}), name)


def _anthropic_events(head: Head, chunks: Chunks) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "message_start", {"message": anthropic_reply(head)}
    reader = ChatReader()
    last: Block | None = None
    for block, piece in grown(chunks, reader):
        if block is not last:
            if last is not None:
                yield "content_block_stop", {"index": last.index}
            last = block
            call = {"type": "tool_use", "id": block.ident, "name": block.name, "input": {}}
            began = call if block.name else {"type": "text", "text": ""}
            yield "content_block_start", {"index": block.index, "content_block": began}
        if piece:
            more = {"type": "input_json_delta", "partial_json": piece}
            delta = more if block.name else {"type": "text_delta", "text": piece}
            yield "content_block_delta", {"index": block.index, "delta": delta}
    if last is not None:
        yield "content_block_stop", {"index": last.index}
    whole = anthropic_reply(head, (), reader.done())
    stopped = {key: whole[key] for key in ("stop_reason", "stop_sequence")}
    yield "message_delta", {"delta": stopped, "usage": whole["usage"]}
    yield "message_stop", {}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
