"""Tiny checkpoints with random weights, in the layout of the real ones: files as transformers writes and reads them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Make = Callable[..., Path]

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
WIDTH, LAYERS, WIDE = 16, 2, 32


def bert(folder: Path, *, window: int = 24, labels: int = 0) -> Path:
    """A BERT with a WordPiece tokenizer over single characters and a few words."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    words = [*special, *LETTERS, *(f"##{c}" for c in LETTERS), "harbour", "the", ".", "-", "/"]
    tokenizer = Tokenizer(models.WordPiece({word: at for at, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    ends = [("[CLS]", 2), ("[SEP]", 3)]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    return _write(folder, tokenizer, "bert", window, labels)


def xlm_roberta(folder: Path, *, window: int = 24, labels: int = 2) -> Path:
    """An XLM-RoBERTa with a Unigram tokenizer over single characters and a few words."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    special = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    words = [("\u2581", -3.0), ("\u2581harbour", -4.0), ("\u2581the", -4.0), (".", -4.0), ("-", -4.0), ("/", -4.0)]
    tokenizer = Tokenizer(models.Unigram([*special, *words, *((c, -5.0) for c in LETTERS)], unk_id=3))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tokenizer.decoder = decoders.Metaspace()
    ends = [("<s>", 0), ("</s>", 2)]
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ends)
    return _write(folder, tokenizer, "xlm-roberta", window, labels)


def _write(folder: Path, tokenizer: Any, family: str, window: int, labels: int) -> Path:
    kinds, pad = (2, 0) if family == "bert" else (1, 1)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    vocabulary, places = tokenizer.get_vocab_size(), window + (2 if family == "xlm-roberta" else 0)
    name = {"bert": "Bert", "xlm-roberta": "XLMRoberta"}[family] + ("ForTokenClassification" if labels else "Model")
    config = {
        "model_type": family, "architectures": [name], "hidden_act": "gelu", "hidden_size": WIDTH,
        "intermediate_size": WIDE, "num_hidden_layers": LAYERS, "num_attention_heads": 2, "vocab_size": vocabulary,
        "max_position_embeddings": places, "type_vocab_size": kinds, "pad_token_id": pad, "layer_norm_eps": 1e-5,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (vocabulary, WIDTH),
        "embeddings.position_embeddings.weight": (places, WIDTH),
        "embeddings.token_type_embeddings.weight": (kinds, WIDTH),
        **_linear("embeddings.LayerNorm", WIDTH),
    }
    for layer in range(LAYERS):
        at = f"encoder.layer.{layer}"
        for part in ("query", "key", "value"):
            shapes |= _linear(f"{at}.attention.self.{part}", WIDTH, WIDTH)
        shapes |= _linear(f"{at}.attention.output.dense", WIDTH, WIDTH)
        shapes |= _linear(f"{at}.intermediate.dense", WIDE, WIDTH)
        shapes |= _linear(f"{at}.output.dense", WIDTH, WIDE)
        shapes |= _linear(f"{at}.attention.output.LayerNorm", WIDTH) | _linear(f"{at}.output.LayerNorm", WIDTH)
    if labels:  # a model with a head on top gives its encoder a name
        prefix = family.removeprefix("xlm-") + "."
        shapes = {prefix + key: shape for key, shape in shapes.items()} | _linear("classifier", labels, WIDTH)
    rng = np.random.default_rng(7)
    save(folder / "model.safetensors", {key: rng.normal(0, 0.5, shape).astype("<f4") for key, shape in shapes.items()})
    return folder


def _linear(name: str, outputs: int, *inputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (outputs, *inputs), f"{name}.bias": (outputs,)}


def save(path: Path, tensors: dict[str, np.ndarray], dtype: str = "F32") -> None:
    """Write a safetensors file."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, tensor in tensors.items():
        raw = tensor.tobytes()
        header[name] = {"dtype": dtype, "shape": tensor.shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    told = json.dumps(header).encode()
    told += b" " * (-len(told) % 8)
    path.write_bytes(len(told).to_bytes(8, "little") + told + data)
