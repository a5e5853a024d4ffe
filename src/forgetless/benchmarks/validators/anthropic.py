"""What Anthropic Messages accepts. Messages of one role in a row are one turn to it, so they are no fault."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from forgetless.benchmarks.validators.base import Fault, blocks_of, canonical, listed, sourced

__all__ = ["RULES", "validate"]

RULES: Mapping[str, str] = MappingProxyType(
    {
        "empty_messages": "messages: at least one message is required",
        "bad_role": "messages.N.role: Input should be 'user', 'assistant' or 'system'",
        "first_not_user": 'messages: first message must use the "user" role',
        "system_misplaced": "a system message follows a user message; only an assistant one may follow it",
        "bad_content_type": "messages.N.content: Input should be a valid string or list",
        "empty_content": "all messages must have non-empty content but an optional final assistant one",
        "empty_text": "messages: text content blocks must be non-empty",
        "whitespace_text": "messages: text content blocks must contain non-whitespace text",
        "bad_block": "messages.N.content.M: Input tag does not match the expected tags of this role",
        "image_without_source": "messages.N.content.M.image.source: Field required",
        "file_without_source": "messages.N.content.M.document.source: Field required",
        "bad_call_id": "tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
        "input_not_object": "messages.N.content.M.tool_use.input: Input should be a valid dictionary",
        "duplicate_call_id": "messages.N.content.M: `tool_use` ids must be unique",
        "orphan_result": "unexpected `tool_use_id` found in `tool_result` blocks",
        "result_not_adjacent": "each `tool_result` needs its `tool_use` in the previous message",
        "duplicate_result": "each tool_use must have a single result; found multiple with id",
        "missing_result": "`tool_use` ids were found without `tool_result` blocks immediately after",
        "result_after_text": "messages following tool_use blocks must begin with their tool_result blocks",
        "server_result_without_use": "each server tool result must have a `server_tool_use` before it",
        "server_use_without_result": "`server_tool_use` was found without a corresponding result block",
        "thinking_unsigned": "thinking.signature (redacted_thinking.data): Field required",
        "thinking_changed": "`thinking` blocks must remain as they were in the original response",
        "thinking_not_first": "with `thinking` enabled, an open turn with tool use must start with thinking",
        "thinking_last": "the final block in an assistant message cannot be `thinking`",
        "final_assistant_trailing_space": "final assistant content cannot end with trailing whitespace",
        "too_many_cache_marks": "a maximum of 4 blocks with cache_control may be provided",
        "bad_cache_mark": "cache_control cannot be set for thinking blocks",
    }
)

_THINKING = frozenset({"thinking", "redacted_thinking"})
_USER = frozenset({"text", "image", "document", "search_result", "tool_result", "container_upload"})
_ASSISTANT = frozenset({"text", "tool_use", "server_tool_use", "fallback", "compaction", *_THINKING})
_RESULT = frozenset({"text", "image", "search_result", "document", "tool_reference", "browser_state"})
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_MOST_MARKS = 4


def validate(body: Any, *, pending_ok: bool = False, origin: Any = None) -> list[Fault]:
    """All faults of a Messages request."""
    messages = listed(body, "messages")
    if not isinstance(messages, list) or not messages:
        return [Fault("empty_messages", "messages")]
    head = body if isinstance(body, Mapping) else {}
    faults = list(_system(head.get("system")))
    for i, message in enumerate(messages):
        faults.extend(_message(message, f"messages.{i}", i == len(messages) - 1))
    faults.extend(_roles(messages))
    faults.extend(_pairs(messages, pending_ok))
    faults.extend(_ids(messages))
    faults.extend(_turn(messages, head.get("thinking")))
    faults.extend(_end(messages[-1]))
    faults.extend(_marks(head, messages))
    return faults if origin is None else [*faults, *_signed(messages, listed(origin, "messages"))]


def _kind(block: Any) -> Any:
    return block.get("type") if isinstance(block, Mapping) else None


def _role(message: Any) -> Any:
    return message.get("role") if isinstance(message, Mapping) else None


def _system(system: Any) -> Iterator[Fault]:
    if isinstance(system, list):
        for i, block in enumerate(system):
            yield from _text(block.get("text") if isinstance(block, Mapping) else None, f"system.{i}")


def _message(message: Any, where: str, final: bool) -> Iterator[Fault]:
    role = _role(message)
    if role not in ("user", "assistant", "system"):
        yield Fault("bad_role", where, repr(role))
        return
    content = message.get("content")
    if not isinstance(content, str | list):
        yield Fault("bad_content_type", where, type(content).__name__)
    elif not content:
        if role != "assistant" or not final:
            yield Fault("empty_content", where, role)
    elif isinstance(content, str):
        yield from _text(content, where)
    else:
        for i, block in enumerate(content):
            yield from _block(block, role, f"{where}.content.{i}")
        if role == "assistant" and _kind(content[-1]) in _THINKING:
            yield Fault("thinking_last", where)


def _allowed(kind: Any, role: str) -> bool:
    if role == "system":
        return bool(kind == "text")
    if role == "user":
        return kind in _USER
    return kind in _ASSISTANT or (isinstance(kind, str) and kind.endswith("_tool_result"))


def _block(block: Any, role: str, where: str) -> Iterator[Fault]:
    kind = _kind(block)
    if not _allowed(kind, role):
        yield Fault("bad_block", where, f"{kind!r} of {role}")
        return
    match kind:
        case "text":
            yield from _text(block.get("text"), where)
        case "image" | "document":
            yield from _media(block, where)
        case "tool_use":
            if not isinstance(block.get("input"), Mapping):
                yield Fault("input_not_object", where, repr(block.get("input")))
        case "tool_result":
            yield from _result(block.get("content"), f"{where}.content")
        case "thinking" if not _filled(block.get("signature")):
            yield Fault("thinking_unsigned", where)
        case "redacted_thinking" if not _filled(block.get("data")):
            yield Fault("thinking_unsigned", where)


def _result(content: Any, where: str) -> Iterator[Fault]:
    if content is None or isinstance(content, str):
        return
    if not isinstance(content, list):
        yield Fault("bad_content_type", where, type(content).__name__)
        return
    for i, block in enumerate(content):
        kind = _kind(block)
        if kind not in _RESULT:
            yield Fault("bad_block", f"{where}.{i}", f"{kind!r} of tool_result")
        elif kind == "text":
            yield from _text(block.get("text"), f"{where}.{i}")
        elif kind in ("image", "document"):
            yield from _media(block, f"{where}.{i}")


def _media(block: Mapping[str, Any], where: str) -> Iterator[Fault]:
    source = block.get("source")
    held = source if isinstance(source, Mapping) else {}
    values = [held.get(k) for k in ("data", "url", "file_id")]
    if "content" in held:  # a document given as blocks
        values.append(canonical(held["content"]))
    yield from sourced("image" if block["type"] == "image" else "file", where, *values)


def _text(text: Any, where: str) -> Iterator[Fault]:
    if not isinstance(text, str) or not text:
        yield Fault("empty_text", where)
    elif not text.strip():
        yield Fault("whitespace_text", where, repr(text))


def _roles(messages: Sequence[Any]) -> Iterator[Fault]:
    roles = [_role(message) for message in messages]
    if roles[0] == "assistant":
        yield Fault("first_not_user", "messages.0")
    for i, role in enumerate(roles):
        if role == "system":
            before = "user" if i and (roles[i - 1] == "user" or _ends_served(messages[i - 1])) else ""
            after = roles[i + 1] if i + 1 < len(roles) else "assistant"
            if not before or after != "assistant":
                yield Fault("system_misplaced", f"messages.{i}", f"between {roles[i - 1 : i]} and {after!r}")


def _ends_served(message: Any) -> bool:
    blocks = blocks_of(message)
    return bool(blocks) and str(_kind(blocks[-1])) not in ("text", "tool_use", "tool_result")


def _pairs(messages: Sequence[Any], pending_ok: bool) -> Iterator[Fault]:
    earlier: set[Any] = set()
    calls: list[Any] = []
    for i, message in enumerate(messages):
        blocks, where = blocks_of(message), f"messages.{i}"
        results = [b.get("tool_use_id") for b in blocks if _kind(b) == "tool_result"]
        yield from _answers(results, calls, earlier, where)
        yield from (Fault("missing_result", where, repr(c)) for c in dict.fromkeys(calls) if c not in results)
        kinds = [_kind(b) == "tool_result" for b in blocks]
        if kinds != sorted(kinds, reverse=True):
            yield Fault("result_after_text", where)
        earlier.update(calls)
        calls = [b.get("id") for b in blocks if _kind(b) == "tool_use"]
    if calls and not pending_ok:
        yield from (Fault("missing_result", "messages", repr(call)) for call in calls)


def _answers(results: list[Any], calls: list[Any], earlier: set[Any], where: str) -> Iterator[Fault]:
    for n, ident in enumerate(results):
        if ident not in calls:
            yield Fault("result_not_adjacent" if ident in earlier else "orphan_result", where, repr(ident))
        elif ident in results[:n]:
            yield Fault("duplicate_result", where, repr(ident))


def _ids(messages: Sequence[Any]) -> Iterator[Fault]:
    used: set[str] = set()
    for i, message in enumerate(messages):
        served: set[Any] = set()
        for block in blocks_of(message):
            kind, ident = str(_kind(block)), block.get("id")
            if kind in ("tool_use", "server_tool_use"):
                if not isinstance(ident, str) or not _ID.fullmatch(ident):
                    yield Fault("bad_call_id", f"messages.{i}", repr(ident))
                elif ident in used:
                    yield Fault("duplicate_call_id", f"messages.{i}", repr(ident))
                else:
                    used.add(ident)
            if kind == "server_tool_use":
                served.add(ident)
            elif kind.endswith("_tool_result"):
                if block.get("tool_use_id") not in served:
                    yield Fault("server_result_without_use", f"messages.{i}", repr(block.get("tool_use_id")))
                served.discard(block.get("tool_use_id"))
        if i + 1 < len(messages):  # the last one may be a paused turn
            yield from (Fault("server_use_without_result", f"messages.{i}", repr(ident)) for ident in served)


def _turn(messages: Sequence[Any], thinking: Any) -> Iterator[Fault]:
    """Adaptive thinking asks nothing of the order; enabled thinking must open the turn it goes on with."""
    if not isinstance(thinking, Mapping) or thinking.get("type") != "enabled":
        return
    start = max((i for i, m in enumerate(messages) if _role(m) == "user" and not _only_results(m)), default=-1)
    turn = [(i, blocks_of(m)) for i, m in enumerate(messages) if i > start and _role(m) == "assistant"]
    if any(_kind(b) == "tool_use" for _, blocks in turn for b in blocks):
        first, blocks = turn[0]
        if not blocks or _kind(blocks[0]) not in _THINKING:
            yield Fault("thinking_not_first", f"messages.{first}")


def _only_results(message: Any) -> bool:
    blocks = blocks_of(message)
    return bool(blocks) and all(_kind(b) == "tool_result" for b in blocks)


def _end(message: Any) -> Iterator[Fault]:
    if _role(message) != "assistant":
        return
    blocks = blocks_of(message)
    text = blocks[-1].get("text") if blocks and _kind(blocks[-1]) == "text" else message.get("content")
    if isinstance(text, str) and text != text.rstrip():
        yield Fault("final_assistant_trailing_space", "messages", repr(text[-10:]))


def _marks(head: Mapping[str, Any], messages: Sequence[Any]) -> Iterator[Fault]:
    system, tools = head.get("system"), head.get("tools")
    blocks = [b for held in (system, tools) if isinstance(held, list) for b in held if isinstance(b, Mapping)]
    for message in messages:
        for block in blocks_of(message):
            blocks.append(block)
            if block.get("cache_control") and _kind(block) in _THINKING:
                yield Fault("bad_cache_mark", "messages")
            blocks.extend(blocks_of(block))
    if (many := sum(1 for b in blocks if b.get("cache_control"))) > _MOST_MARKS:
        yield Fault("too_many_cache_marks", "messages", str(many))


def _signed(messages: Sequence[Any], origin: Any) -> Iterator[Fault]:
    """Reasoning that the provider never signed, and reasoning gone from the latest reply."""
    signed = {canonical(b) for m in origin for b in blocks_of(m) if _kind(b) in _THINKING}
    for i, message in enumerate(messages):
        for block in blocks_of(message):
            if _kind(block) in _THINKING and canonical(block) not in signed:
                yield Fault("thinking_changed", f"messages.{i}")
    last = next((m for m in reversed(messages) if _role(m) == "assistant"), None)
    calls = {b.get("id") for b in blocks_of(last) if _kind(b) == "tool_use"}
    for message in origin:
        if calls & {b.get("id") for b in blocks_of(message) if _kind(b) == "tool_use"}:
            before, after = ([b for b in blocks_of(m) if _kind(b) in _THINKING] for m in (message, last))
            if before != after:
                yield Fault("thinking_changed", "messages", "reasoning of the latest assistant message")


def _filled(value: object) -> bool:
    return isinstance(value, str) and bool(value)
