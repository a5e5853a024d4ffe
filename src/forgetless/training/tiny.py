"""A tiny Llama with a vocabulary of words: learns an environment of this project in minutes on one CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from forgetless.errors import ConfigError
from forgetless.training.words import Words

__all__ = ["load_tiny", "save_tiny", "tiny"]

WORDS = "words.json"


def tiny(words: Words, seed: int, *, width: int = 96, layers: int = 2, window: int = 1_024) -> Any:
    """A model that has learned nothing yet.

    Args:
        words: its vocabulary.
        seed: of its weights.
        width: of its layers, a multiple of 4 heads.
        layers: how many.
        window: most tokens.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=words.size,
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=window,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=words.end,
        pad_token_id=words.end,
    )
    return LlamaForCausalLM(config)


def save_tiny(model: Any, words: Words, folder: Path) -> None:
    """Write a model and its vocabulary."""
    model.save_pretrained(folder)
    (folder / WORDS).write_text(json.dumps(words.pieces, ensure_ascii=False) + "\n", "utf-8")


def load_tiny(folder: Path) -> tuple[Any, Words]:
    """What `save_tiny` wrote.

    Raises:
        ConfigError: there is none.
    """
    from transformers import LlamaForCausalLM

    if not (folder / WORDS).exists():
        raise ConfigError(f"{str(folder)!r} holds no model of forgetless: make one with `forgetless train ccm-start`")
    words = Words(json.loads((folder / WORDS).read_text("utf-8")))
    return LlamaForCausalLM.from_pretrained(folder), words
