"""Latent memory with a real network, tiny and untrained: what it makes fits what it reads, cached or not."""

from __future__ import annotations

from collections import Counter as Bag
from typing import Any

import numpy as np
import pytest

from forgetless import Session, compact, load_policy
from forgetless.models.embeds import vectors
from forgetless.policies.rea.latent import memories_of

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("peft")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")]

REPLIES = [
    f"The inn number {n} at the harbour has {rooms} rooms, and a night in one of them costs {n} crowns and no more."
    for n, rooms in enumerate(("twelve", "seven", "nine", "forty"))
]
TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture(scope="module")
def local() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    from forgetless.models.local.local import Local
    from forgetless.models.local.network import Network, Shape

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    marks = ["<end>", "<system>", "<user>", "<assistant>"]
    made = Tokenizer(models.BPE({one: at for at, one in enumerate([*letters, *marks])}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>")
    tokenizer.add_special_tokens({"additional_special_tokens": marks[1:]})
    tokenizer.chat_template = TEMPLATE
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4
    )
    network = Network(transformers.LlamaForCausalLM(config).requires_grad_(False), Shape(most=256))
    return Local("tiny", network, tokenizer)


def talk(turns: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}]
    for n in range(turns):
        messages += [{"role": "user", "content": f"What about inn {n} at the harbour?"}]
        messages += [{"role": "assistant", "content": REPLIES[n]}]
    return [*messages, {"role": "user", "content": f"How many rooms does inn {turns} at the harbour have?"}]


def policy(local: Any) -> Any:
    return load_policy("rea", compress=local, thresholds=(0.0, 1.0), replies="paper")


def memory(message: dict[str, Any]) -> Any:
    (part,) = message["content"]
    return vectors(part)


def test_a_whole_conversation_compresses_each_reply_once_to_what_it_is_without_the_cache(
    local: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    memories_of.cache_clear()
    given: list[str] = []
    encode = local.encode
    monkeypatch.setattr(local, "encode", lambda texts: given.extend(texts) or encode(texts))
    session = Session(budget=10**6, policy=policy(local), dialect="chat")
    for turns in range(1, 5):
        warm = session.prepare(talk(turns))
    assert {text: n for text, n in Bag(given).items() if text in REPLIES} == dict.fromkeys(REPLIES, 1)
    memories_of.cache_clear()
    cold = compact(talk(4), budget=10**6, policy=policy(local))
    for at, reply in zip(range(2, 9, 2), REPLIES, strict=True):
        kept, made = memory(warm.messages[at]), memory(cold.messages[at])
        assert kept.shape == (local.slots, local.width)
        assert np.allclose(kept, made, atol=1e-5)
        assert np.allclose(kept, encode([reply])[0], atol=1e-5), "alone too"
    assert [e.score for e in warm.ledger] == [e.score for e in cold.ledger]


def test_the_model_reads_what_the_policy_makes_and_it_matters_which(local: Any) -> None:
    done = compact(talk(3), budget=10**6, policy=policy(local))
    reply = local({"messages": done.messages, "max_tokens": 3})
    text = compact(talk(3), budget=10**6, policy="full")
    full = local({"messages": text.messages, "max_tokens": 3})
    saved = sum(len(local.tokenizer(r, add_special_tokens=False).input_ids) - local.slots for r in REPLIES[:3])
    assert full["usage"]["prompt_tokens"] - reply["usage"]["prompt_tokens"] == saved > 0
    nats, tokens = local.loss(done.messages, "It has nine rooms.")
    swapped = [*done.messages]
    swapped[2], swapped[4] = swapped[4], swapped[2]
    assert nats > 0
    assert tokens == len("It has nine rooms.")
    assert local.loss(swapped, "It has nine rooms.")[0] != nats
