"""A latent model for tests: words to vectors without a network, and a count of what it was asked."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any
from zlib import crc32

import numpy as np

from forgetless.models.latent import Vectors

__all__ = ["StandIn"]


class StandIn:
    """Each word adds to one number of one vector; texts with words in common have vectors that are alike.

    Attributes:
        batches: the texts of each call.
    """

    name = "stand-in"
    window: int | None = None
    slots = 8
    width = 32
    most = 512

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def encode(self, texts: Sequence[str]) -> list[Vectors]:
        """Vectors of each text, [slots, width]."""
        self.batches.append(list(texts))
        return [self._vectors(text) for text in texts]

    def _vectors(self, text: str) -> Vectors:
        made = np.zeros((self.slots, self.width), np.float32)
        for at, word in enumerate(text.lower().split()):
            made[at % self.slots, crc32(word.strip(".,?!").encode("utf-8", "surrogatepass")) % self.width] += 1
        return made

    def __call__(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """How many messages there are, as a completion."""
        said = {"role": "assistant", "content": f"There are {len(body['messages'])} messages."}
        return {"choices": [{"index": 0, "message": said, "finish_reason": "stop"}], "usage": {"prompt_tokens": 9}}

    def stream(self, body: Mapping[str, Any]) -> Generator[dict[str, Any], None, None]:
        """Nothing."""
        yield from ()

    def loss(self, messages: Sequence[Mapping[str, Any]], reply: str) -> tuple[float, int]:
        """A nat for each message, over the words of the reply."""
        return float(len(messages)), len(reply.split())

    def close(self) -> None:
        """Nothing to let go of."""
