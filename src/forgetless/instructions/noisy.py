"""Any recogniser with errors at given rates: what is left of its worth when it is a worse one (REA, Figure 5)."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

from forgetless.errors import ConfigError
from forgetless.instructions.base import Recogniser, Span

__all__ = ["Noisy"]


@dataclass(frozen=True)
class Noisy:
    """A recogniser that errs on a share of the messages, the same ones each time.

    Attributes:
        find: what is made worse.
        false_positives: share of the messages in which it finds nothing that count as an instruction as a whole.
        false_negatives: share of the messages in which it finds something of which nothing is found.
        seed: which messages these are.

    Raises:
        ConfigError: a share is none.
    """

    find: Recogniser
    false_positives: float = 0.0
    false_negatives: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        for share in (self.false_positives, self.false_negatives):
            if not 0 <= share <= 1:
                raise ConfigError(f"a rate of errors must be a share from 0 to 1, not {share!r}")

    def __call__(self, text: str) -> list[Span]:
        """What the recogniser finds, or the error."""
        spans = list(self.find(text))
        if self._draw(text) >= (self.false_negatives if spans else self.false_positives):
            return spans
        bare = text.strip()
        start = text.find(bare)
        return [] if spans or not bare else [(start, start + len(bare))]

    def _draw(self, text: str) -> float:
        """A number from 0 up to 1 that hangs on the message and the seed alone."""
        mixed = blake2b(f"{self.seed} {text}".encode("utf-8", "surrogatepass"), digest_size=7).digest()
        return int.from_bytes(mixed) / 2**56
