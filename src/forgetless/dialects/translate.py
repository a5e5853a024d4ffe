"""From one dialect to another, by way of messages. Only what both sides can say passes; the rest is refused by name."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from forgetless.dialects.blocks import source
from forgetless.errors import RequestError
from forgetless.messages import Call, Media, Message, Opaque, Part, Result, Role, Text, Thinking

__all__ = ["to_anthropic", "to_chat"]


def to_anthropic(messages: Iterable[Message]) -> list[Message]:
    """Messages of any dialect as the Anthropic dialect wants them, ready for `Anthropic.emit`.

    System and developer messages come first, as one. Results in a row share one user message, directly behind
    their calls. Empty texts and empty messages, which Anthropic refuses, are gone, and so is foreign reasoning.

    Raises:
        RequestError: a part has no counterpart, or a call's arguments are no JSON object.
    """
    system: list[Part] = []
    turns: list[Message] = []
    for index, message in enumerate(messages):
        parts = tuple(_anthropic_parts(message, index))
        if not parts:
            continue
        if message.role in ("system", "developer"):
            system.extend(parts)
            continue
        role: Role = "assistant" if message.role == "assistant" else "user"
        last = turns[-1] if turns else None
        if last is not None and last.role == role and all(isinstance(p, Result) for p in last.parts + parts):
            turns[-1] = replace(last, parts=last.parts + parts)
        else:
            turns.append(Message(role, parts))
    return [Message("system", _listed(system)), *map(_block_form, turns)] if system else list(map(_block_form, turns))


def to_chat(messages: Iterable[Message]) -> list[Message]:
    """Messages of any dialect as Chat Completions wants them, ready for `Chat.emit`.

    Each result becomes a `tool` message of its own; the user's words in the same message follow the results.

    Raises:
        RequestError: a part has no counterpart.
    """
    out: list[Message] = []
    for index, message in enumerate(messages):
        out.extend(Message("tool", (Result(r.id, tuple(_texts(r.content, index))),)) for r in message.results)
        rest = tuple(_chat_parts(message, index))
        if rest:
            out.append(Message("user" if message.role == "tool" else message.role, rest))
    return out


def _anthropic_parts(message: Message, index: int) -> Iterator[Part]:
    for part in message.parts:
        match part:
            case Text(text=text):
                if text.strip():
                    yield Text(text)
            case Call(id=ident, name=name, arguments=arguments):
                yield Call(ident, name, _object(arguments, name, index))
            case Result(id=ident, content=content):
                yield Result(ident, tuple(_anthropic_parts(Message("user", content), index)))
            case Media():
                yield _anthropic_media(part, index)
            case Opaque(block=block):
                raise RequestError(f"{block.get('type', 'refusal')!r} can't be said in 'anthropic'", message=index)
            case Thinking():
                pass


def _object(arguments: str | Mapping[str, Any], name: str, index: int) -> Mapping[str, Any]:
    if not isinstance(arguments, str):
        return arguments
    try:
        given = json.loads(arguments or "{}")
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise RequestError(f"the arguments of {name!r} are no JSON object", message=index)
    return given


def _anthropic_media(media: Media, index: int) -> Media:
    kind, mime, data, url = source(media)
    if kind == "audio":
        raise RequestError("audio can't be said in 'anthropic'", message=index)
    held = {"type": "url", "url": url} if url else {"type": "base64", "media_type": mime, "data": data}
    return Media(media.kind, {"type": "image" if kind == "image" else "document", "source": held})


def _chat_parts(message: Message, index: int) -> Iterator[Part]:
    for part in message.parts:
        match part:
            case Text(text=text):
                yield Text(text)
            case Call(id=ident, name=name, arguments=arguments):
                yield Call(ident, name, arguments)
            case Media(kind="image"):
                _, mime, data, url = source(part)
                url = url or f"data:{mime};base64,{data}"
                yield Media("image", {"type": "image_url", "image_url": {"url": url}})
            case Media(kind=kind):
                raise RequestError(f"a {kind} can't be said in 'chat'", message=index)
            case Opaque(block=block):
                raise RequestError(f"{block.get('type', 'refusal')!r} can't be said in 'chat'", message=index)
            case Thinking() | Result():
                pass


def _texts(content: Sequence[Part], index: int) -> Iterator[Part]:
    for part in content:
        if not isinstance(part, Text):
            raise RequestError("a tool result that is not text can't be said in 'chat'", message=index)
        yield Text(part.text)


def _block_form(message: Message) -> Message:
    return replace(message, parts=_listed(message.parts))


def _listed(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Several texts must be blocks; a lone one may stay a bare string."""
    if len(parts) == 1:
        return tuple(parts)
    return tuple(replace(p, wire={"type": "text"}) if isinstance(p, Text) else p for p in parts)
