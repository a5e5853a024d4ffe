"""Old units give way to a summary that a model writes of them: the baselines that most products ship.

The summary stands in the place of one of them, so that every dialect takes it: of the first user message, else of
words of the assistant, else of the results of a step, whose calls stay. It says what it is and which messages it
stands for; one that is longer than the room loses its middle. An empty summary, one as long as what it stands for and
a model that fails never cost the history: the default policy selects in their place, and the ledger says why.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from typing import ClassVar

from forgetless.errors import ConfigError, ModelError
from forgetless.messages import Message, Result, Text
from forgetless.models.base import Model
from forgetless.models.load import load_model
from forgetless.policies.base import Context, Policy, assemble, capacity, fits, floor, last_user, whole
from forgetless.policies.summary.writer import ACON, SUMMARY, Style, write
from forgetless.policies.truncate import cut
from forgetless.registry import DEFAULT, load_policy
from forgetless.tokens import Counter, for_model
from forgetless.units import Unit

__all__ = ["Summary", "acon", "summary"]

REASON = "summary"

LEAST = 32
"""Tokens; with less room than this a summary says nothing."""

KEPT = 256
"""Summaries kept at most, to go on from."""


class Written:
    """The summaries written so far, under the key of the last unit that each stands for."""

    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, tuple[frozenset[int], str]] = OrderedDict()

    def find(self, units: Sequence[Unit], *, rolling: bool) -> tuple[frozenset[int], str]:
        """The newest summary of these units, or (rolling) of some of them: which these are, and the text."""
        wanted = frozenset(unit.index for unit in units)
        for unit in reversed(units):
            covered, text = self._kept.get(unit.key, (frozenset[int](), ""))
            if text and (covered == wanted or (rolling and covered < wanted)):
                return covered, text
        return frozenset(), ""

    def keep(self, units: Sequence[Unit], text: str) -> None:
        """Keep the summary of these units."""
        if key := units[-1].key:
            self._kept[key] = (frozenset(unit.index for unit in units), text)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)


@dataclass(frozen=True)
class Summary:
    """Keeps what must stay and the newest units; a model's summary stands for the rest.

    Attributes:
        model: what writes the summary.
        style: how.
        recent: so many units at the end stay as they are, while they fit in half of what the floor leaves.
        counter: counts the summary.
        otherwise: what decides where there is no usable summary.
        written: the summaries so far, shared by all policies made from this one.
    """

    model: Model
    style: Style
    recent: int = 1
    counter: Counter = field(default_factory=for_model)
    otherwise: Policy = field(default_factory=lambda: load_policy(DEFAULT))
    written: Written = field(default_factory=Written, compare=False, repr=False)
    lazy: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.recent, int) or self.recent < 0:
            raise ConfigError(f"recent must be a whole number from 0, not {self.recent!r}")

    def __call__(self, units: Sequence[Unit], budget: int, query: Unit | None = None) -> Context:
        """Return the summarised conversation."""
        if fits(units, budget):
            return whole(units, budget)
        pinned = floor(units)
        left = capacity(units, pinned, budget)
        kept = {**pinned, **self._newest(units, pinned, left // 2)}
        gone = [unit for unit in units if unit.index not in kept]
        room = budget - sum(units[index].tokens for index in kept)
        stands = self._stands(gone, kept, units, room, query or last_user(units))
        if isinstance(stands, str):
            context = self.otherwise(units, budget, query)
            told = (replace(entry, reason=stands) if entry.form == "omitted" else entry for entry in context.ledger)
            return replace(context, ledger=tuple(told))
        kept[stands.index] = REASON
        return assemble(units, kept, budget, pinned=pinned, changed={stands.index: stands}, dropped=REASON)

    def _newest(self, units: Sequence[Unit], pinned: Mapping[int, str], room: int) -> dict[int, str]:
        """The newest units that stay beside the pinned ones; a summary stands before them, so any may come first."""
        kept: dict[int, str] = {}
        for unit in islice((unit for unit in reversed(units) if unit.index not in pinned), self.recent):
            room -= unit.tokens
            if room < 0:
                break
            kept[unit.index] = "recent"
        return kept

    def _stands(
        self, gone: Sequence[Unit], kept: Mapping[int, str], units: Sequence[Unit], room: int, query: Unit | None
    ) -> Unit | str:
        """The unit that holds the summary, or why there is none."""
        head = _head(gone)
        place = self._place(gone, kept, units)
        room = min(room, sum(unit.tokens for unit in gone) - 1)
        if place is None or (limit := room - self._with(place, head).tokens) < LEAST:
            return "summary_no_room"
        covered, text = self.written.find(gone, rolling=self.style.rolling)
        new = [unit for unit in gone if unit.index not in covered]
        if new or self.counter.text(text) > limit:
            before = text if new else ""
            try:
                text = write(self.style, self.model, self.counter, new or gone, limit, before=before, query=query)
            except ModelError:
                return "summary_failed"
        if not text:
            return "summary_empty"
        if self.counter.text(text) >= sum(unit.tokens for unit in gone):
            return "summary_too_long"
        self.written.keep(gone, text)
        stands = self._with(place, head + cut(text, limit, self.counter))
        return stands if stands.tokens <= room else "summary_no_room"

    def _place(self, gone: Sequence[Unit], kept: Mapping[int, str], units: Sequence[Unit]) -> Unit | None:
        """The unit of `gone` in whose place a summary can stand."""
        able = [unit for unit in gone if any(_takes(unit, message) for message in unit.messages)]
        # Before the first user message nothing else may stand.
        opens = next((unit.index for unit in units if unit.kind == "user" and unit.index in kept), -1)
        said = [unit for unit in able if unit.kind == "user"]
        said += [unit for unit in able if unit.kind == "assistant" and unit.index > opens]
        steps = (unit for unit in able if unit.kind == "step" and unit.index > opens)
        return next(iter(said), None) or min(steps, key=lambda u: (self._with(u, "").tokens, -u.index), default=None)

    def _with(self, unit: Unit, text: str) -> Unit:
        """`unit` with a text in the place of its own, or of its first result."""
        texts = iter([text])
        messages = tuple(_put(message, texts) if _takes(unit, message) else message for message in unit.messages)
        return replace(unit, messages=messages, tokens=sum(map(self.counter.message, messages)))


def _head(units: Sequence[Unit]) -> str:
    """What a summary of units begins with: it names them by the numbers that the ledger has too."""
    numbers = {at for unit in units for at, _, _ in unit.at}
    what = (
        f"message {min(numbers)}"
        if len(numbers) == 1
        else f"{len(numbers)} of messages {min(numbers)} to {max(numbers)}"
    )
    return f"[Summary of {what}, written by a model:]\n"


def _takes(unit: Unit, message: Message) -> bool:
    """Whether a text can stand in this message of a unit."""
    if unit.kind == "step":
        return any(not result.fixed for result in message.results)
    return any(isinstance(part, Text) for part in message.parts)


def _put(message: Message, texts: Iterator[str]) -> Message:
    """`message` with the next of `texts` in the place of its words, or of each of its results."""
    if not message.results:
        first = next(part for part in message.parts if isinstance(part, Text))
        text = next(texts, None)
        return message if text is None else replace(message, parts=(replace(first, text=text),))
    parts = (
        replace(part, content=(Text(next(texts, "[left out]")),))
        if isinstance(part, Result) and not part.fixed
        else part
        for part in message.parts
    )
    return replace(message, parts=tuple(parts))


def _policy(style: Style, model: str | Model | None, name: str | None, recent: int, counter: Counter | None) -> Summary:
    if model is None:
        raise ConfigError(
            "a policy that summarises needs a model: give summariser='embedded', the path of a .gguf file, or an "
            "http(s) address with model_name"
        )
    made = _loaded(model, name) if isinstance(model, str) else model
    return Summary(made, style, recent, counter or for_model())


_loaded = lru_cache(4)(load_model)  # one model for all sessions of a process


def summary(
    summariser: str | Model | None = None,
    model_name: str | None = None,
    recent: int = 1,
    counter: Counter | None = None,
) -> Summary:
    """The policy `summary`: all that is left out is summarised at once (REA's baseline).

    Args:
        summariser: `embedded`, the path of a `.gguf` file, the address of an OpenAI-compatible server, or a model.
        model_name: of the model at the server.
        recent: so many units at the end stay as they are, while they fit in half of what the floor leaves.
        counter: counts the summary.

    Raises:
        ConfigError: no model is named, or it can't be used.
    """
    return _policy(SUMMARY, summariser, model_name, recent, counter)


def acon(
    summariser: str | Model | None = None,
    model_name: str | None = None,
    recent: int = 1,
    counter: Counter | None = None,
) -> Summary:
    """The policy `acon`: the summary before is written anew together with the steps since (ACON's history compressor).

    Arguments and errors are those of `summary`. Its threshold is the budget of a session; observations are not
    compressed one by one, since what is kept is kept word for word.
    """
    return _policy(ACON, summariser, model_name, recent, counter)
