"""Runs another library's trimming in that library's own interpreter: JSON lines in, JSON lines out.

A script, not a module of the package: `peers` starts it with the interpreter of the peers' environment, where
forgetless is not installed, so it imports nothing of ours. One line is one request:

    {"op": "start", "name"}                       -> {}          imports the library and runs it once
    {"op": "load", "messages"}                    -> {}          keeps a history for the measurements to come
    {"op": "call", "name", "messages", "budget"}  -> {"messages"}  what the library would send
    {"op": "time", "name", "budget"}              -> {"seconds"}   of one call on the loaded history
    {"op": "memory", "name", "budget"}            -> {"bytes"}     peak of one call on it, by tracemalloc

Any failure of the library is a reply too: {"error"}.
"""

from __future__ import annotations

import json
import os
import sys
import time
import tracemalloc
from collections.abc import Callable
from importlib import import_module
from typing import IO, Any

Messages = list[dict[str, Any]]
Peer = tuple[Callable[[Messages, int], Any], Callable[[Any], Messages]]
"""What trims, and what turns its result into plain messages. Libraries load when asked for, by name."""


def _langchain(**options: Any) -> Peer:
    library = import_module("langchain_core.messages")
    fixed = {"strategy": "last", "token_counter": "approximate", **options}
    trim = library.trim_messages
    return lambda messages, budget: trim(messages, max_tokens=budget, **fixed), library.convert_to_openai_messages


def _best_practice() -> Peer:
    """The options that LangChain's own documentation recommends for a chat history."""
    return _langchain(start_on="human", end_on=("human", "tool"), include_system=True)


def _litellm_trim() -> Peer:
    trim = import_module("litellm.utils").trim_messages
    return lambda messages, budget: trim(messages, model="gpt-4o", max_tokens=budget), list


def _litellm_compress() -> Peer:
    compress = import_module("litellm").compress
    return (
        lambda messages, budget: compress(messages, model="gpt-4o", compression_trigger=budget),
        lambda result: list(result["messages"]),
    )


LOADERS: dict[str, Callable[[], Peer]] = {
    "langchain-trim": _best_practice,
    "langchain-trim-defaults": _langchain,
    "litellm-trim": _litellm_trim,
    "litellm-compress": _litellm_compress,
}

WARM_UP: Messages = [{"role": role, "content": "some words to wake it up " * 20} for role in ("user", "assistant")] * 20
"""Over its budget, so that the libraries load all that a real call needs."""


class Worker:
    """Answers requests; holds the libraries in use and one history."""

    def __init__(self) -> None:
        self._loaded: dict[str, Peer] = {}
        self._history: Messages = []

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The reply to one request."""
        operation = getattr(self, "_" + request.pop("op"))
        reply: dict[str, Any] = operation(**request)
        return reply

    def _peer(self, name: str) -> Peer:
        if name not in self._loaded:
            self._loaded[name] = LOADERS[name]()
        return self._loaded[name]

    def _start(self, name: str) -> dict[str, Any]:
        trim, _ = self._peer(name)
        trim([dict(message) for message in WARM_UP], 300)
        return {}

    def _load(self, messages: Messages) -> dict[str, Any]:
        self._history = messages
        return {}

    def _call(self, name: str, messages: Messages, budget: int) -> dict[str, Any]:
        trim, plain = self._peer(name)
        return {"messages": plain(trim(messages, budget))}

    def _time(self, name: str, budget: int) -> dict[str, Any]:
        trim, _ = self._peer(name)
        history = self._history
        start = time.perf_counter()
        result = trim(history, budget)
        seconds = time.perf_counter() - start
        del result  # freed outside of the time taken, as on our side
        return {"seconds": seconds}

    def _memory(self, name: str, budget: int) -> dict[str, Any]:
        trim, _ = self._peer(name)
        tracemalloc.start()
        trim(self._history, budget)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return {"bytes": peak}


def serve(requests: IO[str], replies: IO[str]) -> None:
    """Answer every line of `requests` with a line of `replies`."""
    worker = Worker()
    for line in requests:
        try:
            reply = worker.answer(json.loads(line))
        except Exception as error:  # noqa: BLE001 - whatever a library raises is a result of the benchmark
            reply = {"error": f"{type(error).__name__}: {error}"}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


if __name__ == "__main__":
    # What libraries print must not get between the replies: file descriptor 1 becomes stderr for all but us.
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    serve(sys.stdin, channel)
