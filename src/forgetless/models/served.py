"""A model as an upstream: requests in any dialect in, replies of the same dialect out, without any HTTP.

Made for the embedded model: it reads text, keeps no state, and refuses by name what it can't do.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import closing
from itertools import chain
from typing import Any

from forgetless.errors import ModelError, RequestError
from forgetless.models.base import Model
from forgetless.models.served_events import broken, events
from forgetless.models.served_replies import Head, anthropic_reply, blocks_of, responses_reply
from forgetless.models.served_requests import chat_body
from forgetless.replies.chat import ChatReader
from forgetless.replies.faults import error_body
from forgetless.replies.overflow import overflow

__all__ = ["Served"]


class Served:
    """Serves a model in the dialects `chat`, `responses` and `anthropic`.

    Args:
        model: what answers; closing it is the caller's.
    """

    def __init__(self, model: Model) -> None:
        self._model = model

    def answer(self, dialect: str, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        """The status and the body of the reply, an error's included."""
        try:
            completion = self._model(self._asked(dialect, body))
            return 200, _reply(dialect, self._head(body), completion)
        except ModelError as error:
            told = _told(dialect, error)
            return told.status or 502, dict(told.body or {})

    def stream(self, dialect: str, body: Mapping[str, Any]) -> Generator[bytes, None, None]:
        """The events of the reply as bytes. Closing the generator stops the model.

        Raises:
            ModelError: the request was refused before the first event; `status` and `body` are the answer.
        """
        head = self._head(body)
        try:
            chunks = self._model.stream(self._asked(dialect, body, stream=True))
            first = next(chunks, None)
        except ModelError as error:
            raise _told(dialect, error) from error
        return _events(dialect, head, chunks, first)

    def models(self) -> dict[str, Any]:
        """The list of models, as OpenAI's clients expect it."""
        model = {"id": self._model.name, "object": "model", "created": 0, "owned_by": "forgetless"}
        window = {} if self._model.window is None else {"max_model_len": self._model.window}
        return {"object": "list", "data": [{**model, **window}]}

    def _head(self, body: Mapping[str, Any]) -> Head:
        return Head(int(time.time()), self._model.name, body)

    def _asked(self, dialect: str, body: Mapping[str, Any], *, stream: bool = False) -> dict[str, Any]:
        try:
            asked = chat_body(dialect, body, self._model.name)
        except RequestError as error:
            raise ModelError(str(error), status=400) from error
        if stream and dialect != "chat":
            asked["stream_options"] = {"include_usage": True}
        return asked


def _reply(dialect: str, head: Head, completion: dict[str, Any]) -> dict[str, Any]:
    if dialect == "chat":
        return completion
    reader = ChatReader()
    reader.body(completion)
    done = reader.done()
    blocks = blocks_of(done.messages[0] if done.messages else {})
    return responses_reply(head, blocks, done) if dialect == "responses" else anthropic_reply(head, blocks, done)


def _events(
    dialect: str, head: Head, chunks: Generator[dict[str, Any], None, None], first: dict[str, Any] | None
) -> Generator[bytes, None, None]:
    with closing(chunks):
        try:
            yield from events(dialect, head, chain(() if first is None else (first,), chunks))
        except ModelError as error:
            yield broken(dialect, head, _told(dialect, error).body or {})


def _told(dialect: str, error: ModelError) -> ModelError:
    """An error with the status and the body that a client of the dialect understands."""
    status = error.status if error.status is not None and error.status >= 400 else 502
    if dialect == "chat" and error.body is not None and "error" in error.body:
        return ModelError(str(error), status=status, body=error.body)
    kind = "context_length_exceeded" if overflow(status, str(error)) else _KINDS.get(status, "model_error")
    return ModelError(str(error), status=status, body=error_body(dialect, status, kind, str(error)))


_KINDS = {400: "unsupported"}
