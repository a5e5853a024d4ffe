"""Replies of Chat Completions without their memory blocks; reasoning that servers send beside the text is untouched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forgetless.policies.ccm.blocks import Taker
from forgetless.proxy.screens.base import CUT, Make, taken
from forgetless.proxy.seams.base import emit, load
from forgetless.replies.loose import fault, place, string
from forgetless.replies.sse import Event

__all__ = ["ChatScreen"]


class ChatScreen:
    """The screen of the dialect `chat`. Of several choices the first is the one that counts.

    A reply with calls was cut off in them, not in its text.
    """

    def __init__(self, make: Make) -> None:
        """Take what makes takers."""
        self._make = make
        self._takers: dict[int, Taker] = {}
        self._open: dict[int, Mapping[str, Any]] = {}  # index of a choice that has not ended -> its last chunk
        self._calls: set[int] = set()  # indices of choices with calls

    @property
    def takers(self) -> Sequence[Taker]:
        """Of the first choice."""
        return [self._takers[0]] if 0 in self._takers else []

    def whole(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """A reply body as it may go on."""
        choices = body.get("choices")
        if not isinstance(choices, list):
            return body
        made = [self._said(at, choice) for at, choice in enumerate(choices)]
        return body if all(a is b for a, b in zip(made, choices, strict=True)) else {**body, "choices": made}

    def feed(self, event: Event) -> bytes:
        """What may go on once a chunk has come."""
        data = load(event)
        if data is None:
            return (self._rest(False) if event.data.strip() == "[DONE]" else b"") + event.raw
        choices = data.get("choices")
        if not isinstance(choices, list) or not choices:
            return (self._rest(True) if fault(data) else b"") + event.raw
        made = [self._grown(at, choice, data) for at, choice in enumerate(choices)]
        if all(a is b for a, b in zip(made, choices, strict=True)):
            return event.raw
        left = [choice for choice in made if choice is not None]
        return emit({**data, "choices": left}, event.name) if left or data.get("usage") else b""

    def end(self) -> bytes:
        """What was held back of choices that have not ended."""
        return self._rest(True)

    def _rest(self, cut: bool) -> bytes:
        out = b""
        for index, data in self._open.items():
            if rest := self._takers[index].end(cut and index not in self._calls):
                choice = {"index": index, "delta": {"content": rest}, "finish_reason": None}
                bare = {key: value for key, value in data.items() if key != "usage"}
                out += emit({**bare, "choices": [choice]})
        self._open.clear()
        return out

    def _said(self, at: int, choice: Any) -> Any:
        """A choice with a whole message, as some servers end a stream too."""
        if not isinstance(choice, Mapping) or not isinstance(message := choice.get("message"), Mapping):
            return choice
        taker = self._make()
        self._takers.setdefault(_index(choice, at), taker)
        calls = _calls(message)
        cut = string(choice.get("finish_reason")) in CUT and not calls
        made = _more(_fed(message.get("content"), taker), taker.end(cut))
        if not taken(taker):
            return choice
        return _quiet({**choice, "message": {**message, "content": made or (None if calls else "")}})

    def _grown(self, at: int, choice: Any, data: Mapping[str, Any]) -> Any:
        """A choice of a chunk; None where nothing of it is left."""
        delta = choice.get("delta") if isinstance(choice, Mapping) else None
        if not isinstance(delta, Mapping):
            return self._said(at, choice)
        index = _index(choice, at)
        taker = self._takers.setdefault(index, self._make())
        content, ends = delta.get("content"), choice.get("finish_reason")
        self._open[index] = data
        if _calls(delta):
            self._calls.add(index)
        made = _fed(content, taker)
        if ends:
            made = _more(made, taker.end(string(ends) in CUT and index not in self._calls))
            del self._open[index]
        if made == (content or ""):
            return choice
        delta = {key: value for key, value in delta.items() if key != "content"} | ({"content": made} if made else {})
        says = any(value for value in delta.values())
        return _quiet({**choice, "delta": delta}) if says or ends else None


def _more(made: Any, rest: str) -> Any:
    """Content with more text behind it."""
    if isinstance(made, list):
        return [*made, {"type": "text", "text": rest}] if rest else made
    return made + rest


def _calls(said: Mapping[str, Any]) -> bool:
    return bool(said.get("tool_calls") or said.get("function_call"))


def _index(choice: Mapping[str, Any], at: int) -> int:
    index = place(choice.get("index"))
    return at if index < 0 else index


def _quiet(choice: dict[str, Any]) -> dict[str, Any]:
    """A choice whose log-probabilities do not tell what was taken out."""
    return {**choice, "logprobs": None} if choice.get("logprobs") else choice


def _fed(content: Any, taker: Taker) -> Any:
    """What goes on of a content: a text, or a list of parts, in which some servers have thoughts beside text."""
    if not isinstance(content, list):
        return taker.feed(string(content))
    made = []
    for part in content:
        if not isinstance(part, Mapping) or part.get("type") != "text":
            made.append(part)
        elif text := taker.feed(string(part.get("text"))):
            made.append({**part, "text": text})
    return made
