"""Completions as replies of the dialects `responses` and `anthropic`, whole or as event streams.

A reply is a list of blocks, one text or one call each. Both ways give the same blocks the same ids.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from forgetless.errors import ModelError
from forgetless.replies.base import Completion, Usage
from forgetless.replies.chat import ChatReader
from forgetless.replies.loose import listed, mapping, place, string

__all__ = ["Block", "Head", "anthropic_reply", "blocks_of", "grown", "responses_item", "responses_reply"]


@dataclass(frozen=True, slots=True)
class Head:
    """What a reply says of itself before its first word.

    Attributes:
        created: seconds since the epoch.
        model: that answers.
        asked: the request.
        ident: of the reply.
    """

    created: int
    model: str
    asked: Mapping[str, Any]
    ident: str = field(default_factory=lambda: uuid4().hex)


@dataclass(slots=True)
class Block:
    """A text, or a call where `name` is not empty, whose arguments are the text.

    Attributes:
        index: of the block in the reply.
        text: all of it so far.
        ident: of the call.
        name: of the tool.
    """

    index: int
    text: str = ""
    ident: str = ""
    name: str = ""


def blocks_of(message: Mapping[str, Any]) -> list[Block]:
    """The blocks of a whole message."""
    content = message.get("content")
    text = string(content) or "".join(string(part.get("text")) for part in listed(content))
    found = [Block(0, text)] if text else []
    for call in listed(message.get("tool_calls")):
        function = mapping(call.get("function"))
        found.append(_call(len(found), call, string(function.get("arguments"))))
    return found


def grown(chunks: Iterable[Mapping[str, Any]], reader: ChatReader) -> Iterator[tuple[Block, str]]:
    """The blocks of a stream as they grow, each time with what was added; every chunk goes to `reader` too.

    A new block is a new object, and the ones before it are then whole.
    """
    block: Block | None = None
    at: object = None
    count = 0
    for chunk in chunks:
        reader.event("", chunk)
        for key, call, piece in _pieces(chunk):
            if block is None or key != at:
                block = Block(count) if call is None else _call(count, call, "")
                at, count = key, count + 1
            block.text += piece
            yield block, piece


def _pieces(chunk: Mapping[str, Any]) -> Iterator[tuple[object, Mapping[str, Any] | None, str]]:
    """What a chunk adds: to which block, the call where it is one, the text."""
    for choice in listed(chunk.get("choices"))[:1]:
        delta = mapping(choice.get("delta"))
        if text := string(delta.get("content")):
            yield "text", None, text
        for call in listed(delta.get("tool_calls")):
            yield place(call.get("index")), call, string(mapping(call.get("function")).get("arguments"))


def _call(index: int, call: Mapping[str, Any], arguments: str) -> Block:
    name = string(mapping(call.get("function")).get("name")) or "unnamed"
    return Block(index, arguments, string(call.get("id")) or f"call_{uuid4().hex}", name)


def responses_reply(head: Head, blocks: Iterable[Block] = (), done: Completion | None = None) -> dict[str, Any]:
    """A response object; one still in progress without `done`."""
    reason = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(done.finish if done else "")
    status = "in_progress" if done is None else "incomplete" if reason else "completed"
    asked = head.asked
    return {
        "id": f"resp_{head.ident}",
        "object": "response",
        "created_at": head.created,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": reason} if reason else None,
        "instructions": asked.get("instructions"),
        "max_output_tokens": asked.get("max_output_tokens"),
        "metadata": asked.get("metadata") or {},
        "model": head.model,
        "output": [responses_item(head, block) for block in blocks],
        "parallel_tool_calls": asked.get("parallel_tool_calls") is not False,
        "previous_response_id": None,
        "store": False,
        "temperature": asked.get("temperature"),
        "text": asked.get("text") or {"format": {"type": "text"}},
        "tool_choice": asked.get("tool_choice") or "auto",
        "tools": asked.get("tools") or [],
        "top_p": asked.get("top_p"),
        "truncation": "disabled",
        "usage": _responses_usage(done.usage) if done is not None and done.usage is not None else None,
    }


def responses_item(head: Head, block: Block, status: str = "completed") -> dict[str, Any]:
    """An output item."""
    at = f"{head.ident}_{block.index}"
    if block.name:
        held = {"call_id": block.ident, "name": block.name, "arguments": block.text}
        return {"id": f"fc_{at}", "type": "function_call", "status": status, **held}
    content = [] if status == "in_progress" else [{"type": "output_text", "text": block.text, "annotations": []}]
    return {"id": f"msg_{at}", "type": "message", "status": status, "role": "assistant", "content": content}


def _responses_usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.input + usage.output,
    }


def anthropic_reply(head: Head, blocks: Iterable[Block] = (), done: Completion | None = None) -> dict[str, Any]:
    """A message object; one that has only begun without `done`.

    Raises:
        ModelError: a call's arguments are no JSON object.
    """
    return {
        "id": f"msg_{head.ident}",
        "type": "message",
        "role": "assistant",
        "model": head.model,
        "content": [_anthropic_block(block) for block in blocks],
        "stop_reason": None if done is None else _STOPS.get(done.finish, "end_turn"),
        "stop_sequence": None,
        "usage": _anthropic_usage(None if done is None else done.usage),
    }


_STOPS = {"length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}


def _anthropic_block(block: Block) -> dict[str, Any]:
    if not block.name:
        return {"type": "text", "text": block.text}
    try:
        given = json.loads(block.text or "{}")
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise ModelError(f"the model called {block.name!r} with arguments that are no JSON object", status=502)
    return {"type": "tool_use", "id": block.ident, "name": block.name, "input": given}


def _anthropic_usage(usage: Usage | None) -> dict[str, int]:
    read, cached, written = (usage.input, usage.cached, usage.output) if usage else (0, 0, 0)
    return {
        "input_tokens": max(0, read - cached),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": written,
    }
