"""Keep the units whose embeddings are nearest to that of what is asked: dense retrieval, the usual baseline.

A token is worth the cosine of its unit, so the budget goes to the nearest units token by token, whatever their length.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from forgetless.models.embedder import Embedder, load_embedder
from forgetless.models.encoder import Floats
from forgetless.models.remembered import Remembered
from forgetless.policies.select import Select
from forgetless.units import Unit

__all__ = ["Dense", "dense"]

KEPT = 20_000
"""Vectors kept at most."""


class Dense:
    """Scores units by the cosine of their embedding to that of the query; a text is embedded once.

    Args:
        embedder: what makes the vectors.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._vectors: Remembered[Floats] = Remembered(embedder, KEPT)

    def __call__(self, units: Sequence[Unit], query: Unit | None = None) -> list[float]:
        """One score per unit, at least 0; all 0 where nothing is asked."""
        if query is None:
            return [0.0] * len(units)
        *vectors, asked = self._vectors([*(unit.text for unit in units), query.text])
        # Rounded, since the last digits of a vector depend on what it was computed beside.
        return [unit.tokens * max(0.0, round(float(v @ asked), 4)) for unit, v in zip(units, vectors, strict=True)]


def dense(embedder: str | Path | Embedder | None = None, model_name: str | None = None) -> Select:
    """The policy `dense`.

    Args:
        embedder: the folder of a sentence-transformers checkpoint, the address of an OpenAI-compatible server, or an
            embedder; None for all-MiniLM-L6-v2 from its package.
        model_name: of the model at the server.

    Raises:
        ConfigError: there is no such checkpoint, or the server's model is not named.
        MissingExtra: the model's package or the tokenizer's library is not installed.
    """
    if embedder is None or isinstance(embedder, str | Path):
        return Select(_loaded(embedder, model_name))
    return Select(Dense(embedder))


@lru_cache(4)
def _loaded(embedder: str | Path | None, model_name: str | None) -> Dense:
    """One for all sessions of a process, since it holds the model."""
    return Dense(load_embedder(embedder, model_name))
