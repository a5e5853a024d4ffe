"""What is taken out of a reply: memory blocks, whole or as edits, and what takes them out."""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

__all__ = ["Block", "Taker"]


class Block(NamedTuple):
    """One memory block of a reply.

    Attributes:
        kind: `whole` takes the place of the memory, `edit` changes lines of it.
        text: between its marks, as the model wrote it.
    """

    kind: Literal["whole", "edit"]
    text: str


class Taker(Protocol):
    """Takes the memory blocks out of one text of a reply, which may come in pieces.

    However a text is cut, the same goes on and the same blocks are taken.

    Attributes:
        blocks: taken so far, in order.
        broken: blocks that began and did not end. They are no blocks: their text goes on.
    """

    blocks: list[Block]
    broken: int

    def feed(self, text: str) -> str:
        """Take a piece; what may go on by now."""

    def end(self) -> str:
        """The text is over: the rest of what goes on."""
