"""REA's latent memory: each reply as a few vectors, made once, that tell how near it is and stand in its place.

The vectors of a text hang on the text alone. So they are kept by it, and a reply is compressed once, wherever it stands
and whatever is edited before it. A question is compressed together with the replies that are new (REA, "Episodic
Memory" and "History Compression Retrieval").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from threading import Lock

import numpy as np

from forgetless.messages import Opaque, Text
from forgetless.models.embeds import part
from forgetless.models.latent import Latent, Vectors
from forgetless.models.load import load_latent
from forgetless.models.remembered import Remembered
from forgetless.tokens import PER_MESSAGE
from forgetless.units import Unit

__all__ = ["Memories", "Nearest", "load_memories", "memories_of"]

MOST = 4_096
"""Texts whose vectors are kept."""


class Memories:
    """The vectors of texts.

    Attributes:
        latent: makes them.
        near: compares them.
    """

    def __init__(self, latent: Latent) -> None:
        """Begin with none."""
        self.latent = latent
        self.near = Nearest(self)
        self._vectors = Remembered(latent.encode, MOST)
        self._lock = Lock()  # a model compresses for one caller at a time, and no text for two

    def __call__(self, texts: Sequence[str]) -> list[Vectors]:
        """The vectors of each text, [slots, width]; those that are not known are made in one batch.

        Nothing is made of a text without words: its vectors are zeros, which are near to nothing.
        """
        with self._lock:
            made = iter(self._vectors([text for text in texts if text.strip()]))
        blank = np.zeros((self.latent.slots, self.latent.width), np.float32)
        return [next(made) if text.strip() else blank for text in texts]

    def stand(self, units: Sequence[Unit]) -> dict[int, Unit]:
        """What stands in the place of replies, by the index of the unit: the vectors, or itself where it is no longer.

        A unit with anything but text in it, such as a tool call, is not among them.
        """
        plain = {unit.index: unit for unit in units if _plain(unit)}
        tokens = PER_MESSAGE + self.latent.slots  # as a counter finds by taking the part apart
        longer = [unit for unit in plain.values() if unit.tokens > tokens]
        made = zip(longer, self([unit.text for unit in longer]), strict=True)
        return plain | {unit.index: _made(unit, vectors, tokens) for unit, vectors in made}


class Nearest:
    """The highest cosine between any vector of a text and any of the question, at least 0.

    Attributes:
        folder: of the adapters, whose thresholds lie there; None where the model has none.
    """

    name = "latent"

    def __init__(self, memories: Memories) -> None:
        """Compare vectors of a model."""
        self._memories = memories
        self.folder: Path | None = getattr(memories.latent, "folder", None)

    def __call__(self, texts: Sequence[str], question: str) -> list[float]:
        """See `Similarity`."""
        *said, asked = map(_of_length_one, self._memories([*texts, question]))
        return [max(0.0, round(float((vectors @ asked.T).max()), 2)) for vectors in said]


@lru_cache(4)
def memories_of(latent: Latent) -> Memories:
    """The memories of a model, the same for all policies of a process that have this model."""
    return Memories(latent)


@lru_cache(4)
def load_memories(adapters: str) -> Memories:
    """The memories of a model on this machine.

    Args:
        adapters: as in `load_latent`, whose errors these are.
    """
    return memories_of(load_latent(adapters))  # type: ignore[arg-type]  # protocols do not say that they hash


def _plain(unit: Unit) -> bool:
    """Whether a unit is a reply in words alone."""
    return unit.kind == "assistant" and all(type(part) is Text for message in unit.messages for part in message.parts)


def _made(unit: Unit, vectors: Vectors, tokens: int) -> Unit:
    (message,) = unit.messages
    return replace(unit, messages=(replace(message, parts=(Opaque(part(vectors)),)),), tokens=tokens)


def _of_length_one(vectors: Vectors) -> Vectors:
    lengths = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-12))
    found: Vectors = vectors / lengths
    return found
