"""Vectors made here and read by a server, over a real socket: the payload is one that vLLM takes."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from forgetless import ModelError, Session, load_policy
from forgetless.models.embeds import part
from forgetless.models.load import load_model
from forgetless.policies.rea import latent as memories
from forgetless.proxy.app import build
from forgetless.proxy.settings import Settings
from latents import StandIn
from live import Provider, serving

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from vllm_server import PLACEHOLDER, Vllm  # noqa: E402 - it needs torch

REPLY = "The inn {n} at the harbour has twelve rooms, and a night in one of them costs {n} and a half crowns."


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, Vllm]]:
    server = Vllm(StandIn.width, ("base", "rea-generate"))
    with serving(server.app) as url:
        yield f"{url}/v1", server


@pytest.fixture
def vllm(served: tuple[str, Vllm]) -> tuple[str, Vllm]:
    server = served[1]
    server.prompts, server.models, server.bodies = [], [], []
    return served


def ask(session: Session, model: Any, turns: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}]
    for n in range(turns):
        messages.append({"role": "user", "content": f"What about inn {n}?"})
        done = session.prepare(messages)
        reply = model({"messages": done.messages, "max_tokens": 8})
        session.observe(reply["choices"][0]["message"], reply["usage"])
        messages.append({"role": "assistant", "content": REPLY.format(n=n)})
    return messages


def test_a_conversation_goes_to_the_generate_adapter_with_its_replies_as_tensors(vllm: tuple[str, Vllm]) -> None:
    address, server = vllm
    latent = StandIn()
    policy = load_policy("rea", compress=latent, thresholds=(0.0, 1.0), replies="paper")
    with closing(load_model(address, "rea-generate")) as model:
        messages = ask(Session(budget=10**6, policy=policy, dialect="chat"), model, 4)
    assert server.models == ["rea-generate"] * 4
    roles, said = zip(*server.prompts[-1], strict=True)
    assert roles == ("system", "user", "assistant", "user", "assistant", "user", "assistant", "user")
    for wire, pieces in zip(messages, said, strict=False):
        (piece,) = pieces
        if wire["role"] != "assistant":
            assert piece == wire["content"]
        else:
            assert piece.dtype == torch.float32
            assert np.array_equal(piece.numpy(), StandIn().encode([wire["content"]])[0])
    compressed = [text for batch in latent.batches for text in batch if text.startswith("The inn")]
    assert compressed == [REPLY.format(n=n) for n in range(3)], "each once"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ([part(np.zeros((8, StandIn.width + 1), np.float32))], "num_tokens"),
        ([part(np.zeros((8, StandIn.width), np.int64))], "floating"),
        ([part(np.zeros((1, 8, StandIn.width), np.float32))], "num_tokens"),
        ([{"type": "prompt_embeds", "data": "?"}], "loaded"),
        (f"A text with {PLACEHOLDER} in it.", "reserved"),
    ],
)
def test_the_server_refuses_what_vllm_refuses(vllm: tuple[str, Vllm], content: Any, told: str) -> None:
    with closing(load_model(vllm[0], "base")) as model, pytest.raises(ModelError, match=told) as refused:
        model({"messages": [{"role": "user", "content": content}]})
    assert refused.value.status == 400


def test_an_adapter_that_is_not_served_is_named(vllm: tuple[str, Vllm]) -> None:
    with closing(load_model(vllm[0], "rea-other")) as model, pytest.raises(ModelError, match="rea-other") as refused:
        model({"messages": [{"role": "user", "content": "Hi"}]})
    assert refused.value.status == 404


def test_through_the_proxy_a_plain_client_gets_latent_memory(
    vllm: tuple[str, Vllm], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, server = vllm
    latent = StandIn()
    monkeypatch.setattr(memories, "load_memories", lambda _: memories.memories_of(latent))
    options = {"compress": "latent", "thresholds": [0.0, 1.0]}
    settings = Settings(
        upstream=address.removesuffix("/v1"), policy="rea", options=options, budget=100_000, store="memory"
    )
    history: list[dict[str, Any]] = []
    with serving(build(settings)) as proxy:
        for n in range(3):
            history.append({"role": "user", "content": f"What about inn {n} at the harbour?"})
            assert post(f"{proxy}/v1/chat/completions", {"model": "rea-generate", "messages": history}) == 200
            history.append({"role": "assistant", "content": REPLY.format(n=n)})
    assert server.models == ["rea-generate"] * 3
    assert [type(said[0]) is str for _, said in server.prompts[-1]] == [True, False, True, False, True]
    assert sum(text.startswith("The inn") for batch in latent.batches for text in batch) == 2


def test_the_proxy_hands_on_dialects_that_have_no_vectors_as_they_came(monkeypatch: pytest.MonkeyPatch) -> None:
    latent, provider = StandIn(), Provider()
    monkeypatch.setattr(memories, "load_memories", lambda _: memories.memories_of(latent))
    options = {"compress": "latent", "thresholds": [0.0, 1.0]}
    said = [{"role": "user", "content": "Hm?"}, {"role": "assistant", "content": REPLY.format(n=1)}]
    body = {"model": "base", "max_tokens": 9, "messages": [*said, {"role": "user", "content": "And?"}]}
    with serving(provider.app) as upstream:
        settings = Settings(upstream=upstream, policy="rea", options=options, budget=100_000, store="memory")
        with serving(build(settings)) as proxy:
            assert post(f"{proxy}/v1/messages", body) == 200
    assert (provider.bodies, latent.batches) == ([body], [])


def post(url: str, body: dict[str, Any]) -> int:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return int(answer.status)
