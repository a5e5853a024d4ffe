"""A vocabulary of words, and of digits in twos: how a tiny model reads an environment's plain English.

A number of four digits is two pieces, so that each of them tells the next one: ten single digits turn up too often for
a model of two layers to know by them where it stands.

Pieces put together are the text again, blanks included, so that what a model writes can be read like any reply.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from string import ascii_uppercase

__all__ = ["Words"]

_PIECE = re.compile(r" ?(?:</?memory>|[A-Za-z]{2,}|\d{2}|[^\s])|\s")

END, UNKNOWN = 0, 1


class Words:
    """Text to numbers and back.

    Attributes:
        end: ends a reply, and fills up rows.
        size: how many numbers there are.
    """

    end = END

    def __init__(self, pieces: Sequence[str]) -> None:
        """Take the pieces, most of which a model knows by their place here."""
        self.pieces = list(pieces)
        self._numbers = {piece: at + 2 for at, piece in enumerate(self.pieces)}
        self.size = len(self.pieces) + 2

    @classmethod
    def of(cls, texts: Iterable[str]) -> Words:
        """The pieces of texts, and every letter and pair of digits that a code may have."""
        parts = {f"{blank}{one}" for one in ascii_uppercase for blank in ("", " ")} | {
            f"{pair:02}" for pair in range(100)
        }
        return cls(sorted({piece for text in texts for piece in _PIECE.findall(text)} | parts))

    def encode(self, text: str) -> list[int]:
        """The numbers of a text."""
        return [self._numbers.get(piece, UNKNOWN) for piece in _PIECE.findall(text)]

    def decode(self, numbers: Iterable[int]) -> str:
        """The text of numbers; what ends a reply is no text, and what is not known a question mark."""
        return "".join("�" if one == UNKNOWN else self.pieces[one - 2] for one in numbers if one != END)
