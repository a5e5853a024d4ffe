"""A store that keeps nothing: `--store none`."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence

from forgetless.stores.base import Conversation, Exchange, Place, Summary

__all__ = ["Nothing"]


class Nothing:
    """Takes everything and keeps none of it; its salt is new each time."""

    def __init__(self) -> None:
        self.salt = secrets.token_bytes(16)

    def write(self, exchanges: Sequence[Exchange]) -> None:
        """Drop them."""

    def locate(self, caller: str, keys: Sequence[bytes]) -> Place | None:
        """Nowhere."""
        return None

    def state(self, caller: str, conversation: str, keys: Sequence[bytes]) -> bytes | None:
        """None."""
        return None

    def request(self, caller: str, request: str) -> Exchange | None:
        """None."""
        return None

    def conversations(self, caller: str | None = None) -> list[Summary]:
        """None."""
        return []

    def branches(self, caller: str, conversation: str) -> Iterator[Conversation]:
        """None."""
        return iter(())

    def pins(self, caller: str, conversation: str) -> frozenset[bytes]:
        """None."""
        return frozenset()

    def pin(self, caller: str, conversation: str, key: bytes, *, on: bool = True) -> None:
        """Drop it."""

    def memory(self, caller: str, conversation: str, keys: Sequence[bytes]) -> tuple[int, str] | None:
        """None."""
        return None

    def remember(self, caller: str, conversation: str, key: bytes, memory: str) -> None:
        """Drop it."""

    def purge(self, *, caller: str | None = None, conversation: str | None = None, before: float | None = None) -> int:
        """Nothing to remove."""
        return 0

    def check(self) -> list[str]:
        """Nothing can be wrong."""
        return []

    def tidy(self) -> bool:
        """Nothing to do."""
        return False

    def close(self) -> None:
        """Nothing to let go of."""
