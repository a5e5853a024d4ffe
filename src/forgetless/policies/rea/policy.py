"""The policy `rea`, with text in place of latent memory: works with any chat endpoint (REA, "Episodic Memory").

What users say stays as it is. Each reply enters raw, compressed to some of its sentences, or not at all, by how
similar it is to the newest question: below one threshold, between two, above the other. It is eager: it chooses at
every call. Where what it would keep is over the budget, the least similar replies give way first, user words last.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias

from forgetless.errors import ConfigError
from forgetless.messages import Message, Part, Result, Text
from forgetless.policies.base import Context, assemble, capacity, floor, last_user
from forgetless.policies.rea.extract import extract
from forgetless.policies.rea.similarity import Similarity, similarity
from forgetless.text import words
from forgetless.tokens import Counter, for_model
from forgetless.units import Unit

__all__ = ["Rea", "Replies", "rea", "thresholds"]

Replies: TypeAlias = Literal["bands", "paper", "preserve", "abandon"]

REASON = "sentences"

FEW = 6
"""Words of a question that may be all about what was said last."""

_BACK = re.compile(
    r"\b(?:it|them|they|these|those|that|this|the (?:first|second|third|last|other|next|previous|above)|one|ones|again|"
    r"continue|more|sie|diese[rsn]?|davon|nochmal|weiter|eso|esos|esas|ellos|lo|los|las|anterior|cela|ceux|celles|"
    r"ça|encore|précédent\w*)\b|那|这|這|它|上面|刚才|それ|これ|その|上の|続け",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Rea:
    """Keeps user words, and of the replies what the question is near to.

    Attributes:
        near: how similar a reply is to the question.
        low: below it a reply is left out.
        high: above it a reply stays raw; what lies between, both ends included, is compressed.
        replies: `bands` by the thresholds, with the last turn never left out, and raw where the question points back
            to it; `paper` by the thresholds alone; `preserve` keeps all replies, `abandon` none (REA, Table 5).
        counter: counts what is compressed.
    """

    near: Similarity
    low: float
    high: float
    replies: Replies = "bands"
    counter: Counter = field(default_factory=for_model)
    lazy: ClassVar[bool] = False

    def __call__(self, units: Sequence[Unit], budget: int, query: Unit | None = None) -> Context:
        """The context for a question: by default the newest user message."""
        pinned = floor(units)
        left = capacity(units, pinned, budget)
        asked = query or last_user(units)
        free = [unit for unit in units if unit.index not in pinned]
        said = [unit for unit in free if unit.kind in ("assistant", "step")]
        near = dict(zip((unit.index for unit in said), self._near(said, asked), strict=True))
        forms = {unit.index: self._form(near[unit.index], unit, units, asked) for unit in said}
        forms |= {unit.index: "raw" for unit in free if unit.index not in forms}
        stand = self._fit(free, forms, near, left)
        changed = {index: unit for index, unit in stand.items() if unit is not units[index]}
        kept = {index: REASON if index in changed else "similar" if index in near else "user" for index in stand}
        return assemble(
            units, {**pinned, **kept}, budget, pinned=pinned, scores=near, changed=changed, dropped="dissimilar"
        )

    def _near(self, said: Sequence[Unit], asked: Unit | None) -> list[float]:
        if asked is None or not said:
            return [0.0] * len(said)
        return self.near([unit.text for unit in said], asked.text)

    def _form(self, near: float, unit: Unit, units: Sequence[Unit], asked: Unit | None) -> str:
        """What a reply would be without a budget."""
        if self.replies in ("preserve", "abandon"):
            return "raw" if self.replies == "preserve" else "omitted"
        form = "raw" if near > self.high else "omitted" if near < self.low else "compressed"
        if self.replies == "bands" and asked is not None and _last_turn(unit, units, asked):
            return "raw" if _points_back(asked.text) else form.replace("omitted", "compressed")
        return form

    def _compressed(self, unit: Unit) -> Unit:
        """A reply with some of its sentences, calls and all else as they are; itself where that saves nothing."""
        messages = tuple(self._short(message) for message in unit.messages)
        tokens = sum(map(self.counter.message, messages))
        return replace(unit, messages=messages, tokens=tokens) if tokens < unit.tokens else unit

    def _short(self, message: Message) -> Message:
        def short(part: Part) -> Part:
            if type(part) is Text:
                return replace(part, text=extract(part.text, self.counter.text))
            if type(part) is Result and not part.fixed:
                inner = (
                    replace(p, text=extract(p.text, self.counter.text)) if type(p) is Text else p for p in part.content
                )
                return replace(part, content=tuple(inner))
            return part

        return replace(message, parts=tuple(map(short, message.parts)))

    def _fit(
        self, free: Sequence[Unit], forms: Mapping[int, str], near: Mapping[int, float], left: int
    ) -> dict[int, Unit]:
        """What stands for each unit, within the room: the least similar replies give way first, then old words."""
        whole = {unit.index: unit for unit in free}
        stand = {
            index: self._compressed(whole[index]) if form == "compressed" else whole[index]
            for index, form in forms.items()
            if form != "omitted"
        }
        total = sum(unit.tokens for unit in stand.values())
        replies = sorted((index for index in stand if index in near), key=lambda index: (near[index], index))
        for index in replies:
            if total <= left:
                return stand
            total -= stand[index].tokens
            stand[index] = self._compressed(whole[index])
            total += stand[index].tokens
        for index in [*replies, *sorted(stand.keys() - near.keys())]:
            if total <= left:
                break
            total -= stand.pop(index).tokens
        return stand


def _last_turn(unit: Unit, units: Sequence[Unit], asked: Unit) -> bool:
    """Whether a unit belongs to the turn before the question."""
    before = next((u.index for u in reversed(units[: asked.index]) if u.kind == "user"), -1)
    return before < unit.index < asked.index


def _points_back(question: str) -> bool:
    """Whether a question is short and speaks of something that it does not name."""
    return len(words(question)) <= FEW * 2 and bool(_BACK.search(question))


@cache
def thresholds() -> dict[str, list[float]]:
    """The low and the high threshold of each similarity, as `forgetless train rea-thresholds` found them."""
    found: dict[str, list[float]] = json.loads(Path(__file__).with_name("thresholds.json").read_text("utf-8"))["near"]
    return found


def rea(
    near: str | Similarity = "bm25",
    low: float | None = None,
    high: float | None = None,
    replies: Replies = "bands",
    counter: Counter | None = None,
) -> Rea:
    """The policy `rea`.

    Args:
        near: `bm25`, `dense` (all-MiniLM-L6-v2), or a similarity.
        low: below this similarity a reply is left out; by default calibrated for the similarity.
        high: above this similarity a reply stays as it is; by default the same.
        replies: `bands`, `paper`, `preserve` or `abandon`: see `Rea`.
        counter: counts what is compressed.

    Raises:
        ConfigError: an option is wrong.
        MissingExtra: what a similarity needs is not installed.
    """
    if replies not in ("bands", "paper", "preserve", "abandon"):
        raise ConfigError(f"replies must be bands, paper, preserve or abandon, not {replies!r}")
    made = similarity(near)
    known = thresholds().get(made.name, [None, None])
    low, high = (known[0] if low is None else low), (known[1] if high is None else high)
    if low is None or high is None or not 0 <= low <= high:
        raise ConfigError(f"the thresholds must be numbers with 0 <= low <= high, not {low!r} and {high!r}")
    return Rea(made, low, high, replies, counter or for_model())
