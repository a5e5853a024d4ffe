"""How a request offers the tool `recall`, carries its answers, and is sent the last time, in each dialect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forgetless.replies.loose import listed, mapping, string

__all__ = ["NAME", "answered", "form", "last", "offered", "takes"]

NAME = "recall"

_KEYS = {"chat": "messages", "responses": "input", "anthropic": "messages"}


def form(dialect: str, description: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The tool, as a dialect has it."""
    if dialect == "anthropic":
        return {"name": NAME, "description": description, "input_schema": parameters}
    told = {"name": NAME, "description": description, "parameters": parameters}
    return (
        {"type": "function", **told, "strict": False}
        if dialect == "responses"
        else {"type": "function", "function": told}
    )


def takes(dialect: str, request: Any) -> bool:
    """Whether the tool can be offered in a request: by a name that is free, and with a reply that is seen here."""
    if not isinstance(request, Mapping) or not isinstance(request.get(_KEYS[dialect]), list):
        return False
    if request.get("functions") or request.get("n") not in (None, 1) or request.get("background"):
        return False
    tools = request.get("tools") or []
    return isinstance(tools, list) and all(_name(tool) != NAME for tool in listed(tools))


def _name(tool: Mapping[str, Any]) -> str:
    return string(tool.get("name")) or string(mapping(tool.get("function") or tool.get("custom")).get("name"))


def offered(request: Mapping[str, Any], tool: Mapping[str, Any]) -> dict[str, Any]:
    """A request with the tool after the client's own."""
    return {**request, "tools": [*(request.get("tools") or ()), tool]}


def answered(
    dialect: str, request: Mapping[str, Any], reply: Sequence[Mapping[str, Any]], results: Sequence[tuple[str, str]]
) -> dict[str, Any]:
    """A request that goes on with the reply to it and what its calls have brought.

    Args:
        dialect: of the request.
        request: what was sent.
        reply: its messages; they call `recall` and nothing else.
        results: the id of each call, and its answer.
    """
    key = _KEYS[dialect]
    if dialect == "chat":
        back: list[Any] = [{"role": "tool", "tool_call_id": ident, "content": text} for ident, text in results]
    elif dialect == "responses":
        reply = _kept(reply) if request.get("store") is False else reply
        back = [{"type": "function_call_output", "call_id": ident, "output": text} for ident, text in results]
    else:
        blocks = [{"type": "tool_result", "tool_use_id": ident, "content": text} for ident, text in results]
        back = [{"role": "user", "content": blocks}]
    return {**request, key: [*request[key], *reply, *back]}


def _kept(items: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Items as a provider takes them back that keeps none: it knows no ids, and no reasoning but what is sealed."""
    return [
        {name: value for name, value in item.items() if name != "id"} if item.get("type") != "reasoning" else item
        for item in items
        if item.get("type") != "reasoning" or item.get("encrypted_content")
    ]


def last(dialect: str, request: Mapping[str, Any], client: Mapping[str, Any]) -> dict[str, Any]:
    """A request with calls of `recall` in it that the model can only answer in another way.

    Args:
        dialect: of the request.
        request: with the tool.
        client: the request as the client sent it.
    """
    if client.get("tools"):
        return {**request, "tools": client["tools"]}
    if dialect == "anthropic":  # where there are calls among the messages, there must be tools
        return {**request, "tool_choice": {"type": "none"}}
    return {key: value for key, value in request.items() if key != "tools"}
