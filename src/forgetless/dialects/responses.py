"""OpenAI Responses: a flat list of items; reasoning, calls and outputs are items of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from forgetless.dialects.base import Body, Request, block_list, ident, mapping, messages_of, parsed
from forgetless.dialects.blocks import part, text_block
from forgetless.errors import RequestError
from forgetless.messages import Call, Media, Message, Opaque, Part, Result, Role, Text, Thinking, Wire

__all__ = ["Responses"]

_ROLES = frozenset({"system", "developer", "user", "assistant"})
_COUNTED = ("tools", "text")

# Items that a client answers, with what they call and what they were given; the answer comes as `<type>_output`.
_ARGUMENTS = {
    "function_call": "arguments",
    "custom_tool_call": "input",
    "computer_call": "action",
    "local_shell_call": "action",
    "shell_call": "action",
    "apply_patch_call": "operation",
}
_OUTPUTS = frozenset(f"{kind}_output" for kind in _ARGUMENTS)


class Responses:
    """The dialect `responses`."""

    name = "responses"
    key = "input"

    def parse(self, body: Body, known: Sequence[Message] = ()) -> Request:
        """Parse a body or a list of items; `instructions` become a system message at index -1.

        Raises:
            RequestError: names the item that is not one of this dialect.
        """
        if isinstance(body, Mapping) and isinstance(text := body.get("input"), str):
            messages: tuple[Message, ...] = (Message("user", (Text(text),)),)
        else:
            messages = parsed(messages_of(body, "input"), known, _item)
        if not isinstance(body, Mapping):
            return Request(messages, 0, (), body)
        fixed = tuple(body[k] for k in _COUNTED if body.get(k))
        held = bool(body.get("previous_response_id") or body.get("conversation"))
        pins = frozenset(_answers(messages) if held else ())
        instructions = body.get("instructions") or ()
        system = (Message("system", (Text(instructions),)),) if isinstance(instructions, str) else ()
        if instructions and not system:
            fixed += (instructions,)
        return Request((*system, *messages), -len(system), fixed, body, pins, held)

    def emit(self, request: Request, messages: Sequence[Message]) -> Any:
        """Emit `messages` in the shape of `request.body`."""
        body = request.body
        listed = messages[1:] if request.start else messages
        if not isinstance(body, Mapping):
            return [_wire(message) for message in listed]
        if isinstance(body.get("input"), str):
            return {**body, "input": "".join(p.text for p in listed[0].parts if isinstance(p, Text))}
        return {**body, "input": [_wire(message) for message in listed]}

    def wire(self, message: Message) -> Wire:
        """One item, as it stands in the list."""
        return _wire(message)


def _answers(messages: Sequence[Message]) -> Iterator[int]:
    """Outputs whose calls are not here: the provider holds them and waits for the answer."""
    called: set[str] = set()
    for index, message in enumerate(messages):
        called.update(call.id for call in message.calls)
        if any(result.id not in called for result in message.results):
            yield index


def _item(wire: object, index: int) -> Message:
    wire = mapping(wire, "an item", index)
    kind = wire.get("type", "message" if "role" in wire else None)
    if not isinstance(kind, str):
        raise RequestError("an item needs a 'type' or a 'role'", message=index)
    if kind == "message":
        return _message(wire, index)
    if kind in _OUTPUTS:
        return Message("tool", (_result(wire),), wire)
    if kind == "mcp_approval_response":
        return Message("tool", (Result(ident(wire, "approval_request_id"), (), wire, fixed=True),), wire)
    return Message("assistant", (_acted(kind, wire),), wire)


def _acted(kind: str, wire: Wire) -> Part:
    """What a model did besides speaking, as one part."""
    if kind in _ARGUMENTS:
        given = wire.get(_ARGUMENTS[kind])
        name = ident(wire, "name") or kind.removesuffix("_call")
        return Call(_call_id(wire), name, given if isinstance(given, str | Mapping) else "", wire)
    if kind == "mcp_approval_request":
        return Call(ident(wire, "id"), ident(wire, "name"), ident(wire, "arguments"), wire)
    return _reasoning(wire) if kind == "reasoning" else Opaque(wire)


def _call_id(wire: Wire) -> str:
    return ident(wire, "call_id") or ident(wire, "id")


def _message(wire: Wire, index: int) -> Message:
    role, content = wire.get("role"), wire.get("content")
    if not isinstance(role, str) or role not in _ROLES:
        raise RequestError(f"role {role!r} is not one of dialect 'responses'", message=index)
    if isinstance(content, str):
        return Message(cast(Role, role), (Text(content),), wire)
    if content is None:
        return Message(cast(Role, role), (), wire)
    return Message(cast(Role, role), tuple(part(block) for block in block_list(content, "content", index)), wire)


def _result(wire: Wire) -> Result:
    output = wire.get("output")
    if isinstance(output, str):
        return Result(_call_id(wire), (Text(output),), wire)
    if isinstance(output, Mapping):
        inner = Media("image", output) if "image_url" in output else Opaque(output)
        return Result(_call_id(wire), (inner,), wire, fixed=True)
    blocks = output if isinstance(output, Sequence) else ()
    if all(isinstance(block, Mapping) and isinstance(block.get("type"), str) for block in blocks):
        return Result(_call_id(wire), tuple(map(part, blocks)), wire)
    return Result(_call_id(wire), (Opaque({"output": output}),), wire, fixed=True)


def _reasoning(wire: Wire) -> Thinking:
    texts = [
        ident(block, "text")
        for key in ("summary", "content")
        if isinstance(blocks := wire.get(key), Sequence)
        for block in blocks
        if isinstance(block, Mapping)
    ]
    return Thinking("\n".join(texts), wire, len(ident(wire, "encrypted_content")))


def _wire(message: Message) -> Wire:
    wire = message.wire
    if wire is None:
        return {"role": message.role, "content": _blocks(message.parts, message.role)}
    match message.parts:
        case [Call() | Thinking() | Opaque()] if wire.get("type", "message") != "message":
            return dict(wire)
        case [Result(content=content, fixed=fixed)]:
            return dict(wire) if fixed or not content else {**wire, "output": _blocks(content, "user")}
        case []:
            return dict(wire)
        case _:
            return {**wire, "content": _blocks(message.parts, message.role)}


def _blocks(parts: Sequence[Part], role: str) -> Any:
    match parts:
        case [Text(text=text, wire=None)]:
            return text
        case _:
            kind = "output_text" if role == "assistant" else "input_text"
            return [text_block(p, kind) if isinstance(p, Text) else dict(p.block) for p in parts]  # type: ignore[union-attr]
