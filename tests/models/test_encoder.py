"""Encoders in numpy: the vectors that transformers computes from the same files."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import checkpoints
from forgetless.errors import ConfigError, MissingExtra
from forgetless.models.encoder import Encoder

pytest.importorskip("tokenizers")

TEXT = "the harbour of ab-12/x. We met at the old mill in 1987, near harbour. k"
MAKES = {"bert": checkpoints.bert, "xlm-roberta": checkpoints.xlm_roberta}
families = pytest.mark.parametrize("family", MAKES)


@pytest.mark.parametrize(
    ("family", "first", "total"),
    [
        ("bert", [-0.623610, -0.090917, 0.330071, -0.498971], -149.37566),
        ("xlm-roberta", [-0.700930, 0.213989, 0.073913, -0.270018], -58.445618),
    ],
)
def test_vectors_are_those_of_transformers(tmp_path: Path, family: str, first: list[float], total: float) -> None:
    """The figures are from transformers 5.24.0 and torch 2.13.0 on the same files."""
    encoder = Encoder(MAKES[family](tmp_path, window=100, labels=2))
    (states,) = encoder([encoder.pieces(TEXT)])
    assert states[1, :4] == pytest.approx(first, abs=1e-5)
    assert float(states.sum()) == pytest.approx(total, abs=1e-3)


@pytest.mark.torch
@families
def test_vectors_are_those_of_transformers_on_any_text(tmp_path: Path, family: str) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    encoder = Encoder(MAKES[family](tmp_path, window=200))
    model = transformers.AutoModel.from_pretrained(tmp_path).eval()
    begin, end = (0, 2) if family == "xlm-roberta" else (2, 3)
    for text in (TEXT, "", "k" * 180, "Grüße, 世界! \ud83d"):
        pieces = encoder.pieces(text)
        with torch.no_grad():
            ids = torch.tensor([[begin, *(piece.number for piece in pieces), end]])
            theirs = model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0].numpy()
        assert np.abs(next(iter(encoder([pieces]))) - theirs).max() < 1e-5


@families
def test_a_text_gives_the_same_beside_others(tmp_path: Path, family: str) -> None:
    encoder = Encoder(MAKES[family](tmp_path, window=80))
    texts = [encoder.pieces(text) for text in ("the harbour", "", "k " * 30, "ab-12", "the harbour")]
    together = list(encoder(texts))
    assert [len(states) for states in together] == [len(pieces) + 2 for pieces in texts]
    for pieces, states in zip(texts, together, strict=True):
        assert np.abs(next(iter(encoder([pieces]))) - states).max() < 1e-6
    assert list(encoder([])) == []


@pytest.mark.parametrize(("dtype", "numpy", "near"), [("F16", "<f2", 1e-2), ("BF16", "<u2", 5e-2)])
def test_half_precision_weights(tmp_path: Path, dtype: str, numpy: str, near: float) -> None:
    exact = Encoder(checkpoints.bert(tmp_path / "exact"))
    checkpoints.bert(tmp_path / "half")
    names = json.loads(_header(tmp_path / "exact" / "model.safetensors"))
    tensors = {name: exact._weights[name] for name in names if name != "__metadata__"}
    if dtype == "BF16":
        halves = {name: (np.ascontiguousarray(t).view(np.uint32) >> 16).astype(numpy) for name, t in tensors.items()}
    else:
        halves = {name: t.astype(numpy) for name, t in tensors.items()}
    checkpoints.save(tmp_path / "half" / "model.safetensors", halves, dtype)
    half = Encoder(tmp_path / "half")
    pieces = exact.pieces("the harbour of ab-12")
    assert next(iter(half([pieces]))) == pytest.approx(next(iter(exact([pieces]))), abs=near)


def _header(path: Path) -> bytes:
    data = path.read_bytes()
    return data[8 : 8 + int.from_bytes(data[:8], "little")]


def test_special_tokens_in_a_text_are_text(tmp_path: Path) -> None:
    encoder = Encoder(checkpoints.bert(tmp_path))
    numbers = [piece.number for piece in encoder.pieces("a [SEP] b [CLS] <s>")]
    assert not {2, 3} & set(numbers)


def test_files_that_are_no_checkpoints(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="name the folder of a checkpoint"):
        Encoder(tmp_path)
    folder = checkpoints.bert(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "gpt2"}))
    with pytest.raises(ConfigError, match="'gpt2', not one of bert, xlm-roberta"):
        Encoder(folder)
    checkpoints.bert(folder)
    checkpoints.save(folder / "model.safetensors", {"embeddings.word_embeddings.weight": np.zeros(3, "<i8")}, "I64")
    encoder = Encoder(folder)
    with pytest.raises(ConfigError, match="has no weights"):
        list(encoder([[]]))
    (folder / "model.safetensors").write_bytes(b"no tensors here")
    with pytest.raises(ConfigError, match="safetensors"):
        Encoder(folder)
    checkpoints.bert(folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match=r"no file .*tokenizer\.json"):
        Encoder(folder)


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = checkpoints.bert(tmp_path)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingExtra, match=r"pip install 'forgetless\[dense\]'"):
        Encoder(folder)
