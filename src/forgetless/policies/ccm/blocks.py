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
        broken: blocks that began and did not end. They are no blocks: their text goes on, unless the reply was cut off
            in them.
    """

    blocks: list[Block]
    broken: int

    @property
    def open(self) -> bool:
        """Whether a block has begun and not ended: what becomes of its text depends on how the reply ends."""

    def feed(self, text: str) -> str:
        """Take a piece; what may go on by now."""

    def end(self, cut: bool | None = False) -> str:
        """The text is over: the rest of what goes on.

        Args:
            cut: whether the reply was cut off here; what stands in an open block is then dropped. None where that is
                not known yet: what goes on in any case, and where a block is `open`, `end` has to be called again.
        """
