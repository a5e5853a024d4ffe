"""What OpenAI Chat Completions accepts.

Ids of calls need be unique in one message only: OpenAI names a duplicate among the answers to one message,
and servers of open models number the calls of each reply from `call_0`. Calls from before there were ids
(`function_call`) are not matched with their results: no report shows that OpenAI does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any

from forgetless.benchmarks.validators.base import Fault, filled, is_json, listed, sourced

__all__ = ["RULES", "validate"]

RULES: Mapping[str, str] = MappingProxyType(
    {
        "empty_messages": "[] is too short - 'messages'",
        "bad_role": "Invalid value for 'role': system, developer, user, assistant, tool or function",
        "bad_content_type": "Invalid type for 'content': a string or an array of content parts",
        "null_content": "Invalid value for 'content': expected a string, got null",
        "empty_content": "Invalid 'content': empty array, expected one with minimum length 1",
        "bad_block": "Invalid value for a part's 'type': each role takes its own parts only",
        "bad_text": "Missing or invalid 'text' of a text part",
        "image_without_source": "Missing required parameter 'image_url.url'",
        "audio_without_source": "Missing required parameter 'input_audio.data'",
        "file_without_source": "Missing required parameter: a file needs 'file_id' or 'file_data'",
        "empty_calls": "[] is too short - 'tool_calls'",
        "bad_call": "Missing required parameter of a tool call: 'type', 'function' or 'custom', its 'name'",
        "missing_id": "Missing required parameter 'id' of a call, 'tool_call_id' of a result",
        "arguments_not_json": "'arguments' must be a string of JSON: chat templates of open models parse it",
        "duplicate_call_id": "Duplicate value for 'tool_call_id' among the calls of one message",
        "orphan_result": "messages with role 'tool' must answer a preceding message with 'tool_calls'",
        "result_not_adjacent": "tool messages must follow the message with their 'tool_calls' directly",
        "duplicate_result": "Duplicate value for 'tool_call_id' in two tool messages",
        "missing_result": "a message with 'tool_calls' must be followed by tool messages for each id",
    }
)

_TEXT = frozenset({"text"})
_BLOCKS = {
    "system": _TEXT,
    "developer": _TEXT,
    "tool": _TEXT,
    "function": frozenset[str](),
    "user": frozenset({"text", "image_url", "input_audio", "file"}),
    "assistant": frozenset({"text", "refusal"}),
}

_BESIDE = {"assistant": ("tool_calls", "function_call", "refusal", "audio"), "function": ("name",)}
"""Fields beside which content may be null or missing."""


def validate(body: Any, *, pending_ok: bool = False, origin: Any = None) -> list[Fault]:  # noqa: ARG001
    """All faults of a Chat Completions request; `origin` is not needed, since nothing here is signed."""
    messages = listed(body, "messages")
    if not isinstance(messages, list) or not messages:
        return [Fault("empty_messages", "messages")]
    single = chain.from_iterable(_message(m, f"messages.{i}") for i, m in enumerate(messages))
    return [*single, *_pairs(messages, pending_ok)]


def _message(message: Any, where: str) -> Iterator[Fault]:
    role = message.get("role") if isinstance(message, Mapping) else None
    if role not in _BLOCKS:
        yield Fault("bad_role", where, repr(role))
        return
    content = message.get("content")
    if content is not None:
        yield from _content(content, role, f"{where}.content")
    elif not any(map(message.get, _BESIDE.get(role, ()))):
        yield Fault("null_content", where, role)
    if role == "tool" and not filled(message.get("tool_call_id")):
        yield Fault("missing_id", where)
    if "tool_calls" in message:
        yield from _calls(message["tool_calls"], f"{where}.tool_calls")


def _content(content: Any, role: str, where: str) -> Iterator[Fault]:
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        yield Fault("bad_content_type", where, type(content).__name__)
    elif not content:
        yield Fault("empty_content", where)
    else:
        for i, block in enumerate(content):
            yield from _block(block, role, f"{where}.{i}")


def _block(block: Any, role: str, where: str) -> Iterator[Fault]:
    kind = block.get("type") if isinstance(block, Mapping) else None
    if kind not in _BLOCKS[role]:
        yield Fault("bad_block", where, f"{kind!r} of {role}")
        return
    held = block.get(kind)
    inner = held if isinstance(held, Mapping) else {}
    match kind:
        case "image_url":
            yield from sourced("image", where, inner.get("url"))
        case "input_audio":
            yield from sourced("audio", where, inner.get("data"))
        case "file":
            yield from sourced("file", where, inner.get("file_id"), inner.get("file_data"))
        case _:
            if not isinstance(held, str):
                yield Fault("bad_text", where, repr(held))


def _calls(calls: Any, where: str) -> Iterator[Fault]:
    if not isinstance(calls, list) or not calls:
        yield Fault("empty_calls", where)
        return
    seen: set[str] = set()
    for i, call in enumerate(calls):
        at = f"{where}.{i}"
        ident = call.get("id") if isinstance(call, Mapping) else None
        if not isinstance(ident, str) or not ident:
            yield Fault("missing_id", at)
        elif ident in seen:
            yield Fault("duplicate_call_id", at, repr(ident))
        else:
            seen.add(ident)
        if isinstance(call, Mapping):
            yield from _call(call, at)


def _call(call: Mapping[str, Any], where: str) -> Iterator[Fault]:
    kind = call.get("type")
    inner = call.get(kind) if kind in ("function", "custom") else None
    if not isinstance(inner, Mapping) or not filled(inner.get("name")):
        yield Fault("bad_call", where, repr(kind))
    elif kind == "function":
        if not is_json(inner.get("arguments")):
            yield Fault("arguments_not_json", where, repr(inner.get("arguments")))
    elif not isinstance(inner.get("input"), str):
        yield Fault("bad_call", where, "a custom call without 'input'")


def _pairs(messages: list[Any], pending_ok: bool) -> Iterator[Fault]:
    waiting: list[str] = []
    answered: set[str] = set()
    earlier: set[str] = set()
    for i, message in enumerate(messages):
        where = f"messages.{i}"
        if not isinstance(message, Mapping) or message.get("role") != "tool":
            yield from (Fault("missing_result", where, repr(ident)) for ident in waiting)
            earlier.update(answered, waiting)
            waiting, answered = _ids(message), set()
            continue
        ident = message.get("tool_call_id")
        if ident in waiting:
            waiting.remove(ident)
            answered.add(ident)
        elif ident in answered:
            yield Fault("duplicate_result", where, repr(ident))
        else:
            yield Fault("result_not_adjacent" if ident in earlier else "orphan_result", where, repr(ident))
    if not pending_ok:
        yield from (Fault("missing_result", "messages", repr(ident)) for ident in waiting)


def _ids(message: Any) -> list[str]:
    calls = message.get("tool_calls") if isinstance(message, Mapping) else None
    found = [c.get("id") for c in calls if isinstance(c, Mapping)] if isinstance(calls, list) else []
    return list(dict.fromkeys(ident for ident in found if isinstance(ident, str)))
