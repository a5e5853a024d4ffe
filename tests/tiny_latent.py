"""A tiny Llama with random weights and a vocabulary of words, for tests of the latent memory."""

from __future__ import annotations

from typing import Any

WORDS = 60

TEMPLATE = (
    "{% for m in messages %}{{ '<s>' + m['role'] + ' ' + m['content'] + '</s>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s>assistant ' }}{% endif %}"
)


def tokenizer() -> Any:
    """Words w0, w1, ... and the roles, with a chat template."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = ["<unk>", "<s>", "</s>", "system", "user", "assistant", *(f"w{n}" for n in range(WORDS))]
    made = Tokenizer(models.WordLevel({name: at for at, name in enumerate(names)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    found = PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", bos_token="<s>", eos_token="</s>")
    found.chat_template = TEMPLATE
    return found


def backbone(width: int = 32, layers: int = 2, seed: int = 0, **more: Any) -> Any:
    """A model that has learnt nothing."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=WORDS + 6,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
        **more,
    )
    return LlamaForCausalLM(config).requires_grad_(False).eval()
