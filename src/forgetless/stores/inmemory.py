"""A store in memory, gone with the process: SQLite without a file, so that it behaves as the others do."""

from __future__ import annotations

from forgetless.stores.sqlite import Sqlite

__all__ = ["InMemory"]


class InMemory(Sqlite):
    """Keeps conversations as long as the process lives.

    Args:
        contents: whether messages, states and memories are kept.
    """

    def __init__(self, *, contents: bool = True) -> None:
        super().__init__(":memory:", contents=contents)
