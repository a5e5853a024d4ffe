"""The adapters that ship: a reply's memory says of it what another reply's does not, on the real embedded model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("peft", reason="needs peft")
pytest.importorskip("gguf", reason="needs gguf")

from forgetless.models.embeds import part
from forgetless.models.local import load_local

pytestmark = [pytest.mark.torch, pytest.mark.slow]

TALKS = (
    (
        "Tell me about a bird.",
        "The kingfisher dives into rivers to catch small fish and nests in tunnels that it digs into muddy banks.",
        "Where does it nest, and what does it catch?",
        "The kingfisher nests in tunnels in muddy river banks and catches small fish.",
    ),
    (
        "Which dish should I cook?",
        "Make a lentil soup with carrots, onions and cumin; simmer for thirty minutes and add lemon juice at the end.",
        "Shorten the recipe.",
        "Simmer lentils with carrots, onions and cumin for thirty minutes, then add lemon juice.",
    ),
    (
        "Describe a town.",
        "Hallstatt lies between a lake and steep Austrian Alps, and is known for its salt mine and wooden houses.",
        "Say it in other words.",
        "Hallstatt is an Austrian town at a lake below the Alps, famous for salt and wooden houses.",
    ),
)


@pytest.fixture(scope="module")
def model() -> Iterator[Any]:
    made = load_local()
    yield made
    made.close()


def test_the_right_memory_beats_another_and_none(model: Any) -> None:
    memories = [part(memory) for memory in model.encode([reply for _, reply, _, _ in TALKS])]
    for at, (asked, reply, then, answer) in enumerate(TALKS):

        def nats(content: Any, asked: str = asked, then: str = then, answer: str = answer) -> float:
            said = ({"role": "user", "content": asked}, {"role": "assistant", "content": content})
            lost, tokens = model.loss([*said, {"role": "user", "content": then}], answer)
            return float(lost) / int(tokens)

        right = nats([memories[at]])
        assert nats(reply) < right < nats([memories[at - 1]]) - 0.2
        assert right < nats("") - 0.2


def test_a_reply_can_be_written_with_a_memory_in_the_prompt(model: Any) -> None:
    (memory,) = model.encode([TALKS[0][1]])
    said = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [part(memory)]}]
    body = {"messages": [*said, {"role": "user", "content": "Say it again."}], "max_tokens": 4}
    (choice,) = model(body)["choices"]
    assert choice["message"]["content"].strip()
