"""A model that is asked each request once, over all runs into one folder: a broken run goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import Any

from forgetless.errors import ModelError
from forgetless.models.base import Model

__all__ = ["Asked", "refuses", "text_of_reply"]


class Asked:
    """A model with its replies in a file, found again by the request's hash. What it refuses is kept too.

    Attributes:
        name, window, counter: the model's.
        seconds: that the model has taken for all that was asked of this object, as measured when it was asked.

    Args:
        model: that is asked.
        file: a JSON line for each reply; a last line that was cut off is none.
    """

    def __init__(self, model: Model, file: Path) -> None:
        self.name, self.window = model.name, model.window
        self.counter = getattr(model, "counter", None)
        self.seconds = 0.0
        self._model, self._file = model, file
        lines = file.read_text(encoding="utf-8").split("\n")[:-1] if file.exists() else []
        self._known = {known["key"]: known for known in map(json.loads, lines)}
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def __call__(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The reply to a request: its message, usage and reason to stop.

        Raises:
            ModelError: the model refuses the request, now or before (status 4xx), or can't be reached.
        """
        key = sha256(json.dumps([self.name, body], sort_keys=True).encode()).hexdigest()
        if key not in self._known:
            known = {"key": key, **self._ask(body)}
            with self._file.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(known, ensure_ascii=False) + "\n")
            self._known[key] = known
        known = self._known[key]
        self.seconds += known["seconds"]
        if "refused" in known:
            raise ModelError(known["refused"], status=known["status"])
        reply: dict[str, Any] = known["reply"]
        return reply

    def stream(self, body: Mapping[str, Any]) -> Generator[dict[str, Any], None, None]:
        """As the model's; not kept."""
        return self._model.stream(body)

    def close(self) -> None:
        """Close the model."""
        self._model.close()

    def _ask(self, body: Mapping[str, Any]) -> dict[str, Any]:
        start = perf_counter()
        try:
            said = self._model(body)
        except ModelError as error:
            if not refuses(error):
                raise
            return {"refused": str(error), "status": error.status, "seconds": perf_counter() - start}
        first = said["choices"][0]
        choice = {"message": first["message"], "finish_reason": first.get("finish_reason")}
        reply = {"choices": [choice], "usage": said.get("usage") or {}}
        return {"reply": reply, "seconds": round(perf_counter() - start, 3)}


def refuses(error: ModelError) -> bool:
    """Whether a model refuses a request for what it is, such as its length: another try would not help."""
    return error.status is not None and 400 <= error.status < 500 and error.status not in (401, 403, 408, 429)


def text_of_reply(reply: Mapping[str, Any]) -> str:
    """The words of a completion."""
    return str(reply["choices"][0]["message"].get("content") or "")
