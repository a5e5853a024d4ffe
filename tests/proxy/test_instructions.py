"""A standing instruction of the user is in every later request, word for word, until the user takes it back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from forgetless.registry import policy_names
from live import Provider, Said
from sent import count

PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "anthropic": "/v1/messages"}
RULE = "From now on, never send a message yourself, only leave drafts."
FRENCH = "From now on, always answer in French."
SPANISH = "From now on, answer in Spanish instead."
BACK = "Forget the rule about drafts: from now on you may send messages yourself again."


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize("policy", [name for name in policy_names() if name != "full"])
def test_what_the_user_wants_of_all_replies_is_in_all_requests(
    policy: str, dialect: str, provider: Provider, start: Callable[..., str], http: httpx2.Client
) -> None:
    provider.answer = lambda _, body: Said("a reply " + "marble timber pepper " * 30, tokens=count(body))
    base = start(policy=policy, budget=900, remind=False)
    said: list[dict[str, Any]] = []
    for turn in range(14):
        text = {2: RULE, 11: BACK}.get(turn, f"Letter {turn}: what does it say? " + "harbour garden window " * 15)
        said.append({"role": "user", "content": text})
        key = "input" if dialect == "responses" else "messages"
        answer = http.post(base + PATHS[dialect], json={"model": "m", "max_tokens": 50, key: said})
        assert answer.status_code == 200
        sent = provider.bodies[-1][key]
        if 2 <= turn < 11:
            assert RULE in [message["content"] for message in sent]
        if turn > 11:
            assert BACK in [message["content"] for message in sent]
        said.append({"role": "assistant", "content": f"reply {turn} " + "marble timber pepper " * 30})
    outcome = answer.headers["x-forgetless-outcome"]
    assert outcome == "compacted"
    ledger = http.get(f"{base}/forgetless/requests/{answer.headers['x-forgetless-request-id']}").json()["ledger"]
    told = {entry["messages"][0]: entry for entry in ledger}
    assert told[22]["form"] == "raw"
    assert told[4]["reason"] == "withdrawn"


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize("policy", ["fifo", "lre", "rea"])
def test_a_later_rule_takes_the_place_of_an_earlier_one(
    policy: str, dialect: str, provider: Provider, start: Callable[..., str], http: httpx2.Client
) -> None:
    provider.answer = lambda _, body: Said("a reply " + "marble timber pepper " * 30, tokens=count(body))
    base = start(policy=policy, budget=900, remind=False)
    key = "input" if dialect == "responses" else "messages"
    said: list[dict[str, Any]] = []
    for turn in range(12):
        text = {1: FRENCH, 3: RULE, 5: SPANISH}.get(
            turn, f"Letter {turn}: what is it? " + "harbour garden window " * 15
        )
        said.append({"role": "user", "content": text})
        answer = http.post(base + PATHS[dialect], json={"model": "m", "max_tokens": 50, key: said})
        assert answer.status_code == 200
        said.append({"role": "assistant", "content": f"reply {turn} " + "marble timber pepper " * 30})
    sent = [message["content"] for message in provider.bodies[-1][key]]
    assert {RULE, SPANISH} <= set(sent)
    ledger = http.get(f"{base}/forgetless/requests/{answer.headers['x-forgetless-request-id']}").json()["ledger"]
    told = {entry["messages"][0]: (entry["reason"], entry["form"]) for entry in ledger}
    assert told[2][0] == "replaced"
    assert told[6] == told[10] == ("instruction", "raw")
    name = answer.headers["x-forgetless-conversation"]
    listed = http.get(f"{base}/forgetless/conversations/{name}/pins").json()["messages"]
    assert {wish["message"]: wish["instructions"] for wish in listed} == {
        2: [{"text": FRENCH, "state": "replaced"}],
        6: [{"text": RULE, "state": "instruction"}],
        10: [{"text": SPANISH, "state": "instruction"}],
    }


def test_it_can_be_switched_off(provider: Provider, start: Callable[..., str], http: httpx2.Client) -> None:
    base = start(policy="fifo", budget=300, instructions="none")
    said = [{"role": "user", "content": RULE}, {"role": "assistant", "content": "Yes."}]
    said += [{"role": "user", "content": "harbour garden window " * 60}, {"role": "assistant", "content": "Well."}]
    said += [{"role": "user", "content": "harbour garden window " * 60}]
    http.post(base + PATHS["chat"], json={"model": "m", "messages": said})
    assert RULE not in str(provider.bodies[-1])
