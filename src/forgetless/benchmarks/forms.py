"""What a model is shown of a dialogue: REA's own forms, its ablations, and the baselines of its tables.

A form makes the messages for the next question out of all messages so far. Those that keep instructions do it in one
of four places: where they were given (`kept`), in a system message, beside the question, or in the paper's prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from forgetless.compaction import compact
from forgetless.errors import ConfigError
from forgetless.instructions.base import Recogniser
from forgetless.instructions.load import recogniser
from forgetless.instructions.memory import standing
from forgetless.instructions.oracle import Oracle
from forgetless.intake import Terms, take
from forgetless.models.base import Model
from forgetless.policies.base import Policy
from forgetless.policies.rea.policy import Rea, rea
from forgetless.policies.rea.prompt import one_message
from forgetless.policies.rea.similarity import LATENT
from forgetless.policies.recent import Recent
from forgetless.registry import load_policy
from forgetless.text import bm25

__all__ = ["FORMS", "LATENT_FORMS", "Form", "Messages", "Place", "Scene", "Summarised", "form"]

Messages: TypeAlias = list[dict[str, Any]]
Place: TypeAlias = Literal["none", "kept", "system", "question", "paper"]
Form: TypeAlias = Callable[[Messages], Messages]

UNLIMITED = 1_000_000
"""Tokens; the paper's forms have no budget."""

ERRS = 0.5
"""Share of messages that the recognisers of Figure 5 err on."""

PAIRS = 5
"""Turns that Recent-k and BM25 keep (REA, Table 8)."""

SUMMARY = 128
"""Most tokens of a summary."""


@dataclass(frozen=True)
class Scene:
    """What forms may need to know.

    Attributes:
        model: writes summaries.
        instructions: those that the dialogues give, for the oracle.
        budget: for the policies of this project, tokens of a whole prompt.
        seed: of the recognisers that err.
    """

    model: Model
    instructions: Sequence[str]
    budget: int
    seed: int = 0

    @cached_property
    def learned(self) -> Recogniser:
        """The recogniser that ships."""
        found = recogniser("learned")
        assert found is not None
        return found

    def oracle(self, *, positives: float = 0.0, negatives: float = 0.0) -> Recogniser:
        """The recogniser that knows, with errors at these rates."""
        return Oracle({text: [(0, len(text))] for text in self.instructions}, positives, negatives, self.seed)


@dataclass(frozen=True)
class _Placed:
    """A policy, with instructions in a place."""

    policy: Policy
    find: Recogniser | None = None
    place: Place = "none"
    budget: int = UNLIMITED

    def __call__(self, messages: Messages) -> Messages:
        if self.find is None or self.place in ("kept", "question"):
            done = compact(
                messages,
                budget=self.budget,
                policy=self.policy,
                dialect="chat",
                instructions=self.find,
                remind=self.place == "question",
            )
            return list(done.messages)
        shown = list(compact(messages, budget=self.budget, policy=self.policy, dialect="chat").messages)
        units = take(messages, Terms(UNLIMITED, "chat")).units
        words = [one.text for one in standing(units, self.find) if one.state == "instruction"]
        if self.place == "paper":
            return one_message(shown, words)
        return [{"role": "system", "content": "\n".join(words)}, *shown] if words else shown


def _pairs(messages: Messages) -> Messages:
    """The turns that share most words with the question, in their order (REA's BM25: a turn is a document)."""
    *before, question = messages
    turns = [before[at : at + 2] for at in range(0, len(before), 2)]
    worth = bm25([f"{user['content']} {reply['content']}" for user, reply in turns], question["content"])
    best = sorted(sorted(range(len(turns)), key=lambda at: (-worth[at], -at))[:PAIRS])
    return [message for at in best for message in turns[at]] + [question]


def _whole_turns(messages: Messages) -> Messages:
    """As the paper's code has it without instructional memory: a turn far from the question goes, its question too."""
    done = compact(messages, budget=UNLIMITED, policy=rea(replies="paper"), dialect="chat")
    gone = {at - 1 for entry in done.ledger if entry.form == "omitted" for at in entry.messages}
    kept = [at for entry in done.ledger if entry.form != "omitted" for at in entry.messages]
    return [message for at, message in zip(kept, done.messages, strict=True) if at not in gone]


@dataclass
class Summarised:
    """A model's summary in place of all that came before: written afresh each time, or rolling.

    Attributes:
        model: writes it.
        rolling: of the summary before and the last turn, instead of all that was said.
        written: summaries so far, by what they are of.
    """

    model: Model
    rolling: bool
    written: dict[str, str] = field(default_factory=dict)

    def __call__(self, messages: Messages) -> Messages:
        """The summary and the question, in one message."""
        *before, question = messages
        text = self._of(before)
        said = f"Summary of the conversation so far: {text}\n\n{question['content']}"
        return [{"role": "user", "content": said}]

    def _of(self, before: Messages) -> str:
        key = repr(before)
        if key not in self.written:
            told = [f"{message['role']}: {message['content']}" for message in before]
            if self.rolling and len(before) > 2:
                told = [f"Summary so far: {self._of(before[:-2])}", *told[-2:]]
            ask = "Distil the key points of this conversation, so that it can go on from them alone.\n\n"
            body = {"messages": [{"role": "user", "content": ask + "\n".join(told)}], "max_tokens": SUMMARY}
            self.written[key] = str(self.model(body)["choices"][0]["message"]["content"]).strip()
        return self.written[key]


def _compressed(compress: Any = "sentences") -> Rea:
    """Episodic memory alone: every reply compressed, whatever the question."""
    return rea("bm25", thresholds=(0.0, 1e9), replies="paper", compress=compress)


FORMS: Mapping[str, Callable[[Scene], Form]] = MappingProxyType(
    {
        "vanilla": lambda _: list,
        "vanilla, reminded": lambda s: _Placed(load_policy("full"), s.learned, "question"),
        "recent-5": lambda _: _Placed(Recent(PAIRS, eager=True)),
        "bm25-5": lambda _: _pairs,
        "summary, rolling": lambda s: Summarised(s.model, rolling=True),
        "summary, fresh": lambda s: Summarised(s.model, rolling=False),
        "rea": lambda s: _Placed(rea(), s.learned, "question"),
        "rea, kept in place": lambda s: _Placed(rea(), s.learned, "kept"),
        "rea, system": lambda s: _Placed(rea(), s.learned, "system"),
        "rea, paper": lambda s: _Placed(rea(replies="paper"), s.learned, "paper"),
        "em": lambda _: _Placed(_compressed()),
        "em + hcr": lambda _: _Placed(rea(replies="paper")),
        "em + hcr, whole turns": lambda _: _whole_turns,
        "preserve": lambda s: _Placed(rea(replies="preserve"), s.learned, "question"),
        "abandon": lambda s: _Placed(rea(replies="abandon"), s.learned, "question"),
        "rea, oracle": lambda s: _Placed(rea(), s.oracle(), "question"),
        "rea, false positives": lambda s: _Placed(rea(), s.oracle(positives=ERRS), "question"),
        "rea, false negatives": lambda s: _Placed(rea(), s.oracle(negatives=ERRS), "question"),
    }
)
"""Forms by name. REA, Table 1 (baselines), Tables 4 and 5 (ablations), Figure 5 (recognisers)."""


def _compressor(scene: Scene) -> Any:
    """What compresses to vectors: the model that answers, where it can, else the adapters that ship."""
    return scene.model if hasattr(scene.model, "encode") else LATENT


LATENT_FORMS: Mapping[str, Callable[[Scene], Form]] = MappingProxyType(
    {
        "rea, latent": lambda s: _Placed(rea(compress=_compressor(s)), s.learned, "question"),
        "em, latent": lambda s: _Placed(_compressed(_compressor(s))),
    }
)
"""Forms whose replies are vectors: for a model that reads them, so only where they are named."""


def form(name: str, scene: Scene) -> Form:
    """A form by name: one of `FORMS` or `LATENT_FORMS`, or a policy of this project under the scene's budget.

    `POLICY`, `POLICY, kept` and `POLICY, reminded` are the policy alone, and with instructions in these places.

    Raises:
        ConfigError: unknown name.
    """
    if made := FORMS.get(name) or LATENT_FORMS.get(name):
        return made(scene)
    policy, _, place = name.partition(", ")
    places: dict[str, Place] = {"": "none", "kept": "kept", "reminded": "question"}
    if place not in places:
        raise ConfigError(
            f"unknown form {name!r}; known: {', '.join(map(repr, [*FORMS, *LATENT_FORMS]))}, and policies by name"
        )
    find = scene.learned if place else None
    return _Placed(load_policy(policy), find, places[place], scene.budget)
