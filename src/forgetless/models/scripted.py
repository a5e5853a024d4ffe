"""A model that answers from a script: for tests and demonstrations."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Any, TypeAlias
from uuid import uuid4

from forgetless.dialects.chat import Chat
from forgetless.errors import ModelError
from forgetless.messages import Call, Message
from forgetless.tokens import for_model

__all__ = ["Reply", "Scripted"]

Reply: TypeAlias = str | Sequence[Call] | Mapping[str, Any] | Exception
"""A text, tool calls, a whole assistant message, or an exception to raise."""

PIECE = 4
"""Characters of each piece that a stream gives out."""


class Scripted:
    """Answers with the next reply of a script, or with what a function makes of the request body.

    Attributes:
        requests: the bodies that it was given, oldest first.

    Args:
        script: replies in their order, or a function body -> reply.
        name: of the model.
        window: as any model's; nothing is checked against it.
    """

    def __init__(
        self,
        script: Iterable[Reply] | Callable[[Mapping[str, Any]], Reply],
        *,
        name: str = "scripted",
        window: int | None = None,
    ) -> None:
        self.name = name
        self.window = window
        self.requests: list[Mapping[str, Any]] = []
        self._lock = Lock()
        self._reply = script if callable(script) else _read(script)

    def __call__(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The next reply as a completion.

        Raises:
            ModelError: the script has run out.
        """
        message = self._next(body)
        choice = {"index": 0, "message": message, "finish_reason": _finish(message), "logprobs": None}
        return {**self._head("chat.completion"), "choices": [choice], "usage": _usage(body, message)}

    def stream(self, body: Mapping[str, Any]) -> Generator[dict[str, Any], None, None]:
        """The next reply in pieces of `PIECE` characters, with usage at the end where the body asks for it.

        Raises:
            ModelError: the script has run out.
        """
        message = self._next(body)
        head = {**self._head("chat.completion.chunk"), "usage": None}
        for delta in _deltas(message):
            yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": _finish(message)}]}
        if (body.get("stream_options") or {}).get("include_usage"):
            yield {**head, "choices": [], "usage": _usage(body, message)}

    def close(self) -> None:
        """Nothing to let go of."""

    def _next(self, body: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            self.requests.append(body)
            reply = self._reply(body)
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, str):
            return {"role": "assistant", "content": reply}
        if isinstance(reply, Mapping):
            return {"role": "assistant", "content": None, **reply}
        (message,) = _CHAT.emit(_CHAT.parse([]), [Message("assistant", tuple(reply))])
        return {"content": None, **message}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": f"chatcmpl-{uuid4().hex}", "object": kind, "created": 0, "model": self.name}


_CHAT = Chat()


def _read(script: Iterable[Reply]) -> Callable[[object], Reply]:
    replies = iter(script)
    end = ModelError("the script has run out: give it as many replies as it gets requests")
    return lambda _: next(replies, end)


def _finish(message: Mapping[str, Any]) -> str:
    return "tool_calls" if message.get("tool_calls") else "stop"


def _deltas(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    for piece in _pieces(message.get("content") or ""):
        yield {"content": piece}
    for index, call in enumerate(message.get("tool_calls") or ()):
        function = call["function"]
        yield {"tool_calls": [{"index": index, **call, "function": {**function, "arguments": ""}}]}
        for piece in _pieces(function["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _pieces(text: str) -> Iterator[str]:
    return (text[start : start + PIECE] for start in range(0, len(text), PIECE))


def _usage(body: Mapping[str, Any], message: Mapping[str, Any]) -> dict[str, int]:
    counter = for_model()
    request = _CHAT.parse(body)
    prompt = sum(map(counter.message, request.messages)) + sum(map(counter.json, request.fixed))
    (reply,) = _CHAT.parse([message]).messages
    written = sum(map(counter.part, reply.parts))
    return {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}
