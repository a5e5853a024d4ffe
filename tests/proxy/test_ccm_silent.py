"""A reply that was nothing but memory comes back without content, and never goes on to a provider like that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from live import Provider, Said
from sent import VALIDATORS

PATHS = {"chat": "/v1/chat/completions", "anthropic": "/v1/messages"}


@pytest.mark.parametrize(("most", "key"), [(1_000, "one caller"), (50, "one caller"), (1_000, "another")])
@pytest.mark.parametrize("dialect", PATHS)
def test_it_is_left_out(
    dialect: str, most: int, key: str, *, provider: Provider, start: Callable[..., str], http: httpx2.Client
) -> None:
    provider.answer = lambda *_: Said("<memory>\nThe code is 7.\n</memory>")
    base = start(policy="ccm", budget=4_000)
    said: list[dict[str, Any]] = [{"role": "user", "content": "Read the code."}]

    def ask(most: int, key: str) -> dict[str, Any]:
        body = {"model": "m", "max_tokens": most, "messages": said}
        answer = http.post(base + PATHS[dialect], json=body, headers={"authorization": f"Bearer {key}"})
        assert answer.status_code == 200
        found: dict[str, Any] = answer.json()
        return found

    first = ask(1_000, "one caller")
    silent = first["content"] if dialect == "anthropic" else first["choices"][0]["message"]["content"]
    assert not silent
    said += [{"role": "assistant", "content": silent or None if dialect == "chat" else []}]
    said += [{"role": "user", "content": "What is it?"}]
    ask(most, key)
    sent = provider.bodies[-1]
    assert list(VALIDATORS[dialect](sent)) == []
    assert [m for m in sent["messages"] if m["role"] == "assistant"] == []
    assert ("The code is 7." in str(sent)) == (key == "one caller" and most == 1_000)
