"""The policy `rea`: compressed replies as text, for any chat endpoint, or as latent memory (REA, "Episodic Memory").

What users say stays as it is. Each reply enters raw, compressed, or not at all, by how similar it is to the newest
question: below one threshold, between two, above the other. It is eager: it chooses at every call. Where what it would
keep is over the budget, replies that are not near give way first, then user words that are not.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from forgetless.errors import ConfigError
from forgetless.messages import Opaque
from forgetless.models.base import Model
from forgetless.models.load import load_model
from forgetless.policies.base import Context, assemble, capacity, floor, last_user, opener
from forgetless.policies.rea.extract import Extracts, shortened
from forgetless.policies.rea.pointing import pointed
from forgetless.policies.rea.rewrite import FAILED, Rewrites
from forgetless.policies.rea.similarity import LATENT, Similarity, Words, similarity
from forgetless.tokens import Counter, for_model
from forgetless.units import Unit

if TYPE_CHECKING:
    from forgetless.models.latent import Latent
    from forgetless.policies.rea.latent import Memories

__all__ = ["Rea", "Replies", "calibrated", "rea"]

Replies: TypeAlias = Literal["bands", "paper", "preserve", "abandon"]

REASON = "sentences"

HERE = Path(__file__).parent
THRESHOLDS = "thresholds.json"
"""Beside this module; those of memories beside the adapters that make them."""


@dataclass(frozen=True)
class Rea:
    """Keeps user words, and of the replies what the question is near to.

    Attributes:
        near: how similar a reply is to the question.
        low: below it a reply is left out.
        high: above it a reply stays raw; what lies between, both ends included, is compressed.
        replies: `bands` by the thresholds, with the last turn never left out, and raw what the question points back
            to; `paper` by the thresholds alone; `preserve` keeps all replies, `abandon` none (REA, Table 5).
        rewrites: compresses by a model that writes; without, some of the sentences stay.
        memories: compresses replies to vectors; what is no reply in words alone, such as a step, by sentences.
        counter: counts what is compressed.
        extracts: takes sentences.
    """

    near: Similarity
    low: float
    high: float
    replies: Replies = "bands"
    rewrites: Rewrites | None = None
    memories: Memories | None = None
    counter: Counter = field(default_factory=for_model)
    extracts: Extracts = field(default_factory=Extracts, repr=False, compare=False)
    lazy: ClassVar[bool] = False
    reminds: ClassVar[bool] = True

    @property
    def vectors(self) -> bool:
        """Whether its contexts hold memory vectors, which only some servers of the dialect `chat` can read."""
        return self.memories is not None

    def __call__(self, units: Sequence[Unit], budget: int, query: Unit | None = None) -> Context:
        """The context for a question: by default the newest user message."""
        pinned = floor(units)
        left = capacity(units, pinned, budget)
        asked = query or last_user(units)
        free = {unit.index: unit for unit in units if unit.index not in pinned}
        near = self._near([unit for unit in free.values() if unit.kind != "user"], asked)
        meant = self._meant(units, asked)
        last = next((u.index for u in reversed(units[: asked.index]) if u.kind == "user"), 0) if asked else 0
        forms = dict.fromkeys(free, "raw")
        for index in near.keys() - meant:
            forms[index] = self._form(near[index], last=last < index)
        stand = {index: unit for index, unit in free.items() if forms[index] != "omitted"}
        shorter = {index for index in stand if forms[index] == "compressed"}
        stand |= self._short([free[index] for index in sorted(shorter)])
        if (over := sum(unit.tokens for unit in stand.values()) - left) > 0:
            near |= self._near([unit for unit in free.values() if unit.kind == "user"], asked)
            for group in self._order(free, near, meant):
                over = self._give_way(stand, shorter, group, over)
            _open(units, pinned, stand, -over)
        kept = {index: "user" if unit.kind == "user" else "similar" for index, unit in stand.items()}
        kept |= self._rewrite(units, stand, sorted(shorter.intersection(stand)), left)
        changed = {index: unit for index, unit in stand.items() if unit is not units[index]}
        return assemble(
            units, {**pinned, **kept}, budget, pinned=pinned, scores=near, changed=changed, dropped="dissimilar"
        )

    def _meant(self, units: Sequence[Unit], asked: Unit | None) -> frozenset[int]:
        """The replies that the question points back to."""
        if asked is None or self.replies != "bands":
            return frozenset()
        # A name is found by words: by its vectors no text is quite unlike another.
        return pointed(units, asked, Words() if getattr(self.near, "name", "") == LATENT else self.near)

    def _short(self, units: Sequence[Unit]) -> dict[int, Unit]:
        """Units compressed, by their index; one that this would not shorten as it is."""
        made = self.memories.stand(units) if self.memories is not None else {}
        return {u.index: made.get(u.index) or shortened(u, self.counter, self.extracts) for u in units}

    def _near(self, said: Sequence[Unit], asked: Unit | None) -> dict[int, float]:
        """How near units are to a question, by their index."""
        if asked is None or not said:
            return dict.fromkeys((unit.index for unit in said), 0.0)
        return dict(zip((u.index for u in said), self.near([u.text for u in said], asked.text), strict=True))

    def _form(self, near: float, *, last: bool) -> str:
        """What a reply would be without a budget; `last` says that it belongs to the turn before the question."""
        if self.replies in ("preserve", "abandon"):
            return "raw" if self.replies == "preserve" else "omitted"
        if near > self.high:
            return "raw"
        return "compressed" if near >= self.low or (last and self.replies == "bands") else "omitted"

    def _order(
        self, free: Mapping[int, Unit], near: Mapping[int, float], meant: Collection[int]
    ) -> Iterator[list[int]]:
        """Groups of units that give way one after the other, each the least similar first.

        Replies that are not near, user words that are not, what is near, and last what the question points back to.
        User words are as near as what answers them.
        """
        worth = {index: (index in meant, score) for index, score in near.items()}
        said = -1
        for index in sorted(near):
            if free[index].kind == "user":
                said = index
            elif said >= 0:
                worth[said] = max(worth[said], worth[index])
        words = {index for index in near if free[index].kind == "user"}
        ranked = sorted(near, key=lambda index: (worth[index], index in words, index))
        far = [index for index in ranked if worth[index] <= (False, self.high)]
        yield [index for index in far if index not in words]
        yield [index for index in far if index in words]
        yield [index for index in ranked if (False, self.high) < worth[index] < (True, 0.0)]
        yield [index for index in ranked if worth[index] >= (True, 0.0)]

    def _give_way(self, stand: dict[int, Unit], shorter: set[int], group: Sequence[int], over: int) -> int:
        """Compress the replies of a group, then leave units of it out, while tokens are over; says how many still are.

        No model is asked to write here.
        """
        for index in group:
            if over > 0 and index in stand and index not in shorter and stand[index].kind != "user":
                shorter.add(index)
                (short,) = self._short([stand[index]]).values()
                over -= stand[index].tokens - short.tokens
                stand[index] = short
        for index in group:
            if over > 0 and index in stand:
                over -= stand.pop(index).tokens
        return over

    def _rewrite(
        self, units: Sequence[Unit], stand: dict[int, Unit], shorter: Sequence[int], left: int
    ) -> dict[int, str]:
        """Put what a model wrote in the place of replies that are compressed, within the room: unit index -> reason."""
        reasons = {index: _reason(stand[index]) for index in shorter if stand[index] is not units[index]}
        if self.rewrites is None:
            return reasons
        left -= sum(unit.tokens for unit in stand.values())
        for at, index in enumerate(shorter):
            made, reason = self.rewrites(units[index], self.counter)
            if reason:
                reasons[index] = reason
            if reason == FAILED:  # it would fail for each of the others too
                return reasons | dict.fromkeys(shorter[at:], FAILED)
            if made is not None and made.tokens - stand[index].tokens > left:
                reasons[index] = "rewrite_no_room"
            elif made is not None:
                left -= made.tokens - stand[index].tokens
                stand[index] = made
        return reasons


def _reason(short: Unit) -> str:
    """What the ledger says of a compressed unit."""
    parts = short.messages[0].parts
    return LATENT if type(parts[0]) is Opaque and len(parts) == 1 else REASON


def _open(units: Sequence[Unit], pinned: Mapping[int, str], stand: dict[int, Unit], left: int) -> None:
    """Have a user message open the context: the one before what stands first where it fits, else that goes."""
    while (first := opener(units, {**pinned, **dict.fromkeys(stand, "")})) is not None:
        if first.tokens <= left:
            stand[first.index] = first
            return
        left += stand.pop(min(stand)).tokens


@cache
def calibrated(folder: Path = HERE) -> dict[str, list[float]]:
    """The low and the high threshold of each similarity, as `forgetless train rea-thresholds` found them."""
    found: dict[str, list[float]] = json.loads((folder / THRESHOLDS).read_text("utf-8"))["near"]
    return found


def rea(
    near: str | Similarity | None = None,
    thresholds: Sequence[float] | None = None,
    replies: Replies = "bands",
    compress: str | Model | Latent = "sentences",
    counter: Counter | None = None,
) -> Rea:
    """The policy `rea`.

    Args:
        near: `bm25`, `dense` (all-MiniLM-L6-v2), `latent`, or a similarity. By default `latent` where replies are
            compressed so, else `bm25`.
        thresholds: two similarities: below the first a reply is left out, above the second it stays as it is. By
            default calibrated for the similarity.
        replies: `bands`, `paper`, `preserve` or `abandon`: see `Rea`.
        compress: `sentences`; or a model that shortens replies: `embedded`, the path of a `.gguf` file, the address of
            an OpenAI-compatible server with `#` and the model's name at its end, or a model; or `latent`, for vectors
            that a server has to read, with `#` and the folder of adapters of your own at its end, or a latent model.
        counter: counts what is compressed.

    Raises:
        ConfigError: an option is wrong.
        MissingExtra: what a similarity or a model needs is not installed.
    """
    if replies not in ("bands", "paper", "preserve", "abandon"):
        raise ConfigError(f"replies must be bands, paper, preserve or abandon, not {replies!r}")
    rewrites, memories = _compressing(compress)
    near = (LATENT if memories is not None else Words.name) if near is None else near
    made = memories.near if memories is not None and near == LATENT else similarity(near)
    name = str(getattr(made, "name", "of your own"))
    low, high = _checked(_known(made) if thresholds is None else thresholds, name)
    return Rea(made, low, high, replies, rewrites, memories, counter or for_model())


def _compressing(compress: str | Model | Latent) -> tuple[Rewrites | None, Memories | None]:
    """What compresses by a model, in words or in vectors; neither for sentences.

    Raises:
        ConfigError: `compress` names nothing.
    """
    if compress == "sentences":
        return None, None
    if isinstance(compress, str):
        spec, _, name = compress.partition("#")
        if spec != LATENT:
            return Rewrites(_loaded(spec, name)), None
        from forgetless.policies.rea.latent import load_memories

        return None, load_memories(name)
    if hasattr(compress, "encode"):
        from forgetless.policies.rea.latent import memories_of

        return None, memories_of(compress)  # type: ignore[arg-type]
    if hasattr(compress, "window") and callable(compress):
        return Rewrites(compress), None
    raise ConfigError(f"compress must be 'sentences', 'latent', a model or what names one, not {compress!r}")


def _known(near: Similarity) -> Sequence[float] | None:
    """The thresholds that a similarity was calibrated to; those of memories lie beside the adapters that make them."""
    name = getattr(near, "name", "")
    if name != LATENT:
        return calibrated().get(name)
    folder: Path | None = getattr(near, "folder", None)
    return calibrated(folder).get(name) if folder is not None and (folder / THRESHOLDS).exists() else None


def _checked(pair: Sequence[float] | None, name: str) -> tuple[float, float]:
    """Two thresholds that make sense.

    Raises:
        ConfigError: they are none.
    """
    if pair is None:
        raise ConfigError(
            f"the similarity {name!r} is not calibrated: give thresholds=[LOW, HIGH], as 'forgetless train "
            "rea-thresholds' finds them"
        )
    numbers = isinstance(pair, Sequence) and all(isinstance(one, int | float) for one in pair)
    if not numbers or len(pair) != 2 or not 0 <= pair[0] <= pair[1]:
        raise ConfigError(f"thresholds must be two numbers from 0, the lower one first, not {pair!r}")
    return pair[0], pair[1]


@lru_cache(4)  # one model for all sessions of a process
def _loaded(spec: str, name: str) -> Model:
    return load_model(spec, name or None)
