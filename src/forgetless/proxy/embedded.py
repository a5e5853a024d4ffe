"""The embedded model as an upstream: no key, no server, no network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator
from threading import Lock
from typing import Any

from forgetless.errors import ModelError
from forgetless.models.embedded import Embedded
from forgetless.models.served import Served
from forgetless.proxy.bodies import decode, encode
from forgetless.proxy.upstream import Answer, Headers
from forgetless.replies.faults import error_body
from forgetless.tokens import Counter

__all__ = ["EmbeddedUpstream"]

PATHS = {"/v1/chat/completions": "chat", "/v1/responses": "responses", "/v1/messages": "anthropic"}


class EmbeddedUpstream:
    """Answers with the embedded model; its calls run in threads, one after the other."""

    def __init__(self, model: Embedded | None = None) -> None:
        """Load the model, or take one that is loaded.

        Raises:
            MissingExtra: it is not installed.
        """
        self._model = model if model is not None else Embedded()
        self._served = Served(self._model)
        window = self._model.window
        self.budget = window - window // 8 if window is not None else None
        self.counter: Counter | None = self._model.counter

    async def send(
        self, method: str, path: str, headers: Headers, body: bytes | AsyncIterator[bytes] | None, *, read: bool
    ) -> Answer:
        """Answer a request, as in `Upstream`."""
        path = path.partition("?")[0]
        if method == "GET" and path == "/v1/models":
            return _answer(200, self._served.models())
        dialect = PATHS.get(path if path.startswith("/v1/") else f"/v1{path}")
        if method != "POST" or dialect is None:
            return _answer(404, error_body("chat", 404, "not_found", f"the embedded model has no {method} {path}"))
        data = body if isinstance(body, bytes) else b"".join([piece async for piece in body or _nothing()])
        try:
            value = decode(data)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            return _answer(400, error_body(dialect, 400, "invalid_json", "the body is no JSON object"))
        if not value.get("stream"):
            return _answer(*await asyncio.to_thread(self._served.answer, dialect, value))
        try:
            events = await asyncio.to_thread(self._served.stream, dialect, value)
        except ModelError as error:
            told = dict(error.body or error_body(dialect, 502, "model_failed", str(error)))
            return _answer(error.status or 502, told)
        kind = [("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache")]
        steps = _Steps(events)
        return Answer(200, kind, steps.chunks(), steps.close)

    async def close(self) -> None:
        """Free the model."""
        await asyncio.to_thread(self._model.close)


def _answer(status: int, body: dict[str, Any]) -> Answer:
    async def chunks() -> AsyncIterator[bytes]:
        yield encode(body)

    async def close() -> None:
        pass

    return Answer(status, [("content-type", "application/json")], chunks(), close)


class _Steps:
    """A generator that runs in threads, step by step; a step under way has to end before it can be closed."""

    def __init__(self, events: Generator[bytes, None, None]) -> None:
        self._events = events
        self._lock = Lock()

    async def chunks(self) -> AsyncIterator[bytes]:
        while (piece := await asyncio.to_thread(self._next)) is not None:
            yield piece

    def _next(self) -> bytes | None:
        with self._lock:
            return next(self._events, None)

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        with self._lock:
            self._events.close()


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""
