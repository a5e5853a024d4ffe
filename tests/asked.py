"""Requests that the tests of the proxy send, and what they look up."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import httpx2

__all__ = ["KEY", "OVER", "PATH", "Start", "ask", "body", "figure", "history", "too_long", "until"]

Start = Callable[..., str]
PATH = "/v1/chat/completions"
KEY = {"authorization": "Bearer k"}
OVER = {"messages": {"role": "user", "content": "too long " * 400}}


def history(turns: int) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = [{"role": "system", "content": "be brief"}]
    for n in range(turns):
        said.append({"role": "user", "content": f"question {n} " + "word " * 40})
        said.append({"role": "assistant", "content": f"ok {n}"})
    return said[:-1]


def body(turns: int, **more: Any) -> bytes:
    return json.dumps({"model": "m", "messages": history(turns), **more}).encode()


def ask(http: httpx2.Client, base: str, data: bytes, path: str = PATH, **headers: str) -> httpx2.Response:
    return http.post(base + path, content=data, headers={**KEY, "content-type": "application/json", **headers})


def figure(http: httpx2.Client, base: str, name: str) -> float:
    """A figure of /metrics, by its name and labels; 0 where it is not there."""
    lines = http.get(f"{base}/metrics").text.splitlines()
    return next((float(line.rpartition(" ")[2]) for line in lines if line.rpartition(" ")[0] == name), 0.0)


def too_long(path: str) -> dict[str, Any]:
    said = [{"role": "user", "content": "too long " * 400}]
    return {"model": "m", "max_tokens": 9, ("input" if path.endswith("responses") else "messages"): said}


def until(what: Callable[[], bool]) -> None:
    """Wait until it is so; for at most five seconds."""
    end = time.monotonic() + 5
    while not what():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)
