"""Replies of Chat Completions sewn together. One message holds all their text; other servers' fields of text too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forgetless.proxy.asking import NAME
from forgetless.proxy.seams.base import GAP, emit, load, total
from forgetless.replies.loose import listed, mapping, place, string
from forgetless.replies.sse import Event

__all__ = ["ChatSeam"]

_ACTS = ("tool_calls", "function_call")


class ChatSeam:
    """The seam of the dialect `chat`."""

    def __init__(self) -> None:
        """Begin before the first reply."""
        self.cut = False
        self._own = False  # a tool of the client's was called
        self._ours: dict[int, bool] = {}  # index of a call -> whether it is one of `recall`
        self._tail: list[tuple[Event, Mapping[str, Any] | None]] = []
        self._first: Mapping[str, Any] | None = None  # what all chunks are to be named by
        self._later = False
        self._said = self._gap = False
        self._before: Mapping[str, Any] = {}  # tokens of the replies before
        self._usage: Mapping[str, Any] = {}

    def whole(self, bodies: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """One reply body out of several."""
        *before, last = bodies
        usage: Any = {}
        message: Mapping[str, Any] = {}
        for body in before:
            usage = total(usage, mapping(body.get("usage")))
            message = _longer(message, _message(body))
        choices = listed(last.get("choices"))
        if not choices:
            return dict(last)
        ended = dict(choices[0])
        calls = listed(_message(last).get("tool_calls"))
        own = [call for call in calls if _named(call) != NAME]
        now = {key: value for key, value in _message(last).items() if key != "tool_calls" or own or not calls}
        if own:
            now["tool_calls"] = own
        elif calls and ended.get("finish_reason") in _ACTS:
            ended["finish_reason"] = "stop"
        ended["message"] = _longer(message, now)
        told = {"usage": total(usage, mapping(last.get("usage")))} if "usage" in last else {}
        return {**last, "choices": [ended, *choices[1:]], **told}

    def feed(self, event: Event) -> bytes:
        """Take one chunk; from the one that says why the model stopped on, all are held back."""
        if not event.data:
            return event.raw
        data = load(event)
        if data is None:
            if not self._tail and event.data.strip() != "[DONE]":
                return event.raw
            self._tail.append((event, None))
            return b""
        self._first = self._first or data
        self._usage = mapping(data.get("usage")) or self._usage
        choices = listed(data.get("choices"))
        ends = any(choice.get("finish_reason") for choice in choices) or (not choices and bool(data.get("usage")))
        made = self._chunk(data)
        if self._tail or ends:
            self._tail.append((event, made if made is not None else {**data, "choices": []}))
            return b""
        return b"" if made is None else event.raw if made is data else emit(made, event.name)

    def turn(self) -> bytes:
        """Go on to the next reply: what a held chunk says beside its end may go."""
        out = []
        for _, data in self._tail:
            choices = [choice for choice in listed(mapping(data).get("choices")) if _says(mapping(choice.get("delta")))]
            if data is not None and choices:
                bare = {key: value for key, value in data.items() if key != "usage"}
                out.append(emit({**bare, "choices": [{**choice, "finish_reason": None} for choice in choices]}))
        self._before = total(self._before, self._usage)
        self._usage, self._tail, self._ours = {}, [], {}
        self.cut = self._own = False
        self._later, self._gap = True, self._said
        return b"".join(out)

    def end(self) -> bytes:
        """Let the end of the last reply go."""
        return b"".join(event.raw if data is None else self._ended(event, data) for event, data in self._tail)

    def _ended(self, event: Event, data: Mapping[str, Any]) -> bytes:
        made = dict(data)
        if self.cut and not self._own:
            made["choices"] = [
                {**choice, "finish_reason": "stop"} if choice.get("finish_reason") in _ACTS else choice
                for choice in listed(data.get("choices"))
            ]
        if self._before and isinstance(data.get("usage"), Mapping):
            made["usage"] = total(self._before, data["usage"])
        return event.raw if made == load(event) else emit(made, event.name)

    def _chunk(self, data: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """A chunk as it may go on, the same object where nothing has changed; None when nothing of it is left."""
        choices = data.get("choices")
        if not isinstance(choices, list):
            return data
        made = [self._choice(choice) if isinstance(choice, Mapping) else choice for choice in choices]
        same = all(one is other for one, other in zip(made, choices, strict=True))
        if same and not self._later:
            return data
        left = [choice for choice in made if choice is not None]
        if not left and choices and not data.get("usage"):
            return None
        first = mapping(self._first)
        named = {key: first[key] for key in ("id", "created") if key in first and key in data}
        return {**data, **named, "choices": left}

    def _choice(self, choice: Mapping[str, Any]) -> Mapping[str, Any] | None:
        delta = choice.get("delta")
        if not isinstance(delta, Mapping):
            return choice
        made = dict(delta)
        if self._later:
            made.pop("role", None)
        if isinstance(calls := delta.get("tool_calls"), list):
            own = [self._call(call) for call in listed(calls) if not self._is_ours(call)]
            if own or not calls:
                made["tool_calls"] = own
            else:
                del made["tool_calls"]
        self._own = self._own or bool(delta.get("function_call"))
        if text := string(delta.get("content")):
            made["content"] = GAP + text if self._gap else text
            self._said, self._gap = True, False
        if made == delta:
            return choice
        return {**choice, "delta": made} if made or choice.get("finish_reason") else None

    def _is_ours(self, call: Mapping[str, Any]) -> bool:
        """Whether a delta belongs to a call of `recall`: its first one names the tool."""
        index = place(call.get("index"))
        if name := _named(call):
            self._ours[index] = name == NAME
        ours = self._ours.get(index, False)
        self.cut, self._own = self.cut or ours, self._own or not ours
        return ours

    def _call(self, call: Mapping[str, Any]) -> Mapping[str, Any]:
        """A delta of the client's own call, numbered as if there were no others."""
        index = place(call.get("index"))
        below = sum(ours and 0 <= at < index for at, ours in self._ours.items())
        return {**call, "index": index - below} if below else call


def _named(call: Mapping[str, Any]) -> str:
    return string(mapping(call.get("function") or call.get("custom")).get("name"))


def _message(body: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = listed(body.get("choices"))
    return mapping(choices[0].get("message")) if choices else {}


def _says(delta: Mapping[str, Any]) -> bool:
    return any(value for key, value in delta.items() if key != "role")


def _longer(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """A message with the texts of the one before it in front of its own."""
    made = dict(now)
    for key, text in before.items():
        if isinstance(text, str) and text and key != "role":
            after = string(now.get(key))
            made[key] = text + GAP + after if after and key == "content" else text + after
    return made
