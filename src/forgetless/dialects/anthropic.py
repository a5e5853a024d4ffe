"""Anthropic Messages: content blocks, `tool_use` answered by `tool_result` in the next user message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from forgetless.dialects.base import Body, Request, block_list, ident, mapping, messages_of, parsed
from forgetless.dialects.blocks import part, text_block
from forgetless.errors import RequestError
from forgetless.messages import Call, Media, Message, Opaque, Part, Result, Text, Thinking, Wire

__all__ = ["Anthropic"]

_COUNTED = ("tools", "output_format", "output_config")


class Anthropic:
    """The dialect `anthropic`."""

    name = "anthropic"
    key = "messages"

    def parse(self, body: Body, known: Sequence[Message] = ()) -> Request:
        """Parse a body or a list of messages.

        Raises:
            RequestError: names the message that is not one of this dialect.
        """
        messages = parsed(messages_of(body, "messages"), known, _message)
        pins = frozenset((*_beside_system(messages), *_first_thought(messages)))
        if not isinstance(body, Mapping):
            return Request(messages, 0, (), body, pins)
        fixed = tuple(body[k] for k in _COUNTED if body.get(k))
        system = (Message("system", _content(body["system"], -1)),) if body.get("system") else ()
        return Request((*system, *messages), -len(system), fixed, body, pins)

    def emit(self, request: Request, messages: Sequence[Message]) -> Any:
        """Emit `messages` in the shape of `request.body`."""
        listed = messages[1:] if request.start else messages
        wires = [_wire(message) for message in listed]
        if not isinstance(request.body, Mapping):
            return wires
        head = {"system": _blocks(messages[0].parts)} if request.start else {}
        return {**request.body, **head, "messages": wires}

    def wire(self, message: Message) -> Wire:
        """One message, as it stands in the list."""
        return _wire(message)


def _beside_system(messages: Sequence[Message]) -> Iterator[int]:
    """Neighbours of system messages in mid-conversation, which must stand behind a user's and before a reply."""
    for index in [index for index, message in enumerate(messages) if message.role == "system"]:
        yield from (i for i in (index - 1, index + 1) if 0 <= i < len(messages))


def _first_thought(messages: Sequence[Message]) -> Iterator[int]:
    """The first reply of the open turn where it alone carries the turn's thinking, which must open the turn."""
    turn = len(messages)
    while turn and (messages[turn - 1].role in ("assistant", "system") or _only_results(messages[turn - 1])):
        turn -= 1
    replies = [index for index in range(turn, len(messages)) if messages[index].role == "assistant"]
    thinks = [any(isinstance(p, Thinking) for p in messages[index].parts) for index in replies]
    if thinks and thinks[0] and not all(thinks):
        yield replies[0]


def _only_results(message: Message) -> bool:
    return bool(message.parts) and all(isinstance(part, Result) for part in message.parts)


def _message(wire: object, index: int) -> Message:
    wire = mapping(wire, "a message", index)
    role, content = wire.get("role"), wire.get("content")
    if role not in ("user", "assistant", "system"):
        raise RequestError(f"role {role!r} is not one of dialect 'anthropic'", message=index)
    if wire.get("tool_calls"):
        raise RequestError("'tool_calls' are of dialect 'chat', not 'anthropic'", message=index)
    if type(content) is str:
        return Message(role, (Text(content),), wire)
    return Message(role, _content(content, index), wire)


def _content(content: object, index: int) -> tuple[Part, ...]:
    if content is None:
        return ()
    if isinstance(content, str):
        return (Text(content),)
    return tuple(_part(block, index) for block in block_list(content, "content", index))


def _part(block: Wire, index: int) -> Part:
    match block["type"]:
        case "tool_use":
            given = block.get("input")
            return Call(ident(block, "id"), ident(block, "name"), given if isinstance(given, Mapping) else {}, block)
        case "tool_result":
            inner = _content(block.get("content"), index)
            # References load tools into the conversation: text in their place would unload them.
            fixed = any(isinstance(p, Opaque) for p in inner)
            return Result(ident(block, "tool_use_id"), inner, block, fixed)
        case "thinking":
            return Thinking(ident(block, "thinking"), block)
        case "redacted_thinking":
            return Thinking("", block, len(ident(block, "data")))
        case _:
            return part(block)


def _wire(message: Message) -> dict[str, Any]:
    wire = dict(message.wire) if message.wire is not None else {"role": message.role}
    if message.parts or message.wire is None:
        wire["content"] = _blocks(message.parts)
    return wire


def _blocks(parts: Sequence[Part]) -> Any:
    match parts:
        case [Text(text=text, wire=None)]:
            return text
        case _:
            return [_block(p) for p in parts]


def _block(part_: Part) -> Wire:
    match part_:
        case Text():
            return text_block(part_)
        case Media(block=block) | Opaque(block=block) | Thinking(wire=block):
            return dict(block)
        case Call(wire=block):
            made = {"type": "tool_use", "id": part_.id, "name": part_.name, "input": part_.arguments}
            return made if block is None else dict(block)
        case Result(content=content, wire=block):
            result = dict(block) if block is not None else {"type": "tool_result", "tool_use_id": part_.id}
            return {**result, "content": _blocks(content)} if content else result
