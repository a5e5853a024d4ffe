"""The recogniser `oracle`: knows the answers, for benchmarks; with errors at a given rate (REA, Figure 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from forgetless.instructions.base import Span
from forgetless.instructions.noisy import Noisy

__all__ = ["Oracle"]


@dataclass(frozen=True)
class Oracle:
    """Finds what it was told, and errs on a share of the messages, as `Noisy` does.

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
    _noisy: Noisy = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        noisy = Noisy(self._told, self.false_positives, self.false_negatives, self.seed)
        object.__setattr__(self, "_noisy", noisy)

    def __call__(self, text: str) -> list[Span]:
        """The spans that are known, or the error."""
        return self._noisy(text)

    def _told(self, text: str) -> Sequence[Span]:
        return self.known.get(text, ())
