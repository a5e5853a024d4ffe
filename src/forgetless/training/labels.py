"""Labels without annotation: what of a log turned out to be needed later (LRE, self-supervised training).

Where a log comes with questions asked after it, it is one case, as it stood at its end. A log without any is cut at a
quarter, a half and three quarters of its length: the units before a cut are scored as they would have been there,
and only what comes after the cut says which of them were needed. By the rule `next` it is not units that are
labelled but the identifiers that they carry.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from json import dumps
from math import log
from types import MappingProxyType

from forgetless.datasets.logs import Log
from forgetless.errors import ConfigError
from forgetless.identifiers import identifiers
from forgetless.messages import Call
from forgetless.policies.lre.carried import Carried
from forgetless.policies.lre.growing import Kept
from forgetless.policies.lre.prefix import statements
from forgetless.text import words
from forgetless.units import Unit

__all__ = ["NEXT", "RULES", "Case", "cases", "moments"]

COVERED = 0.4
"""Share of an answer's words that a unit has to hold (LRE)."""

REUSED = 3
"""Later steps that have to take up an identifier (LRE)."""

NEXT = "next"
"""The rule for agents: an identifier is needed when one of the next `HORIZON` actions uses it (ours)."""

HORIZON = 6
MOMENTS = 32  # of one run, at most

CUTS = (0.25, 0.5, 0.75)
LEAST = 4  # units before a cut
ARTICLES = frozenset(("a", "an", "the"))
PUNCTUATION = str.maketrans("", "", string.punctuation)

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Case:
    """A history as it stood at one moment.

    Attributes:
        group: the conversation or task; a model is tested on groups that it was not fitted to.
        units: the history so far.
        labels: of each unit, or of each identifier that is chosen, whether it was needed later.
        texts: what each unit says, where that is less than its text.
    """

    group: str
    units: Sequence[Unit]
    labels: tuple[bool, ...]
    texts: tuple[str, ...] = ()


def cases(log: Log, rule: str) -> list[Case]:
    """The cases of a log; none where it says nothing about what was needed.

    Args:
        log: one conversation or run.
        rule: one of `RULES`.

    Raises:
        ConfigError: no such rule.
    """
    if rule not in RULES:
        raise ConfigError(f"there is no rule {rule!r} for labels: it is one of {', '.join(RULES)}")
    return [
        Case(log.name.partition("/")[0], log.units[: len(labels)], labels, log.texts)
        for labels in RULES[rule](log)
        if labels
    ]


def moments(log: Log, kept: Kept[Carried]) -> Iterator[tuple[Case, list[int]]]:
    """The moments before an agent acts, with the numbers of the identifiers that are labelled.

    These are what the steps so far carry and no message of a user or system does, since those are likely to stay.
    Moments at which none of them is needed say nothing and are left out.

    Args:
        log: one run.
        kept: what counts identifiers.
    """
    steps = [unit for unit in log.units if unit.kind == "step"]
    uses = [{name for text in _arguments(step) for name in identifiers(text)} for step in steps]
    many = min(len(steps), MOMENTS)
    for place in sorted({place * len(steps) // many for place in range(many)} - {0}):
        units = log.units[: steps[place].index]
        needed = set().union(*uses[place : place + HORIZON])
        names, told = kept(units, lambda carried: (list(carried.names), carried.pairs()[:2]))
        spoken = {int(name) for unit, name in zip(*told, strict=True) if units[unit].kind in ("user", "system")}
        chosen = [number for number in range(len(names)) if number not in spoken]
        labels = tuple(names[number] in needed for number in chosen)
        if any(labels):
            yield Case(log.name.partition("/")[0], units, labels), chosen


def _arguments(step: Unit) -> Iterator[str]:
    calls = (part for message in step.messages for part in message.parts if isinstance(part, Call))
    return (given if isinstance(given := call.arguments, str) else dumps(given) for call in calls)


def _gold(log: Log) -> Iterator[tuple[bool, ...]]:
    """What people marked as evidence."""
    marked = {unit for question in log.questions for unit in question.evidence}
    if marked:
        yield tuple(at in marked for at in range(len(log.units)))


def _answers(log: Log) -> Iterator[tuple[bool, ...]]:
    """Whether a unit holds 40 % of the words of a later answer (LRE)."""
    held = [_content(text) for text in _texts(log)]
    for end, pairs in _moments(log):
        answers = list(filter(None, (_content(answer) for _, answer in pairs)))
        yield tuple(any(len(answer & has) >= COVERED * len(answer) for answer in answers) for has in held[:end])


def _best(log: Log) -> Iterator[tuple[bool, ...]]:
    """For each later question, the unit whose statements share most with question and answer, by squared idf.

    What a unit asks is no answer, so its questions don't count. Of equal units it is the first.
    """
    stated = [frozenset(statements(text)) for text in _texts(log)]
    for end, pairs in _moments(log):
        held = Counter(word for has in stated[:end] for word in has)
        worth = {word: _idf(end, many) ** 2 for word, many in held.items()}
        found = (_overlaps(stated[:end], worth, " ".join(pair)) for pair in pairs)
        best = {shares.index(max(shares)) for shares in found if max(shares) > 0}
        yield tuple(at in best for at in range(end)) if best else ()


def _idf(many: int, held: int) -> float:
    return log(1 + (many - held + 0.5) / (held + 0.5))


def _overlaps(stated: Sequence[Collection[str]], worth: Mapping[str, float], text: str) -> list[float]:
    asked = set(words(text))
    return [sum(worth[word] for word in sorted(asked.intersection(has))) for has in stated]


def _reuse(log: Log) -> Iterator[tuple[bool, ...]]:
    """Whether at least three later steps take up an identifier that a unit brought in (LRE)."""
    named = [identifiers(unit.text) for unit in log.units]
    source: dict[str, int] = {}
    for at, names in enumerate(named):
        for name in names:
            source.setdefault(name, at)
    for end in _ends(len(log.units)):
        uses = Counter(name for names in named[end:] for name in names)
        needed = {source[name] for name, many in uses.items() if many >= REUSED}
        yield tuple(at in needed for at in range(end))


RULES: Mapping[str, Callable[[Log], Iterator[tuple[bool, ...]]]] = MappingProxyType(
    {"gold": _gold, "answers": _answers, "reuse": _reuse, "best": _best}
)
"""Name -> rule."""


def _texts(log: Log) -> Sequence[str]:
    return log.texts or [unit.text for unit in log.units]


def _content(text: str) -> frozenset[str]:
    """Its words without articles: as the paper cuts them, or as all scripts need it."""
    found = text.lower().translate(PUNCTUATION).split() if text.isascii() else words(text)
    return frozenset(found) - ARTICLES


def _ends(many: int) -> list[int]:
    """Where to cut a log of `many` units."""
    return sorted({end for share in CUTS if (end := int(share * many)) >= LEAST})


def _moments(log: Log) -> Iterator[tuple[int, list[Pair]]]:
    """How many units stood at each moment, and the questions and answers that came after it."""
    if log.questions:
        yield len(log.units), [(question.text, question.answer) for question in log.questions]
        return
    for end in _ends(len(log.units)):
        pairs = list(_pairs(log.units[end:]))
        if pairs:
            yield end, pairs


def _pairs(units: Sequence[Unit]) -> Iterator[Pair]:
    """What users asked, with all that answered it."""
    question: str | None = None
    answer: list[str] = []
    for unit in units:
        if unit.kind == "user":
            if question is not None and answer:
                yield question, "\n".join(answer)
            question, answer = unit.text, []
        elif unit.kind != "system" and question is not None:
            answer.append(unit.text)
    if question is not None and answer:
        yield question, "\n".join(answer)
