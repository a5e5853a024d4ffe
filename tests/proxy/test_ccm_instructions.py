"""Standing instructions under CCM: in the prompt whether kept or said again, in every form, within the budget."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from forgetless.policies.ccm.policy import ccm
from forgetless.policies.ccm.templates import TEMPLATES
from forgetless.proxy.memories import Remembering
from forgetless.session import Session
from live import Provider, Said
from sent import KEYS, VALIDATORS, count

PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "anthropic": "/v1/messages"}
RULE = "From now on, never send a message yourself, only leave drafts."


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("remind", [True, False])
def test_an_instruction_stands_in_every_prompt_once(
    *, remind: bool, template: str, dialect: str, provider: Provider, start: Callable[..., str], http: httpx2.Client
) -> None:
    turn = 0

    def answer(path: str, body: dict[str, Any]) -> Said:
        memory = f"turn={turn} " + "marble timber " * 20
        made = json.dumps({"context_window": memory, "commands": []})
        return Said(
            made if template == "terminal" else f"<memory>\n{memory}\n</memory>\nrun {turn}", tokens=count(body)
        )

    provider.answer = answer
    base = start(policy="ccm", budget=700, remind=remind, options={"template": template})
    history: list[dict[str, Any]] = []
    for turn in range(6):
        text = RULE if turn == 1 else f"Letter {turn}: what does it say? " + "harbour garden window " * 15
        history.append({"role": "user", "content": text})
        answered = http.post(base + PATHS[dialect], json={"model": "m", "max_tokens": 500, KEYS[dialect]: history})
        assert answered.status_code == 200
        body = provider.bodies[-1]
        assert count(body) <= 700
        assert VALIDATORS[dialect](body) == []
        prompt = json.dumps(body[KEYS[dialect]])
        assert prompt.count(RULE) == (turn > 0)
        assert (f"turn={turn - 1} " in prompt) == (turn > 0)
        assert f"turn={turn - 2} " not in prompt
        if remind and turn > 1:
            *_, last = body[KEYS[dialect]]
            assert json.dumps(last).index(RULE) > json.dumps(last).index(f"Letter {turn}")
        history.append(
            {"role": "assistant", "content": '{"commands": []}' if template == "terminal" else f"run {turn}"}
        )


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("remind", [True, False])
def test_instructions_never_make_a_request_fail_and_stand_where_half_of_the_room_holds_them(
    remind: bool, template: str
) -> None:
    said: list[dict[str, Any]] = []
    for text in ("Sort my mail.", RULE, *("harbour garden window " * 20 for _ in range(6))):
        said += [{"role": "user", "content": text}, {"role": "assistant", "content": "noted"}]
    said.append({"role": "user", "content": "And now?"})
    memory = "marble timber pepper " * 60
    taken = Session(budget=9_000).take(said)
    rewriter = ccm(template, counter=taken.counter)
    least = rewriter.prompt(taken.units, memory, 9_000).tokens
    policy = Remembering(rewriter, memory, len(taken.units), own=rewriter.own(taken.units, memory))
    stood = []
    for budget in range(least, least + 80):
        session = Session(budget=budget, remind=remind, instructions="learned")
        done = session.prepare(said, policy=policy)
        assert done.tokens == sum(entry.tokens_after for entry in done.ledger) <= budget
        assert (RULE in json.dumps(done.messages)) == (RULE in done.instructions)
        stood.append(bool(done.instructions))
    assert stood == sorted(stood)
    assert (stood[0], stood[-1]) == (False, True)
