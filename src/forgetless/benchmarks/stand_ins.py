"""What takes the place of models where policies are checked and not measured: quick, and the same on every machine."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from types import MappingProxyType
from typing import Any
from zlib import crc32

import numpy as np

from forgetless.models.encoder import Floats
from forgetless.models.token_classifier import Word
from forgetless.text import words

__all__ = ["STAND_INS", "Summariser", "classify", "embed"]

WIDTH = 64


def embed(texts: Sequence[str]) -> Floats:
    """A vector of length 1 for each text, in which its words are counted: [texts, WIDTH]."""
    vectors = np.full((len(texts), WIDTH), 1e-3, np.float32)
    for row, text in zip(vectors, texts, strict=True):
        for word in words(text):
            row[crc32(word.encode("utf-8", "surrogatepass")) % WIDTH] += 1
    found: Floats = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return found


def classify(texts: Sequence[str]) -> list[list[Word]]:
    """The words of each text, each with a probability that hangs on its letters."""
    return [
        [Word(m.start(), m.end(), 1 + len(m[0]) // 6, _share(m[0])) for m in re.finditer(r"\S+", text)]
        for text in texts
    ]


def _share(word: str) -> float:
    return crc32(word.encode("utf-8", "surrogatepass")) / 2**32


class Summariser:
    """A model whose summary is the first words of what it reads, about as many as the reply may have tokens.

    Attributes:
        name: of the model.
        window: most tokens of a request and its reply; small, so that long histories come in parts.
    """

    name = "stand-in"
    window: int | None = 1_500

    def __call__(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The summary as a completion."""
        read = body["messages"][-1]["content"].split()
        text = " ".join(read[: max(1, body["max_tokens"] // 4)])
        return {"choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]}

    def stream(self, body: Mapping[str, Any]) -> Generator[dict[str, Any], None, None]:
        """The same as one chunk."""
        (choice,) = self(body)["choices"]
        yield {"choices": [{"index": 0, "delta": choice["message"], "finish_reason": "stop"}]}

    def close(self) -> None:
        """Nothing to let go of."""


STAND_INS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "acon": {"summariser": Summariser()},
        "dense": {"embedder": embed},
        "llmlingua2": {"checkpoint": classify},
        "summary": {"summariser": Summariser()},
    }
)
"""Name of a policy -> options by which it runs without the model that it calls."""
