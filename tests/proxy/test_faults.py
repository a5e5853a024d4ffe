"""What goes wrong in a policy, or has no room: the client gets its reply, and all of it is counted."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from asked import KEY, Start, ask, body, figure, history, too_long
from forgetless import registry
from forgetless.policies.base import Context, assemble, floor
from forgetless.stores.inmemory import InMemory
from live import Provider
from sent import count


class Policy:
    """A policy that does what its case says."""

    lazy = True

    def __init__(self, case: str = "") -> None:
        self.case = case

    def __call__(self, units: Any, budget: int, query: Any = None) -> Any:
        kept = floor(units)
        good = assemble(units, kept, budget, pinned=kept)
        if self.case == "raises":
            raise ZeroDivisionError("what somebody said")
        if self.case == "recurses":
            return self(units, budget, query)
        every = dict.fromkeys(range(len(units)), "fits")
        return {
            "nothing": None,
            "text": "nonsense",
            "no ledger": Context(good.units, (), good.tokens, budget),
            "no messages": Context((), good.ledger, 0, budget),
            "too much": assemble(units, every, budget, pinned=kept),
            "not what must stay": assemble(units, {1: "selected"}, budget, pinned=kept),
        }[self.case]


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The policy `odd`, as an installed package would offer it."""
    monkeypatch.setitem(sys.modules, "odd_policies", SimpleNamespace(odd=Policy))  # type: ignore[arg-type]
    monkeypatch.setattr(registry, "POLICIES", {**registry.POLICIES, "odd": "odd_policies:odd"})


CASES = ["raises", "recurses", "nothing", "text", "no ledger", "no messages", "too much", "not what must stay"]


@pytest.mark.usefixtures("offered")
@pytest.mark.parametrize("case", CASES)
def test_a_policy_that_fails_costs_nothing_but_what_it_would_have_saved(
    case: str, provider: Provider, start: Start, http: httpx2.Client, caplog: pytest.LogCaptureFixture
) -> None:
    base = start(policy="odd", options={"case": case})
    assert ask(http, base, body(3)).headers["x-forgetless-outcome"] == "unchanged"
    answer = ask(http, base, body(12))
    assert (answer.status_code, answer.headers["x-forgetless-outcome"]) == (200, "fault")
    assert provider.seen[-1][1] == body(12)
    assert figure(http, base, 'forgetless_faults_total{kind="policy"}') == 1
    assert ask(http, base, body(3)).headers["x-forgetless-outcome"] == "unchanged", "afterwards all goes on"
    assert "somebody" not in caplog.text


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
def test_a_floor_above_the_budget_is_sent_said_and_counted(
    path: str, provider: Provider, store: InMemory, start: Start, http: httpx2.Client
) -> None:
    base = start(store)
    data = too_long(path)
    key = "input" if "input" in data else "messages"
    data[key] = [{"role": "user", "content": "first"}, {"role": "assistant", "content": "fine"}, *data[key]]
    answer = ask(http, base, json.dumps(data).encode(), path)
    assert (answer.status_code, answer.headers["x-forgetless-outcome"]) == (200, "floor")
    assert provider.bodies[-1] == {**data, key: data[key][-1:]}
    assert int(answer.headers["x-forgetless-tokens-after"]) > 400
    (one,) = [e for s in store.conversations() for b in store.branches(s.caller, s.conversation) for e in b.exchanges]
    assert one.outcome == "floor"
    told = http.get(f"{base}/forgetless/requests/{answer.headers['x-forgetless-request-id']}", headers=KEY).json()
    assert [(entry["form"], entry["reason"]) for entry in told["ledger"]][-1] == ("raw", "last_user")
    dialect = one.dialect
    assert figure(http, base, f'forgetless_requests_total{{dialect="{dialect}",outcome="floor",status="200"}}') == 1


def test_strict_is_an_error_that_the_openai_sdk_knows(provider: Provider, start: Start) -> None:
    base = start(strict=True)
    with openai.OpenAI(base_url=f"{base}/v1", api_key="k") as client:
        for call in (
            lambda: client.chat.completions.create(**too_long("messages")),
            lambda: client.chat.completions.create(**too_long("messages"), stream=True),
            lambda: client.responses.create(model="m", input=too_long("responses")["input"]),
        ):
            with pytest.raises(openai.BadRequestError, match="the budget is 400") as caught:
                call()
            assert caught.value.code == "budget_exceeded"
            assert caught.value.type == "invalid_request_error"
            assert caught.value.response.headers["x-forgetless-request-id"].startswith("fr_")
    assert provider.seen == [], "once, and nothing is sent"


def test_strict_is_an_error_that_the_anthropic_sdk_knows(provider: Provider, start: Start) -> None:
    base = start(strict=True)
    with anthropic.Anthropic(base_url=base, api_key="k") as client:
        with pytest.raises(anthropic.BadRequestError, match="the budget is 400") as caught:
            client.messages.create(**too_long("messages"))
        assert caught.value.body["error"]["type"] == "invalid_request_error"  # type: ignore[index]
        with pytest.raises(anthropic.BadRequestError), client.messages.stream(**too_long("messages")):
            pass
    assert provider.seen == []


def test_shadow_sends_everything_as_it_came_and_records_what_would_have_gone(
    provider: Provider, store: InMemory, start: Start, http: httpx2.Client
) -> None:
    base = start(store, shadow=True, strict=True)
    for turns in range(1, 15):
        answer = ask(http, base, body(turns))
        assert provider.seen[-1][1] == body(turns)
        assert answer.headers["x-forgetless-outcome"] == "shadow"
        assert int(answer.headers["x-forgetless-tokens-after"]) <= 400
        assert int(answer.headers["x-forgetless-tokens-before"]) == count({"messages": history(turns)})
    told = http.get(f"{base}/forgetless/requests/{answer.headers['x-forgetless-request-id']}", headers=KEY).json()
    assert any(entry["form"] == "omitted" for entry in told["ledger"])
    assert figure(http, base, "forgetless_tokens_saved_total") == 0
    before, after = (figure(http, base, f"forgetless_tokens_{name}_total") for name in ("before", "after"))
    assert before > after > 0
    long = json.dumps(too_long("messages")).encode()
    assert ask(http, base, long).status_code == 200, "what is only watched is not refused"
    assert provider.seen[-1][1] == long


def test_a_model_that_nobody_knows_passes_without_a_budget(
    provider: Provider, store: InMemory, start: Start, http: httpx2.Client
) -> None:
    base = start(store, budget=None)
    for turns in (1, 30):
        answer = ask(http, base, body(turns))
        assert (answer.status_code, answer.headers["x-forgetless-outcome"]) == (200, "no_budget")
        assert provider.seen[-1][1] == body(turns)
    known = ask(http, base, body(30, model="gpt-4o"), **{"x-forgetless-conversation": "known"})
    assert known.headers["x-forgetless-outcome"] == "unchanged"
    for odd in (body(2, model=7), body(2, model=None), body(2, model="gpt-4o", max_tokens=10**9), b'{"messages": []}'):
        assert ask(http, base, odd).status_code == 200
        assert provider.seen[-1][1] == odd
    assert store.check() == []
