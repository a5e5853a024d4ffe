"""Replies of Chat Completions, and of the many servers that speak like it; of several choices the first is read.

A message is given as a client sends it back: without fields that are null or empty, and without the numbers that
only order a stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forgetless.replies.base import Completion, Usage
from forgetless.replies.growing import Record, grow, whole
from forgetless.replies.loose import count, fault, listed, mapping, place, string

__all__ = ["ChatReader"]


class ChatReader:
    """Reads a reply of the dialect `chat`."""

    def __init__(self) -> None:
        self._message: Record | None = None
        self._calls = _Calls()
        self._usage: Usage | None = None
        self._finish = ""
        self._error: Mapping[str, Any] | None = None

    def body(self, body: Mapping[str, Any]) -> None:
        """Take a whole reply body, or an error body."""
        self.event("", body)

    def event(self, name: str, data: Any) -> None:
        """Take one chunk; its `usage` counts for the whole reply so far."""
        if not isinstance(data, Mapping):
            return
        self._error = fault(data) or self._error
        self._usage = _usage(mapping(data.get("usage"))) or self._usage
        for position, choice in enumerate(listed(data.get("choices"))):
            index = count(choice.get("index"))
            if (position if index is None else index) == 0:
                self._choice(choice)

    def done(self) -> Completion:
        """What was read so far, as one reply."""
        message = _history(whole(self._message), self._calls.rows()) if self._message is not None else {}
        said = self._finish or any(value for key, value in message.items() if key != "role")
        return Completion((message,) if said else (), self._usage, self._finish, self._error)

    def _choice(self, choice: Mapping[str, Any]) -> None:
        self._finish = string(choice.get("finish_reason")) or self._finish
        delta, message = choice.get("delta"), choice.get("message")
        if isinstance(delta, Mapping):
            if self._message is None:
                self._message = Record()
            grow(self._message, {key: value for key, value in delta.items() if key != "tool_calls"})
            for call in listed(delta.get("tool_calls")):
                self._calls.add(call)
        elif isinstance(message, Mapping):
            self._message = Record(message)
            self._message.pop("tool_calls", None)
            self._calls = _Calls(listed(message.get("tool_calls")))


class _Calls:
    """Tool calls, put together from deltas of servers that number them, name them, or do neither."""

    def __init__(self, calls: list[Mapping[str, Any]] | None = None) -> None:
        self._calls = [Record(call) for call in calls or ()]
        self._places = list(range(len(self._calls)))
        self._at: dict[int, Record] = {}
        self._of: dict[str, Record] = {}

    def add(self, delta: Mapping[str, Any]) -> None:
        """Add to the call that a delta goes on, or begin one."""
        index, name = place(delta.get("index")), string(delta.get("id"))
        call = self._at.get(index) if index >= 0 else self._of.get(name)
        if index < 0 and call is None and not (name and _named(delta)):
            call = self._calls[-1] if self._calls else None
        if call is None or _another(call, delta, numbered=index >= 0):
            call = Record()
            self._places.append(index if index >= 0 else len(self._calls))
            self._calls.append(call)
        if index >= 0:
            self._at[index] = call
        if name:
            self._of[name] = call
        grow(call, delta)

    def rows(self) -> list[dict[str, Any]]:
        """The calls in their order, as they stand in a message."""
        ordered = sorted(zip(self._places, range(len(self._calls)), strict=True))
        return [_call(whole(self._calls[at])) for _, at in ordered]


def _another(call: Record, delta: Mapping[str, Any], *, numbered: bool) -> bool:
    """Whether a delta begins a new call where its place is taken: some servers number every call 0, or none at all.

    A new id alone does not: other servers give each delta an id of its own.
    """
    names = bool(_named(delta)) and bool(_named(call))
    new = bool(delta.get("id")) and bool(call.get("id")) and delta.get("id") != call.get("id")
    return names and (new or not (numbered or delta.get("id")))


def _named(call: Mapping[str, Any]) -> str:
    return string(mapping(call.get("function") or call.get("custom")).get("name"))


def _call(call: dict[str, Any]) -> dict[str, Any]:
    call = {key: value for key, value in call.items() if key != "index" and value is not None}
    kind = next((kind for kind in ("function", "custom") if kind in call), None)
    return call if kind is None or call.get("type") else {**call, "type": kind}


def _history(message: dict[str, Any], calls: list[dict[str, Any]]) -> dict[str, Any]:
    """The message as it stands in a history. Content that says nothing is null beside something else, "" alone."""
    content, role = message.get("content"), string(message.get("role")) or "assistant"
    beside = {
        key: value
        for key, value in message.items()
        if key not in ("role", "content") and value is not None and value not in ("", [], {})
    }
    if calls:
        beside["tool_calls"] = calls
    acts = any(key in beside for key in ("tool_calls", "function_call", "audio", "refusal"))
    return {"role": role, "content": content or (None if acts else ""), **beside}


def _usage(usage: Mapping[str, Any]) -> Usage | None:
    read, written = count(usage.get("prompt_tokens")), count(usage.get("completion_tokens"))
    if read is None and written is None:
        return None
    # OpenAI and most; DeepSeek; Moonshot.
    told = mapping(usage.get("prompt_tokens_details")).get("cached_tokens")
    cached = next(filter(None, map(count, (told, usage.get("prompt_cache_hit_tokens"), usage.get("cached_tokens")))), 0)
    return Usage(read or 0, cached, written or 0)
