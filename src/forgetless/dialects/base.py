"""What a dialect is: one provider's wire format, parsed into messages and emitted again without loss."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, Protocol, TypeAlias

from forgetless.errors import RequestError
from forgetless.messages import Message, Wire

__all__ = [
    "Body",
    "Dialect",
    "Request",
    "block_list",
    "detect",
    "ident",
    "input_tokens",
    "mapping",
    "messages_of",
    "parsed",
]

Body: TypeAlias = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""A whole request body, or its bare list of messages (chat, anthropic) or items (responses)."""


@dataclass(frozen=True, slots=True)
class Request:
    """A parsed request.

    Attributes:
        messages: a system prompt that stands outside the message list comes first.
        start: index of the first message: -1 with such a system prompt, else 0.
        fixed: the values of the body that a provider counts as input besides messages: tool schemas and the like.
        body: what it was parsed from.
        pins: indices of messages that the dialect's own rules tie to what must stay.
        held: whether the provider holds earlier messages, so that a result may answer a call that is not here.
    """

    messages: tuple[Message, ...]
    start: int
    fixed: tuple[Any, ...]
    body: Body
    pins: frozenset[int] = frozenset()
    held: bool = False

    @property
    def model(self) -> str | None:
        """The model asked for, where the body names one."""
        model = self.body.get("model") if isinstance(self.body, Mapping) else None
        return model if isinstance(model, str) else None

    @property
    def reply_tokens(self) -> int:
        """Most tokens that the reply may take, or 0 where the body does not say."""
        if isinstance(self.body, Mapping):
            for name in ("max_completion_tokens", "max_output_tokens", "max_tokens"):
                if isinstance(value := self.body.get(name), int):
                    return value
        return 0


class Dialect(Protocol):
    """One wire format. `emit(parse(body), parse(body).messages)` equals `body`.

    Attributes:
        name: as a user names it.
        key: the field of a body that holds the list of messages.
    """

    name: str
    key: str

    def parse(self, body: Body, known: Sequence[Message] = ()) -> Request:
        """Messages and all else that counts.

        Args:
            body: a body or a list of messages.
            known: what the first messages of the list were parsed to before, when they have not changed since.

        Raises:
            RequestError: the body is not of this dialect; names the message.
        """

    def wire(self, message: Message) -> Wire:
        """One message, as it stands in the list."""

    def emit(self, request: Request, messages: Sequence[Message]) -> Any:
        """A body of the same shape as `request.body` with `messages` in the place of its own."""


def parsed(
    wires: Sequence[Any], known: Sequence[Message], parse: Callable[[object, int], Message]
) -> tuple[Message, ...]:
    """The messages of a list whose first ones are `known`."""
    if not known:
        return tuple(map(parse, wires, count()))
    start = len(known)
    return (*known, *map(parse, islice(wires, start, None), count(start)))


def messages_of(body: Body, key: str) -> Sequence[Any]:
    """The list under `key` of a whole body, or the body itself when it is a bare list."""
    if isinstance(body, Mapping) and key not in body:
        raise RequestError(f"the request has no {key!r}")
    found = body.get(key) if isinstance(body, Mapping) else body
    if not isinstance(found, Sequence) or isinstance(found, str):
        raise RequestError(f"{key!r} must be a list, not {type(found).__name__}")
    return found


def mapping(value: object, what: str, index: int) -> Wire:
    """`value` when it is a mapping.

    Raises:
        RequestError: it is not.
    """
    if type(value) is not dict and not isinstance(value, Mapping):  # the second test is slow, and seldom needed
        hint = ": use its .model_dump(exclude_none=True)" if hasattr(value, "model_dump") else ""
        raise RequestError(f"{what} must be an object (a dict), not {type(value).__name__}{hint}", message=index)
    return value


def block_list(value: object, what: str, index: int) -> Iterable[Wire]:
    """The blocks of a content list, each a mapping with a `type`.

    Raises:
        RequestError: it is no list, or one of them is no such mapping.
    """
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise RequestError(f"{what} must be a string or a list, not {type(value).__name__}", message=index)
    for block in value:
        if not isinstance(mapping(block, f"each part of {what}", index).get("type"), str):
            raise RequestError(f"a part of {what} has no 'type'", message=index)
        yield block


def ident(wire: Wire, key: str) -> str:
    """An id; missing ones become "", which no call has, so that the pair shows as broken and not as an error here."""
    value = wire.get(key)
    return value if isinstance(value, str) else ""


def input_tokens(usage: object) -> int | None:
    """All tokens that a provider read for a request, from its usage (a dict, or an SDK's object), or None.

    `prompt_tokens` (Chat Completions, and what speaks like it) and the `input_tokens` of Responses are the sum;
    Anthropic reports what came from its cache and what went into it beside its `input_tokens`.
    """

    def counted(name: str) -> int:
        found = usage.get(name) if isinstance(usage, Mapping) else getattr(usage, name, None)
        return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else 0

    beside = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return counted("prompt_tokens") or sum(map(counted, beside)) or None


_ANTHROPIC = frozenset(
    {
        "tool_use",
        "tool_result",
        "thinking",
        "redacted_thinking",
        "server_tool_use",
        "document",
        "image",
        "search_result",
    }
)
_CHAT = frozenset({"image_url", "input_audio", "file", "refusal"})


def detect(body: Body) -> str:
    """The name of the dialect that a body or a list of messages is written in; `chat` where nothing tells."""
    if isinstance(body, Mapping):
        if body.get("input") and body.get("messages"):
            raise RequestError("the request has both 'messages' and 'input': a provider reads only one of them")
        if body.get("input") or ("messages" not in body and ("input" in body or "previous_response_id" in body)):
            return "responses"
        tools = body.get("tools")
        schemas = isinstance(tools, list) and any(isinstance(t, Mapping) and "input_schema" in t for t in tools)
        if "system" in body or "anthropic_version" in body or schemas:
            return "anthropic"
        body = messages_of(body, "messages")
    for message in body:
        if (type(message) is dict or isinstance(message, Mapping)) and (name := _told(message)):
            return name
    return "chat"


def _told(message: Wire) -> str | None:
    """The dialect that one message gives away, if it does; a system message may be of two."""
    if "type" in message and isinstance(message["type"], str):
        return "responses"
    if message.get("role") in ("tool", "function") or "tool_calls" in message:
        return "chat"
    content = message.get("content")
    if not isinstance(content, str) and isinstance(content, Sequence):
        kinds = {block.get("type") for block in content if isinstance(block, Mapping)}
        if kinds & _ANTHROPIC:
            return "anthropic"
        if kinds & _CHAT:
            return "chat"
        if any(isinstance(kind, str) and kind.startswith(("input_", "output_")) for kind in kinds):
            return "responses"
    return None
