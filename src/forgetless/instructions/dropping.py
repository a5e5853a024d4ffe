"""The recogniser of one conversation: what its user has taken off the list of instructions counts no more."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from forgetless.instructions.base import Recogniser, Span

__all__ = ["Dropping"]


class Dropping:
    """A recogniser that finds nothing in the texts that a user has said hold no instruction.

    It goes by the words: said again they count no more than before. A pin holds them.

    Attributes:
        find: recognises.
        dropped: texts in which nothing is to be found.
    """

    def __init__(self, find: Recogniser) -> None:
        """Begin with nothing dropped."""
        self.find = find
        self.dropped: Collection[str] = frozenset()

    def __call__(self, text: str) -> Sequence[Span]:
        """As the recogniser's, less what is dropped."""
        return () if text in self.dropped else self.find(text)
