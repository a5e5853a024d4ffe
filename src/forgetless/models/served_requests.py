"""Requests in any dialect as bodies of Chat Completions, for a model that reads text and keeps no state.

Fields and parts that such a model can follow are translated; those that mean nothing to it are left out; all others
are refused by name where they ask for something.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from forgetless.dialects.base import Request
from forgetless.dialects.chat import Chat
from forgetless.dialects.translate import to_chat
from forgetless.errors import RequestError
from forgetless.messages import Call, Media, Message, Opaque, Part, Result
from forgetless.registry import load_dialect

__all__ = ["chat_body"]

_SAMPLING = {name: name for name in ("temperature", "top_p", "top_k", "parallel_tool_calls")}
_PASSED: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "chat": {
            name: name
            for name in (
                *_SAMPLING,
                *("max_tokens", "max_completion_tokens", "stop", "seed", "min_p", "repeat_penalty"),
                *("frequency_penalty", "presence_penalty", "logit_bias", "logprobs", "top_logprobs"),
                *("response_format", "stream_options", "tools", "tool_choice"),
            )
        },
        "responses": {**_SAMPLING, "max_output_tokens": "max_completion_tokens"},
        "anthropic": {**_SAMPLING, "max_tokens": "max_completion_tokens", "stop_sequences": "stop"},
    }
)
"""Fields of each dialect that the model follows, by their names in Chat Completions."""

_READ: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "chat": frozenset({"messages"}),
        "responses": frozenset({"input", "instructions", "tools", "tool_choice", "text"}),
        "anthropic": frozenset({"messages", "system", "tools", "tool_choice", "output_config"}),
    }
)
"""Fields that are translated one by one."""

_IDLE = frozenset(
    {
        *("model", "stream", "stream_options", "metadata", "user", "safety_identifier", "service_tier", "verbosity"),
        *("prompt_cache_key", "prompt_cache_retention", "cache_control", "client_metadata", "inference_geo"),
    }
)
"""Fields that mean nothing to a model that is alone."""

_PLAIN: Mapping[str, Any] = MappingProxyType(
    {
        "n": 1,
        "modalities": ["text"],
        "truncation": "disabled",
        "include": ["reasoning.encrypted_content"],
        "thinking": {"type": "disabled"},
        "reasoning_effort": "none",
    }
)
"""Values that ask for nothing beyond what a model does anyway."""


def chat_body(dialect: str, body: Mapping[str, Any], model: str) -> dict[str, Any]:
    """The body of Chat Completions that asks for the same.

    Args:
        dialect: of `body`.
        body: a request.
        model: named where something is refused.

    Raises:
        RequestError: it is not of its dialect, or asks for what the model can't do; says what.
    """
    body = _object(body, "a request")
    parsed = load_dialect(dialect).parse(body)
    out: dict[str, Any] = {"messages": _messages(dialect, parsed, model)}
    for name, value in body.items():
        if name in _PASSED[dialect]:
            if value is not None:
                out[_PASSED[dialect][name]] = value
        elif (
            name not in _READ[dialect] | _IDLE and value not in (None, False, "", [], {}) and value != _PLAIN.get(name)
        ):
            raise _cant(model, name)
    out |= _tools(dialect, body, model)
    if shape := _shape(dialect, body, model):
        out["response_format"] = shape
    return out


def _cant(model: str, what: object, index: int | None = None) -> RequestError:
    return RequestError(f"model {model!r} can't take {what!r}", message=index)


def _object(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise RequestError(f"{what} must be an object, not {type(value).__name__}")
    return value


def _messages(dialect: str, parsed: Request, model: str) -> list[Any]:
    for index, message in enumerate(parsed.messages, parsed.start):
        for part in message.parts:
            if (kind := _unread(part)) is not None:
                raise _cant(model, kind, index)
    messages = to_chat(parsed.messages)
    if not messages:
        raise RequestError("the request has no message with anything in it")
    if dialect == "responses":
        messages = list(_joined(messages))
    messages = [replace(m, role="system") if m.role == "developer" else m for m in messages]
    wires: list[Any] = Chat().emit(Request((), 0, (), []), messages)
    return wires


def _unread(part: Part) -> str | None:
    """What a text model can't read in a part, by its name on the wire."""
    match part:
        case Media(block=block):
            return str(block.get("type", "audio"))
        case Opaque(block=block):
            return str(block.get("type") or next(iter(block), None))
        case Call(wire=wire):
            kind = "function_call" if wire is None else str(wire.get("type", "function"))
            return None if wire is not None and kind in ("function", "function_call", "tool_use") else kind
        case Result(content=content, fixed=fixed, wire=wire):
            kind = str((wire or {}).get("type", "tool_result"))
            if kind not in ("tool_result", "function_call_output") or (fixed and kind != "tool_result"):
                return kind
            return next(filter(None, map(_unread, content)), None)
        case _:
            return None


def _joined(messages: Sequence[Message]) -> Iterator[Message]:
    """Items of Responses in which the assistant goes on speaking, as the one message that they are in Chat."""
    last: Message | None = None
    for message in messages:
        if last is not None and last.role == message.role == "assistant":
            last = replace(last, parts=last.parts + message.parts)
            continue
        if last is not None:
            yield last
        last = message
    if last is not None:
        yield last


def _tools(dialect: str, body: Mapping[str, Any], model: str) -> dict[str, Any]:
    tools = body.get("tools") or ()
    if not isinstance(tools, Sequence) or isinstance(tools, str):
        raise RequestError("'tools' must be a list")
    found: dict[str, Any] = {"tools": [_tool(dialect, _object(t, "a tool"), model) for t in tools]} if tools else {}
    choice = body.get("tool_choice")
    if tools and choice is not None and dialect != "chat":
        found["tool_choice"] = _choice(choice, model)
        if isinstance(choice, Mapping) and choice.get("disable_parallel_tool_use"):
            found["parallel_tool_calls"] = False
    return found


def _tool(dialect: str, tool: Mapping[str, Any], model: str) -> Mapping[str, Any]:
    kind = tool.get("type") or ("custom" if dialect == "anthropic" else None)
    if kind != ("custom" if dialect == "anthropic" else "function"):
        raise _cant(model, kind)
    if dialect == "chat":
        return tool
    renamed = {"input_schema": "parameters"}
    told = ("name", "description", "parameters", "input_schema", "strict")
    return {"type": "function", "function": {renamed.get(k, k): tool[k] for k in told if tool.get(k) is not None}}


_CHOICES = {"auto": "auto", "none": "none", "required": "required", "any": "required"}


def _choice(choice: object, model: str) -> Any:
    """What `responses` and `anthropic` say of the choice of tools."""
    kind = choice.get("type") if isinstance(choice, Mapping) else choice
    if kind in ("function", "tool") and isinstance(choice, Mapping):
        return {"type": "function", "function": {"name": choice.get("name")}}
    if not isinstance(kind, str) or kind not in _CHOICES:
        raise _cant(model, f"tool_choice {kind}")
    return _CHOICES[kind]


def _shape(dialect: str, body: Mapping[str, Any], model: str) -> dict[str, Any] | None:
    """The form of the reply that `responses` and `anthropic` ask for, as a `response_format`."""
    within = {"responses": "text", "anthropic": "output_config"}.get(dialect)
    if within is None or body.get(within) is None:
        return None
    said = _object(body[within], repr(within))
    if extra := next((key for key in said if key not in ("format", "verbosity") and said[key] is not None), None):
        raise _cant(model, f"{within}.{extra}")
    form = _object(said.get("format") or {"type": "text"}, "'format'")
    if form.get("type") == "json_schema":
        schema = {key: form[key] for key in ("name", "schema", "strict") if form.get(key) is not None}
        return {"type": "json_schema", "json_schema": {"name": "reply", **schema}}
    return None if form.get("type") == "text" else dict(form)
