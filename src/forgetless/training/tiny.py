"""A tiny Llama with a vocabulary of words: learns an environment of this project in minutes on one CPU."""

from __future__ import annotations

from typing import Any

import torch

from forgetless.training.words import Words

__all__ = ["tiny"]


def tiny(words: Words, seed: int, *, width: int = 96, layers: int = 3, window: int = 1_024) -> Any:
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
