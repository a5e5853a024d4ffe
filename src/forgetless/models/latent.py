"""What a latent model is: texts to a few vectors each, and a chat model that reads those vectors in place of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from forgetless.models.base import Model

__all__ = ["Latent", "Vectors"]

Vectors = NDArray[np.float32]
"""What stands for a text: [slots, width]."""


class Latent(Model, Protocol):
    """A model with two roles: it compresses texts to vectors, and it answers with such vectors in its prompt.

    As a `Model` it takes Chat Completions whose content may be a list of parts `{"type": "text"}` and
    `{"type": "prompt_embeds"}` (`models/embeds.py` reads and writes the latter).

    Attributes:
        slots: vectors of a text.
        width: numbers of a vector.
        most: tokens of a text that go in; what is longer is cut there.
    """

    slots: int
    width: int
    most: int

    def encode(self, texts: Sequence[str]) -> list[Vectors]:
        """Vectors of each text, [slots, width]; the same for a text alone and among others, but for rounding."""

    def loss(self, messages: Sequence[Mapping[str, Any]], reply: str) -> tuple[float, int]:
        """How surprising a reply is after messages: nats in all, and the tokens that they are of."""
