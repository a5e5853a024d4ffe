"""The recogniser `oracle`: knows the answers, for benchmarks; with errors at a given rate (REA, Figure 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from forgetless.instructions.base import Span

__all__ = ["Oracle"]


@dataclass(frozen=True)
class Oracle:
    """Finds what it was told, and errs on a share of the messages, the same ones each time.

    Attributes:
        known: message -> where its instructions stand; messages that are not in it hold none.
        false_positives: share of the messages without an instruction that count as one as a whole.
        false_negatives: share of the messages with an instruction of which nothing is found.
        seed: which messages these are.
    """

    known: Mapping[str, Sequence[Span]]
    false_positives: float = 0.0
    false_negatives: float = 0.0
    seed: int = 0

    def __call__(self, text: str) -> list[Span]:
        """The spans that are known, or the error."""
        spans = list(self.known.get(text, ()))
        errs = self._draw(text) < (self.false_negatives if spans else self.false_positives)
        if not errs:
            return spans
        bare = text.strip()
        start = text.find(bare)
        return [] if spans or not bare else [(start, start + len(bare))]

    def _draw(self, text: str) -> float:
        """A number from 0 up to 1 that hangs on the message and the seed alone."""
        mixed = blake2b(f"{self.seed} {text}".encode("utf-8", "surrogatepass"), digest_size=7).digest()
        return int.from_bytes(mixed) / 2**56
