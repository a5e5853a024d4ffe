"""OpenAI Chat Completions: `messages` with `tool_calls`, and `tool` messages that answer them by id."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from forgetless.dialects.base import Body, Request, block_list, ident, mapping, messages_of, parsed
from forgetless.dialects.blocks import part, text_block
from forgetless.errors import RequestError
from forgetless.messages import Call, Media, Message, Opaque, Part, Result, Role, Text, Thinking, Wire

__all__ = ["Chat"]

_SPEAKERS = frozenset({"system", "developer", "user", "assistant"})
_COUNTED = ("tools", "functions", "response_format")
_THOUGHTS = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks")  # servers differ
_FOREIGN = frozenset({"tool_use", "tool_result"})  # taken for opaque, they would lose their pairs
_LEGACY = "function_call:"  # the id space of calls from before there were ids; they match by name


class Chat:
    """The dialect `chat`."""

    name = "chat"
    key = "messages"

    def parse(self, body: Body, known: Sequence[Message] = ()) -> Request:
        """Parse a body or a list of messages.

        Raises:
            RequestError: names the message that is not one of this dialect.
        """
        messages = parsed(messages_of(body, "messages"), known, _message)
        fixed = tuple(body[k] for k in _COUNTED if body.get(k)) if isinstance(body, Mapping) else ()
        return Request(messages, 0, fixed, body)

    def emit(self, request: Request, messages: Sequence[Message]) -> Any:
        """Emit `messages` in the shape of `request.body`."""
        wires = [_wire(message) for message in messages]
        return {**request.body, "messages": wires} if isinstance(request.body, Mapping) else wires

    def wire(self, message: Message) -> Wire:
        """One message, as it stands in the list."""
        return _wire(message)


def _message(wire: object, index: int) -> Message:
    wire = mapping(wire, "a message", index)
    role, content = wire.get("role"), wire.get("content")
    if not isinstance(role, str):
        raise RequestError(f"a message needs a role, and {role!r} is none", message=index)
    if role in _SPEAKERS:
        if type(content) is str and len(wire) == 2:
            return Message(cast(Role, role), (Text(content),), wire)
        parts = _content(content, index)
        return Message(cast(Role, role), parts if role != "assistant" else _assistant(wire, parts, index), wire)
    if role == "tool":
        return Message("tool", (Result(ident(wire, "tool_call_id"), _content(content, index)),), wire)
    if role == "function":
        return Message("tool", (Result(_LEGACY + ident(wire, "name"), _content(content, index)),), wire)
    raise RequestError(f"role {role!r} is not one of dialect 'chat'", message=index)


def _content(content: object, index: int) -> tuple[Part, ...]:
    if content is None:
        return ()
    if isinstance(content, str):
        return (Text(content),)
    blocks = tuple(block_list(content, "content", index))
    if foreign := next((b["type"] for b in blocks if b["type"] in _FOREIGN), None):
        raise RequestError(f"a {foreign!r} block is of dialect 'anthropic', not 'chat'", message=index)
    return tuple(map(part, blocks))


def _assistant(wire: Wire, content: tuple[Part, ...], index: int) -> tuple[Part, ...]:
    """Reasoning, content, refusal and audio, calls: the order in which a model wrote them."""
    parts: list[Part] = []
    if thoughts := [_readable(wire[key]) for key in _THOUGHTS if wire.get(key)]:
        parts.append(Thinking(max(thoughts, key=len), wire))  # servers send the same thought under several names
    parts.extend(content)
    if isinstance(refusal := wire.get("refusal"), str) and refusal:
        parts.append(Opaque({"refusal": refusal}))
    if isinstance(audio := wire.get("audio"), Mapping):
        parts.append(Media("audio", audio))
    if (calls := wire.get("tool_calls")) is not None:
        if not isinstance(calls, Sequence) or isinstance(calls, str):
            raise RequestError("'tool_calls' must be a list", message=index)
        parts.extend(_call(mapping(call, "a tool call", index)) for call in calls)
    if isinstance(legacy := wire.get("function_call"), Mapping):
        parts.append(Call(_LEGACY + ident(legacy, "name"), ident(legacy, "name"), ident(legacy, "arguments")))
    return tuple(parts)


def _readable(thought: object) -> str:
    return thought if isinstance(thought, str) else json.dumps(thought, ensure_ascii=False, default=str)


def _call(wire: Wire) -> Call:
    inner, field = wire.get("function"), "arguments"
    if not isinstance(inner, Mapping):
        inner, field = wire.get("custom"), "input"
    if not isinstance(inner, Mapping):
        return Call(ident(wire, "id"), "", "", wire)
    arguments = inner.get(field)
    given = arguments if isinstance(arguments, str | Mapping) else ""
    return Call(ident(wire, "id"), ident(inner, "name"), given, wire)


def _wire(message: Message) -> dict[str, Any]:
    wire: dict[str, Any] = dict(message.wire) if message.wire is not None else {"role": message.role}
    if message.role == "tool":
        (result,) = message.results
        if message.wire is None:
            wire["tool_call_id"] = result.id
        _put_content(wire, result.content)
        return wire
    parts = message.parts
    _put_content(wire, [p for p in parts if _is_content(p)])
    if message.role == "assistant":
        calls = [call for call in message.calls if not call.id.startswith(_LEGACY)]
        if calls:
            wire["tool_calls"] = [_call_wire(call) for call in calls]
        if not any(isinstance(p, Thinking) for p in parts):
            wire = {key: value for key, value in wire.items() if not (key in _THOUGHTS and value)}
    return wire


def _is_content(part_: Part) -> bool:
    """Whether a part stands in `content`; refusal and audio of an assistant stand beside it."""
    match part_:
        case Text():
            return True
        case Media(block=block) | Opaque(block=block):
            return "type" in block
        case _:
            return False


def _put_content(wire: dict[str, Any], parts: Sequence[Part]) -> None:
    match parts:
        case []:
            if wire.get("content"):
                wire["content"] = None
        case [Text(text=text, wire=None)]:
            wire["content"] = text
        case _:
            wire["content"] = [text_block(p) if isinstance(p, Text) else dict(p.block) for p in parts]  # type: ignore[union-attr]


def _call_wire(call: Call) -> dict[str, Any]:
    if call.wire is not None:
        return dict(call.wire)
    arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments, ensure_ascii=False)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}
