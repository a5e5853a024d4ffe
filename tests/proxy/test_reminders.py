"""With `remind` a standing instruction is said beside each newest question, in every dialect, until it is withdrawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from live import Provider, Said
from sent import count

PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "anthropic": "/v1/messages"}
RULE = "From now on, never send a message yourself, only leave drafts."
BACK = "Forget the rule about drafts: from now on you may send messages yourself again."


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize("policy", ["lre", "rea", "fifo"])
def test_it_stands_beside_the_newest_question_alone(
    policy: str, dialect: str, provider: Provider, start: Callable[..., str], http: httpx2.Client
) -> None:
    provider.answer = lambda _, body: Said("a reply " + "marble timber pepper " * 30, tokens=count(body))
    base = start(policy=policy, budget=900, remind=True)
    said: list[dict[str, Any]] = []
    for turn in range(12):
        text = {1: RULE, 9: BACK}.get(turn, f"Letter {turn}: what does it say? " + "harbour garden window " * 15)
        said.append({"role": "user", "content": text})
        key = "input" if dialect == "responses" else "messages"
        answer = http.post(base + PATHS[dialect], json={"model": "m", "max_tokens": 50, key: said})
        assert answer.status_code == 200
        *before, question = provider.bodies[-1][key]
        assert question["content"].startswith(text)
        assert (RULE in question["content"]) == (1 <= turn < 9)
        assert [m for m in before if m not in said and m["role"] == "user"] == []
        said.append({"role": "assistant", "content": f"reply {turn} " + "marble timber pepper " * 30})
    assert answer.headers["x-forgetless-outcome"] == "compacted"
