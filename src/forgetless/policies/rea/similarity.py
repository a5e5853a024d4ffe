"""How similar replies are to a question, by words, embeddings or memories (REA, "History Compression Retrieval")."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import log
from typing import Protocol

from forgetless.errors import ConfigError
from forgetless.text import words

__all__ = ["LATENT", "Dense", "Similarity", "Words", "similarity"]

LATENT = "latent"
"""Names the similarity of memories, and compression to them."""


class Similarity(Protocol):
    """One number for each text, higher is nearer to the question."""

    name: str

    def __call__(self, texts: Sequence[str], question: str) -> list[float]:
        """From 0 to 1, rounded to two decimals as REA does, so that equal texts are equal."""


class Words:
    """BM25 as a share of what a text could reach that has, without end, each word of the question that any text has."""

    name = "bm25"

    def __call__(self, texts: Sequence[str], question: str) -> list[float]:
        """See `Similarity`."""
        asked = dict.fromkeys(words(question))
        said = list(map(words, texts))
        found = [Counter(filter(asked.__contains__, each)) for each in said]
        lengths = list(map(len, said))
        mean = sum(lengths) / len(texts) if texts else 0.0
        many = Counter(word for hit in found for word in hit)
        worth = {word: log(1 + (len(texts) - many[word] + 0.5) / (many[word] + 0.5)) for word in asked}
        most = sum(worth[word] for word in asked if many[word]) or 1.0
        return [
            round(sum(worth[word] * _often(n, length, mean or 1.0) for word, n in hit.items()) / most, 2)
            for hit, length in zip(found, lengths, strict=True)
        ]


def _often(count: int, length: int, mean: float) -> float:
    """BM25's share for a word that stands in a text so often: towards 1."""
    return count / (count + 1.5 * (0.25 + 0.75 * length / mean))


class Dense:
    """The cosine of embeddings, at least 0."""

    name = "dense"

    def __init__(self) -> None:
        """Load the embedder of the policy `dense`.

        Raises:
            MissingExtra: its package is not installed.
        """
        from forgetless.models.embedder import load_embedder
        from forgetless.models.remembered import Remembered

        self._vectors = Remembered(load_embedder(None, None), 20_000)

    def __call__(self, texts: Sequence[str], question: str) -> list[float]:
        """See `Similarity`."""
        *vectors, asked = self._vectors([*texts, question])
        return [max(0.0, round(float(vector @ asked), 2)) for vector in vectors]


def similarity(named: str | Similarity) -> Similarity:
    """A similarity by name; `latent` may have `#` and a folder of adapters behind it.

    Raises:
        ConfigError: unknown name.
        MissingExtra: what it needs is not installed.
    """
    if not isinstance(named, str):
        if not callable(named):
            raise ConfigError(f"{named!r} is no similarity: it must take texts and a question, and give numbers")
        return named
    if named.partition("#")[0] == LATENT:
        from forgetless.policies.rea.latent import load_memories

        return load_memories(named.partition("#")[2]).near
    kinds: dict[str, type[Words] | type[Dense]] = {Words.name: Words, Dense.name: Dense}
    if named not in kinds:
        raise ConfigError(f"there is no similarity {named!r}: it is one of {', '.join(sorted([*kinds, LATENT]))}")
    return kinds[named]()
