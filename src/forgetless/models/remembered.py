"""What a model says of texts, asked once for each text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from typing import Generic, TypeVar

__all__ = ["Remembered"]

Value = TypeVar("Value")


class Remembered(Generic[Value]):
    """A function of texts that keeps what it found, bounded; what was asked for longest ago goes first.

    Args:
        function: texts to a value for each.
        most: values to keep.
    """

    def __init__(self, function: Callable[[Sequence[str]], Iterable[Value]], most: int) -> None:
        self._function, self._most = function, most
        self._kept: dict[str, Value] = {}
        self._lock = Lock()

    def __call__(self, texts: Sequence[str]) -> list[Value]:
        """A value for each text."""
        distinct = dict.fromkeys(texts)
        with self._lock:
            known = {text: self._kept.pop(text) for text in distinct if text in self._kept}
        if new := [text for text in distinct if text not in known]:
            known.update(zip(new, self._function(new), strict=True))
        with self._lock:
            self._kept.update(known)
            for text in list(self._kept)[: max(0, len(self._kept) - self._most)]:
                del self._kept[text]
        return [known[text] for text in texts]
