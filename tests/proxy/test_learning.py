"""The whole loop of learning: traffic, store, training, new weights in the running proxy, another context."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import httpx2
import pytest

from forgetless import compact
from forgetless.policies.lre.weights import Weights
from forgetless.stores.sqlite import Sqlite
from live import Provider, Said
from sent import count

pytest.importorskip("sklearn")

PATH = "/v1/chat/completions"
SHIPPED = Path(__file__).parents[2] / "src/forgetless/policies/lre"
BUDGET = 1_500


def step(number: int, command: str, result: str) -> list[dict[str, Any]]:
    call = {"id": f"call_{number}", "type": "function", "function": {"name": "run", "arguments": command}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": result},
    ]


def run(seed: int, steps: int) -> tuple[list[dict[str, Any]], str]:
    """An agent's run: it is given a ticket early, works with it now and then, and looks at much that it never needs."""
    rng = Random(seed)
    ticket = f"TKT-{rng.randrange(10**6):06d}-{rng.choice('abcdef')}{rng.randrange(100)}"
    said: list[dict[str, Any]] = [{"role": "user", "content": f"Settle complaint {seed} and report."}]
    for number in range(steps):
        command = f'{{"look": "page {rng.randrange(900)}"}}'
        result = "\n".join(f"row {rng.randrange(10**5)} of the table, nothing special" for _ in range(6))
        if number == 1:
            command, result = '{"open": "complaint"}', f"opened as {ticket}"
        elif number % 4 == 3:
            command, result = f'{{"note": "{ticket}"}}', "noted"
        said += step(number, command, result)
    return said, ticket


@pytest.fixture
def agents(provider: Provider) -> Provider:
    """A provider whose model does what the recorded runs say: the next step is theirs."""
    provider.answer = lambda _, body: Said("go on", tokens=count(body))
    return provider


def test_what_is_learned_from_traffic_decides_in_the_next_conversation(
    agents: Provider, start: Callable[..., str], http: httpx2.Client, tmp_path: Path
) -> None:
    from forgetless.cli.train import lre

    file, path = tmp_path / "scorer.json", tmp_path / "store.db"
    shutil.copy(SHIPPED / "conversation.json", file)
    store = Sqlite(path)
    base = start(store, policy="lre", options={"scorer": str(file), "keep": 0}, budget=BUDGET)

    def ask(said: list[dict[str, Any]], name: str) -> dict[str, Any]:
        headers = {"authorization": "Bearer sk-agent", "x-forgetless-conversation": name}
        answer = http.post(base + PATH, json={"model": "m", "messages": said}, headers=headers)
        assert answer.headers["x-forgetless-outcome"] in ("unchanged", "compacted")
        url = f"{base}/forgetless/requests/{answer.headers['x-forgetless-request-id']}"
        found: dict[str, Any] = http.get(url, headers=headers).json()
        return found

    for seed in range(12):
        said, _ = run(seed, 24)
        for end in (9, 33, len(said)):
            last = ask(said[:end], f"run {seed}")
    began_with = Weights.load(file).version
    assert last["scorer"] == began_with

    lre(data=(path,), out=file, label="reuse")
    learned = Weights.load(file).version
    assert learned != began_with

    said, ticket = run(99, 40)
    ledger = ask(said, "the next one")
    assert ledger["scorer"] == learned
    kept = {entry["unit"]: entry["form"] == "raw" for entry in ledger["ledger"]}
    assert kept[2]  # the step that opened the ticket
    assert ticket in str(agents.bodies[-1]["messages"][:5])
    by_age = compact(said, budget=BUDGET, policy="fifo")
    assert {entry.unit: entry.form == "raw" for entry in by_age.ledger}[2] is False

    again, _ = run(11, 30)
    assert ask(again, "run 11")["scorer"] == began_with  # it keeps the weights that it began with

    file.write_text("{}")
    assert ask(run(100, 12)[0], "after a bad file")["scorer"] == learned


def test_the_weights_of_a_conversation_outlive_the_proxy(
    agents: Provider, start: Callable[..., str], http: httpx2.Client, tmp_path: Path
) -> None:
    file, path = tmp_path / "scorer.json", tmp_path / "store.db"
    seen: list[str] = []
    for name, steps in (("conversation", 20), ("agent", 30)):
        shutil.copy(SHIPPED / f"{name}.json", file)
        base = start(Sqlite(path), policy="lre", options={"scorer": str(file)}, budget=BUDGET)
        answer = http.post(base + PATH, json={"model": "m", "messages": run(5, steps)[0]})
        url = f"{base}/forgetless/requests/{answer.headers['x-forgetless-request-id']}"
        seen.append(http.get(url).json()["scorer"])
    assert seen[0] == seen[1] == Weights.load(SHIPPED / "conversation.json").version
