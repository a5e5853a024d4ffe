"""The protocol of recognisers, and a memory for what they have judged."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from typing import Protocol, TypeAlias

__all__ = ["Recogniser", "Remembering", "Span"]

Span: TypeAlias = tuple[int, int]
"""Where in a text an instruction stands: first character, end."""

MOST = 20_000
"""Texts whose judgement is remembered; each takes some hundred bytes."""


class Recogniser(Protocol):
    """Finds standing instructions: what a user wants of all later replies, or of a number of them."""

    def __call__(self, text: str) -> Sequence[Span]:
        """The spans of a user's text that hold one, in order; none for a request that ends with its reply."""


class Remembering:
    """A recogniser that judges each text once."""

    def __init__(self, recogniser: Recogniser) -> None:
        """Wrap a recogniser."""
        self.recogniser = recogniser
        self._judged: OrderedDict[bytes, tuple[Span, ...]] = OrderedDict()

    def __call__(self, text: str) -> tuple[Span, ...]:
        """As the recogniser's."""
        key = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        found = self._judged.get(key)
        if found is None:
            found = self._judged[key] = tuple(self.recogniser(text))
            while len(self._judged) > MOST:
                self._judged.pop(next(iter(self._judged)), None)
        return found
