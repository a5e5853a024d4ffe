"""Fitting the recogniser of standing instructions to messages that say whether they hold one, and where.

A message is a bag of sentences, of which one at least holds the instruction: the loss is that of the message, and, with
a smaller weight, that of each sentence, which the marked words tell. Nothing but numpy is needed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forgetless.errors import ConfigError
from forgetless.instructions.base import Span
from forgetless.instructions.features import PLACES, Seen, look
from forgetless.instructions.learned import RecogniserWeights
from forgetless.instructions.lexicon import lexicon

__all__ = ["Example", "Fit", "Table", "cross_fit", "examples", "fit", "labelled", "ship", "table", "threshold"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Loss = Callable[[Floats], tuple[float, Floats]]
"""Weights -> the loss and its slope."""

PENALTY = 1.0
"""Of a squared weight of 2, against the loss of a message."""

SCALES = {"here": 1.0, "first": 1.0, "before": 0.5, "after": 0.5, "around": 0.3, "pairs": 0.5, "steps": 0.5}
"""How freely weights may grow: a column's values are multiplied by it in the fit."""

SENTENCES = 0.3
"""The weight of a sentence's loss, beside that of the message."""

RARE = 3
"""Sentences with a column without which it is left out."""

FOLDS, DRAWS = 6, 2
LEAST = 20
STEPS = 200


@dataclass(frozen=True, slots=True)
class Example:
    """A message.

    Attributes:
        text: what the user says.
        label: whether it holds a standing instruction.
        marked: where that stands; empty where nobody has said.
    """

    text: str
    label: bool
    marked: tuple[Span, ...] = ()


def examples(paths: Iterable[Path], ordinary: Iterable[str] = ()) -> list[Example]:
    """The messages of files of JSON lines, each text once, and texts that hold no instruction.

    Lines have `text`, `label`, and `instruction`, the pieces that hold it; or they are those of MT-Eval, whose turn
    `instruction` holds one and whose later user turns hold none, or of IFEval, whose prompts are requests of one reply.

    Raises:
        ConfigError: a file can't be read, or a line is no such object.
    """
    found: dict[str, Example] = {}
    for path in paths:
        for _, example in labelled(path):
            found.setdefault(example.text, example)
    for text in ordinary:
        found.setdefault(text, Example(text, label=False))
    return list(found.values())


def labelled(path: Path) -> Iterator[tuple[Mapping[str, Any], Example]]:
    """The messages of a file, as `examples` reads them, each with the object that it stands in.

    Raises:
        ConfigError: as there.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error}") from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                values = json.loads(line)
                yield from ((values, example) for example in _parsed(values))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise ConfigError(
                    f"{path.name!r}, line {number}: no message with 'text' and 'label': {error}"
                ) from None


def _parsed(values: Mapping[str, Any]) -> Iterator[Example]:
    if "conv" in values:
        for turn in values["conv"]:
            yield Example(str(turn["user"]), turn["id"] == "instruction")
    elif "prompt" in values:
        yield Example(str(values["prompt"]), label=False)
    else:
        text, label, pieces = values["text"], values["label"], values.get("instruction") or ()
        if not isinstance(text, str) or not isinstance(label, bool):
            raise TypeError("'text' must be a string, and 'label' true or false")
        yield Example(text, label, tuple((at, at + len(piece)) for piece in pieces if (at := text.find(piece)) >= 0))


@dataclass(frozen=True)
class Table:
    """Messages as arrays.

    Attributes:
        labels: of each message.
        sentences: of each sentence, whether it holds the instruction.
        bag: of each sentence, its message.
        rows: of each value that is not 0, its sentence.
        columns: of the same, its column: those of `names`.
        names: of the columns: a place and a concept, or `pairs` or `steps` and two of them.
    """

    labels: NDArray[np.bool_]
    sentences: NDArray[np.bool_]
    bag: Ints
    rows: Ints
    columns: Ints
    names: Sequence[tuple[str, str]]

    def of(self, messages: Iterable[int]) -> Table:
        """A table of some of the messages."""
        chosen = np.zeros(len(self.labels), bool)
        chosen[list(messages)] = True
        kept = chosen[self.bag]
        values = kept[self.rows]
        return Table(
            self.labels[chosen],
            self.sentences[kept],
            (np.cumsum(chosen) - 1)[self.bag[kept]],
            (np.cumsum(kept) - 1)[self.rows[values]],
            self.columns[values],
            self.names,
        )


def table(data: Sequence[Example]) -> Table:
    """Look at messages; those without a sentence are left out."""
    known = lexicon()
    labels: list[bool] = []
    sentences: list[bool] = []
    bag: list[int] = []
    rows: list[Ints] = [np.zeros(0, np.int64)]
    columns: list[Ints] = [np.zeros(0, np.int64)]
    for example in data:
        seen = look(example.text, known)
        if not seen.spans:
            continue
        for sentence, column in _values(seen, len(known.names)):
            rows.append(len(bag) + sentence)
            columns.append(column)
        bag += [len(labels)] * len(seen.spans)
        sentences += _marks(example, seen.spans)
        labels.append(example.label)
    names = [(place, name) for place in PLACES for name in known.names]
    names += [("pairs", f"{one} {other}") for one in known.names for other in known.names]
    names += [("steps", f"{one} {other}") for one in (*known.names, "^") for other in (*known.names, "$")]
    return Table(
        np.array(labels, bool),
        np.array(sentences, bool),
        np.array(bag, np.int64),
        np.concatenate(rows),
        np.concatenate(columns),
        names,
    )


def _values(seen: Seen, total: int) -> Iterator[tuple[Ints, Ints]]:
    """The sentence and the column of each value that is not 0: concepts in their places, pairs, steps."""
    place, sentence, concept = np.nonzero(seen.places)
    yield sentence, place * total + concept
    here = seen.places[0]
    sentence, one, other = np.nonzero(np.triu(here[:, :, None] * here[:, None, :], 1))
    yield sentence, (len(PLACES) + one) * total + other
    steps = [(at, step) for at, taken in enumerate(seen.steps) for step in sorted(taken)]
    sentence, step = np.array(steps, np.int64).reshape(-1, 2).T
    yield sentence, (len(PLACES) + total) * total + step


def _marks(example: Example, spans: Sequence[Span]) -> list[bool]:
    """Which sentences hold the instruction: half of the sentence, or half of a marked piece; else the longest one."""
    if not example.label:
        return [False] * len(spans)
    shared = [
        any(2 * (min(end, to) - max(start, at)) >= min(end - start, to - at) for at, to in example.marked)
        for start, end in spans
    ]
    longest = max(range(len(spans)), key=lambda at: spans[at][1] - spans[at][0])
    return shared if any(shared) else [at == longest for at in range(len(spans))]


@dataclass(frozen=True)
class Fit:
    """A weight for each column, and the bias."""

    weights: Floats
    bias: float

    def sentences(self, data: Table) -> Floats:
        """The log odds of each sentence."""
        values = self.weights[data.columns]
        return np.asarray(np.bincount(data.rows, values, len(data.bag)) + self.bias, np.float64)

    def messages(self, data: Table) -> Floats:
        """The log odds of each message."""
        return _pooled(self.sentences(data), data)[0]


def _pooled(odds: Floats, data: Table) -> tuple[Floats, Floats]:
    """The log of the sum of the odds of each message's sentences, and each sentence's share in it."""
    most: Floats = np.full(len(data.labels), -np.inf)
    np.maximum.at(most, data.bag, odds)
    raised: Floats = np.exp(odds - most[data.bag])
    total = np.bincount(data.bag, raised, len(data.labels))
    return np.asarray(most + np.log(total)), raised / total[data.bag]


def fit(data: Table) -> Fit:
    """Fit to all messages of a table.

    Raises:
        ConfigError: there are too few of one kind.
    """
    positive = int(data.labels.sum())
    if min(positive, len(data.labels) - positive) < LEAST:
        raise ConfigError(
            f"too little to learn from: {positive} of {len(data.labels):,} messages hold an instruction, and at least "
            f"{LEAST} must and {LEAST} must not"
        )
    kept = np.flatnonzero(np.bincount(data.columns, minlength=len(data.names)) >= RARE)
    scales = np.array([SCALES[data.names[at][0]] for at in kept.tolist()])
    number = np.full(len(data.names), -1)
    number[kept] = np.arange(len(kept))
    used = number[data.columns] >= 0
    rows, columns = data.rows[used], number[data.columns[used]]
    found = _least(_loss(data, rows, columns, scales[columns], len(kept)), np.zeros(len(kept) + 1))
    weights = np.zeros(len(data.names))
    weights[kept] = found[:-1] * scales
    return Fit(weights, float(found[-1]))


def _loss(data: Table, rows: Ints, columns: Ints, values: Floats, total: int) -> Loss:
    """The loss of messages and sentences, with the penalty, and its slope; the bias stands last among the weights."""
    marks = data.sentences.astype(float)
    even = np.where(marks > 0, 0.5 / marks.sum(), 0.5 / (1 - marks).sum()) * len(data.labels) * SENTENCES

    def loss(weights: Floats) -> tuple[float, Floats]:
        free = weights[:-1]
        odds = np.bincount(rows, values * free[columns], len(data.bag)) + weights[-1]
        pooled, share = _pooled(odds, data)
        cost = (np.logaddexp(0, pooled) - data.labels * pooled).sum()
        cost += (even * (np.logaddexp(0, odds) - marks * odds)).sum() + PENALTY * (free @ free) / 2
        slope = share * (_chance(pooled) - data.labels)[data.bag] + even * (_chance(odds) - marks)
        back = np.bincount(columns, values * slope[rows], total)
        return cost, np.append(back + PENALTY * free, slope.sum())

    return loss


def _chance(odds: Floats) -> Floats:
    chance: Floats = 1 / (1 + np.exp(-np.clip(odds, -500, 500)))
    return chance


def _least(loss: Loss, start: Floats, memory: int = 10) -> Floats:
    """Where a smooth function is least, by L-BFGS with halved steps."""
    at, (value, slope) = start, loss(start)
    moves: list[tuple[Floats, Floats, float]] = []
    for _ in range(STEPS):
        way = _way(slope, moves)
        step = 1.0 if moves else min(1.0, 1 / float(np.abs(slope).sum()))
        while True:
            new = at - step * way
            new_value, new_slope = loss(new)
            if new_value <= value - 1e-4 * step * float(way @ slope) or step < 1e-10:
                break
            step /= 2
        bend = float((new_slope - slope) @ (new - at))
        if bend > 0:
            moves = [*moves[1 - memory :], (new - at, new_slope - slope, 1 / bend)]
        done = value - new_value < 1e-6 * abs(value)
        at, value, slope = new, new_value, new_slope
        if done:
            break
    return at


def _way(slope: Floats, moves: Sequence[tuple[Floats, Floats, float]]) -> Floats:
    """The slope, bent by the moves so far (Nocedal's two loops)."""
    way: Floats = slope.copy()
    parts = []
    for move, turn, weight in reversed(moves):
        parts.append(weight * float(move @ way))
        way -= parts[-1] * turn
    if moves:
        move, turn, weight = moves[-1]
        way /= weight * float(turn @ turn)
    for (move, turn, weight), part in zip(moves, reversed(parts), strict=True):
        way += move * (part - weight * float(turn @ way))
    return way


def cross_fit(data: Table, *, seed: int = 0) -> Floats:
    """The log odds of each message by fits to other messages: [draws, messages]."""
    rng = np.random.default_rng(seed)
    found = np.zeros((DRAWS, len(data.labels)))
    for odds in found:
        fold = rng.permutation(len(data.labels)) % FOLDS
        for number in range(FOLDS):
            left_out = fold == number
            odds[left_out] = fit(data.of(np.flatnonzero(~left_out))).messages(data.of(np.flatnonzero(left_out)))
    return found


def threshold(odds: Floats, labels: NDArray[np.bool_]) -> float:
    """The log odds at which instructions are missed as often as other messages count: whatever share either has.

    Args:
        odds: [draws, messages].
        labels: [messages].
    """
    tried = np.unique(odds)
    yes, no = np.sort(odds[:, labels], axis=None), np.sort(odds[:, ~labels], axis=None)
    missed = np.searchsorted(yes, tried, "right") / len(yes)
    counted = 1 - np.searchsorted(no, tried, "right") / len(no)
    return float(tried[int(np.argmin(np.abs(missed - counted)))])


def ship(data: Table, *, about: str, seed: int = 0) -> RecogniserWeights:
    """Weights to serve: fitted to all messages, with the threshold and the figures of folds that were left out.

    Args:
        data: what to learn from.
        about: names the data, for the file.
        seed: of the folds.

    Raises:
        ConfigError: there is too little to learn from.
    """
    found = fit(data)
    odds = cross_fit(data, seed=seed)
    least = _short(threshold(odds, data.labels))
    named = {name: weight for name, value in zip(data.names, found.weights, strict=True) if (weight := _short(value))}
    by = {place: {name: weight for (at, name), weight in named.items() if at == place} for place in SCALES}
    places = {place: by[place] for place in PLACES}
    told = odds > least
    figures = {
        "accuracy": (told == data.labels).mean(),
        "precision": (told & data.labels).sum() / max(1, told.sum()),
        "recall": told[:, data.labels].mean(),
    }
    training: dict[str, Any] = {
        "data": about,
        "messages": len(data.labels),
        "positive": int(data.labels.sum()),
        "left_out": {name: round(float(value), 3) for name, value in figures.items()},
    }
    return RecogniserWeights(places, by["pairs"], by["steps"], _short(found.bias), least, training)


def _short(value: float) -> float:
    """Three places: files stay small, and the last bits of a solver don't show."""
    return round(float(value), 3) + 0.0
