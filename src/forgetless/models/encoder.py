"""Encoders of the BERT family, run with numpy from the files of a checkpoint: a vector for each token of a text.

For small models and short texts a CPU gains nothing from a deep-learning framework. BERT and XLM-RoBERTa are
the same computation but for the number of the first position. The tokens of several texts stand below one another,
so that no padding is needed: only attention looks at each text alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from forgetless.errors import ConfigError, MissingExtra

__all__ = ["Encoder", "Floats", "Piece"]

Floats = NDArray[np.float32]

BATCH = 128
"""Tokens at once: enough that the weights are not read anew for each, few enough to stay in the cache."""

_DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_FIRST = {"bert": 0, "xlm-roberta": 2}
"""Families, and the number of the first position in each."""

_LAYER = ("attention.output.dense", "attention.output.LayerNorm", "intermediate.dense", "output.dense",
          "output.LayerNorm")  # fmt: skip
_ERF = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)


class Piece(NamedTuple):
    """A token of a text: its number, what the vocabulary calls it, and where it stands in the text."""

    number: int
    name: str
    start: int
    end: int


class Encoder:
    """An encoder with its tokenizer.

    Attributes:
        window: most tokens of a text, the two special ones included.

    Args:
        folder: holds `config.json`, `model.safetensors` and `tokenizer.json`.

    Raises:
        ConfigError: a file is missing, or the model is of another kind.
        MissingExtra: the library that reads the tokenizer is not installed.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.config = self.json("config.json")
        family = self.config.get("model_type")
        if family not in _FIRST or self.config.get("hidden_act") != "gelu":
            raise ConfigError(f"{str(folder)!r} holds a model of type {family!r}, not one of {', '.join(_FIRST)}")
        self._weights = _Weights(self.folder / "model.safetensors")
        self._prefix = "" if "embeddings.word_embeddings.weight" in self._weights else f"{family.split('-')[-1]}."
        self._first = _FIRST[family]
        self.window = int(self.config["max_position_embeddings"]) - self._first
        self._tokenizer = _tokenizer(self.folder / "tokenizer.json")

    def json(self, name: str, otherwise: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """A JSON file of the checkpoint, or `otherwise` where there is none.

        Raises:
            ConfigError: it can't be read, and there is no `otherwise`.
        """
        path = self.folder / name
        if otherwise is not None and not path.is_file():
            return otherwise
        try:
            found: Mapping[str, Any] = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise ConfigError(f"{str(path)!r} can't be read: name the folder of a checkpoint") from error
        return found

    def pieces(self, text: str) -> list[Piece]:
        """The tokens of a text, without special ones; a special token that stands in the text is text."""
        found = self._tokenizer.encode(text.encode("utf-8", "replace").decode("utf-8"), add_special_tokens=False)
        return [Piece(i, name, *at) for i, name, at in zip(found.ids, found.tokens, found.offsets, strict=True)]

    def __call__(self, texts: Sequence[Sequence[Piece]]) -> Iterator[Floats]:
        """The last layer's vectors of each text, between those of the two special tokens: [2 + pieces, width]."""
        for batch in _batches(texts):
            yield from self._states(batch)

    def _states(self, texts: Sequence[Sequence[Piece]]) -> list[Floats]:
        begin, end = self._ends
        edges = np.cumsum([0, *(len(pieces) + 2 for pieces in texts)]).tolist()
        numbers = [n for pieces in texts for n in (begin, *(piece.number for piece in pieces), end)]
        places = np.concatenate([np.arange(len(pieces) + 2) for pieces in texts]) + self._first
        words, positions, kinds = self._tables
        states = _normed(words[numbers] + positions[places] + kinds[0], *self._norm)
        for layer in self._layers:
            states = self._layer(states, edges, *layer)
        return [states[start:stop] for start, stop in pairwise(edges)]

    def head(self, name: str) -> tuple[Floats, Floats]:
        """Weight and bias of a layer on top, such as `classifier`: [outputs, width] and [outputs].

        Raises:
            ConfigError: the checkpoint has no such layer.
        """
        return self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]

    def _layer(self, states: Floats, edges: Sequence[int], *parts: tuple[Floats, Floats]) -> Floats:
        joint, mix, mixed_norm, widen, narrow, norm = parts
        heads = int(self.config["num_attention_heads"])
        many, width = states.shape
        scale = np.float32(np.sqrt(width / heads))
        # [tokens, 3 * width] -> query, key and value, each [heads, tokens, width / heads]
        three = _dense(states, joint).reshape(many, 3, heads, width // heads).transpose(1, 2, 0, 3)
        seen = np.empty_like(states)
        for start, stop in pairwise(edges):
            query, key, value = three[:, :, start:stop]
            weights = _softmax(query @ key.transpose(0, 2, 1) / scale)
            seen[start:stop] = (weights @ value).transpose(1, 0, 2).reshape(stop - start, width)
        states = _normed(states + _dense(seen, mix), *mixed_norm, eps=self._eps)
        return _normed(states + _dense(_gelu(_dense(states, widen)), narrow), *norm, eps=self._eps)

    @cached_property
    def _ends(self) -> tuple[int, int]:
        begin, end = self._tokenizer.encode("", add_special_tokens=True).ids
        return begin, end

    @cached_property
    def _eps(self) -> float:
        return float(self.config.get("layer_norm_eps", 1e-12))

    @cached_property
    def _norm(self) -> tuple[Floats, Floats, float]:
        return *self.head(f"{self._prefix}embeddings.LayerNorm"), self._eps

    @cached_property
    def _tables(self) -> tuple[Floats, ...]:
        names = ("word_embeddings", "position_embeddings", "token_type_embeddings")
        return tuple(self._weights[f"{self._prefix}embeddings.{name}.weight"] for name in names)

    @cached_property
    def _layers(self) -> list[tuple[tuple[Floats, Floats], ...]]:
        layers = []
        for number in range(int(self.config["num_hidden_layers"])):
            name = f"{self._prefix}encoder.layer.{number}"
            three = [self.head(f"{name}.attention.self.{part}") for part in ("query", "key", "value")]
            joint = (np.concatenate([weight for weight, _ in three]), np.concatenate([bias for _, bias in three]))
            layers.append((joint, *(self.head(f"{name}.{part}") for part in _LAYER)))
        return layers


class _Weights:
    """The tensors of a safetensors file, read when they are asked for."""

    def __init__(self, path: Path) -> None:
        try:
            self._data = np.memmap(path, np.uint8, mode="r")
            size = int.from_bytes(self._data[:8].tobytes(), "little")
            self._told: Mapping[str, Any] = json.loads(self._data[8 : 8 + size].tobytes())
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{str(path)!r} can't be read: a checkpoint in the safetensors format goes there"
            ) from error
        self._path, self._start = path, 8 + size

    def __contains__(self, name: str) -> bool:
        return name in self._told

    def __getitem__(self, name: str) -> Floats:
        told = self._told.get(name, {})
        if told.get("dtype") not in _DTYPES:
            raise ConfigError(f"{str(self._path)!r} has no weights {name!r} of type {', '.join(_DTYPES)}")
        begin, end = (self._start + offset for offset in told["data_offsets"])
        values: NDArray[Any] = self._data[begin:end].view(_DTYPES[told["dtype"]]).reshape(told["shape"])
        if told["dtype"] == "BF16":  # the upper half of a float32
            values = (values.astype(np.uint32) << 16).view(np.float32)
        return np.asarray(values, np.float32)


def _batches(texts: Sequence[Sequence[Piece]]) -> Iterator[Sequence[Sequence[Piece]]]:
    start = tokens = 0
    for stop, pieces in enumerate(texts, 1):
        tokens += len(pieces) + 2
        if tokens >= BATCH or stop == len(texts):
            yield texts[start:stop]
            start, tokens = stop, 0


def _tokenizer(path: Path) -> Any:
    try:
        from tokenizers import Tokenizer
    except ModuleNotFoundError:
        raise MissingExtra("dense", "tokenizers") from None
    if not path.is_file():
        raise ConfigError(f"there is no file {str(path)!r}")
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True  # a special token that a user wrote is text
    return tokenizer


def _dense(states: Floats, layer: tuple[Floats, Floats]) -> Floats:
    weight, bias = layer
    out: Floats = states @ weight.T
    out += bias
    return out


def _normed(states: Floats, weight: Floats, bias: Floats, eps: float) -> Floats:
    centred = states - states.mean(axis=1, keepdims=True)
    spread = np.sqrt((centred * centred).mean(axis=1, keepdims=True) + np.float32(eps))
    normed: Floats = centred / spread * weight + bias
    return normed


def _softmax(scores: Floats) -> Floats:
    grown: Floats = np.exp(scores - scores.max(axis=-1, keepdims=True))
    grown /= grown.sum(axis=-1, keepdims=True)
    return grown


def _gelu(values: Floats) -> Floats:
    """Each x times the share of the normal distribution below x, by a polynomial that is right to 2e-7."""
    size = np.abs(values) * np.float32(np.sqrt(0.5))
    step = 1 / (1 + np.float32(0.3275911) * size)
    beyond = np.zeros_like(step)  # the share beyond |x|
    for factor in reversed(_ERF):
        beyond += np.float32(factor)
        beyond *= step
    beyond *= np.exp(-size * size) / 2
    share: Floats = np.where(values >= 0, 1 - beyond, beyond)
    return values * share
