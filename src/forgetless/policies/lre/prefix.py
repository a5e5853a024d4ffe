"""What has been counted of a conversation so far, and the rows of features that the counts gave its units."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import log1p
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from forgetless.policies.lre.cues import CUES, KIND_OF
from forgetless.policies.lre.growing import Grown
from forgetless.policies.lre.shapes import SHAPES, shapes
from forgetless.text import words
from forgetless.units import Kind, Unit

__all__ = ["CAUSAL", "Prefix", "statements"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Columns = dict[str, Floats]

CAUSAL = (
    "index", "user", "step", "turn_depth",
    "words", "statement", "novel", "statement_excess", "novel_excess", "rarity_excess",
    "common", "salience",
    "overlap_previous", "overlap_recent", "answers", *SHAPES,
    "speaker", "first_person", "addressee", "others", "deictic", "time", "quantity", "article", "joint", "indefinite",
    "past", "plan", "error",
)  # fmt: skip
"""Columns that nothing after a unit changes; `forgetless.policies.lre.features` says what each means."""

RARE, FEW, COMMON = 0.03, 3, 0.1
RECENT = 10
MEMORY = 0.5 ** (1 / 40)  # a running mean forgets half in 40 units

_SENTENCE = re.compile(r"[^.!?。！？\n]+[.!?。！？\n]*|[.!?。！？\n]+")
_KINDS: tuple[Kind, ...] = ("system", "user", "assistant", "step")
_SHARES = ("article", "joint", "past")
_SUMS = {"first_person": ("speaker", "own"), "time": ("deictic", "calendar")}


class _Words(dict[str, int]):
    """Word -> number, in the order in which they came; `kinds` has the place of each one's class in `CUES`."""

    def __init__(self) -> None:
        self.kinds: list[int] = []

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self)
        self.kinds.append(KIND_OF.get(word, 0))
        return number


class _Mean:
    """A running mean, in which the newest values count most."""

    def __init__(self) -> None:
        self.weight = self.total = 0.0

    def excess(self, values: Floats) -> list[float]:
        """How far each value is above the mean of those before it; 0 for the first of all."""
        found = []
        for value in values.tolist():
            found.append(value - self.total / self.weight if self.weight else 0.0)
            self.weight, self.total = 1 + MEMORY * self.weight, value + MEMORY * self.total
        return found


class _Pairs(NamedTuple):
    """Each distinct word of each new unit, by unit; counts are of the units before it."""

    unit: Ints  # place in the block
    word: Ints
    told: NDArray[np.bool_]  # it stands outside questions
    before: Ints  # units that have the word
    last: Ints  # the last of them
    source: Ints  # the first of them; the unit itself where it brings the word in


class Prefix:
    """What has been counted of a conversation up to its last unit so far.

    Attributes:
        many: units counted.
    """

    def __init__(self) -> None:
        self.many = 0
        self._rows = Grown(len(CAUSAL), np.float64)
        self._uses = Grown()  # by unit
        self._words = _Words()
        self._held = Grown()  # by word: how many units have it
        self._seen = Grown(fill=-RECENT - 1)  # by word: the last unit that has it
        self._source = Grown()  # by word: the unit that brought it in
        self._asked = 0.0
        self._depth = 0
        self._means = {name: _Mean() for name in ("novel_excess", "rarity_excess", *_KINDS)}

    @property
    def rows(self) -> Floats:
        """The causal features of all units: [units, CAUSAL]."""
        return self._rows.filled

    @property
    def uses(self) -> Ints:
        """By unit: how often later units took up a word that it brought in, a word counted once a unit."""
        return self._uses.filled

    def extend(self, units: Sequence[Unit]) -> None:
        """Count new units at the end."""
        if not units:
            return
        start, self.many = self.many, self.many + len(units)
        self._rows.grow(self.many)
        self._uses.grow(self.many)
        columns: Columns = dict(zip(CAUSAL, self._rows.filled[start:].T, strict=True))
        texts = [unit.text for unit in units]
        self._structure(columns, units, start)
        for name, counts in zip(SHAPES, shapes(texts).T, strict=True):
            columns[name][:] = np.log1p(counts)
        columns["answers"][0] = self._asked
        columns["answers"][1:] = columns["questions"][:-1] > 0
        self._asked = float(columns["questions"][-1] > 0)
        said = [_said(text) for text in texts]
        number = self._words.__getitem__
        flat = np.array([n for found, _ in said for n in map(number, found)], np.int64)
        lengths = np.array([len(found) for found, _ in said], np.int64)
        columns["words"][:] = np.log1p(lengths)
        pairs = self._pairs(flat, lengths, np.array([told for _, told in said], np.int64), start)
        self._lexical(columns, pairs, np.array([unit.kind for unit in units]), start)
        _cues(columns, np.array(self._words.kinds, np.int64)[flat], lengths)

    def _structure(self, columns: Columns, units: Sequence[Unit], start: int) -> None:
        columns["index"][:] = np.log1p(np.arange(start, self.many))
        for at, unit in enumerate(units):
            self._depth = 0 if unit.kind == "user" else self._depth + 1
            columns["turn_depth"][at] = log1p(self._depth)
            columns["user"][at] = unit.kind == "user"
            columns["step"][at] = unit.kind == "step"

    def _pairs(self, flat: Ints, lengths: Ints, told: Ints, start: int) -> _Pairs:
        """Find the distinct words of the new units, and count them in."""
        size = len(self._words)
        for column in (self._held, self._seen, self._source):
            column.grow(size)
        held, seen, source = self._held.filled, self._seen.filled, self._source.filled
        keys, first = np.unique(np.repeat(np.arange(len(lengths)), lengths) * size + flat, return_index=True)
        unit, word = np.divmod(keys, size or 1)
        begins = np.cumsum(lengths) - lengths
        order = np.argsort(word, kind="stable")
        sorted_word, sorted_unit = word[order], unit[order] + start
        head = np.ones(len(order), bool)
        head[1:] = sorted_word[1:] != sorted_word[:-1]
        heads = np.flatnonzero(head)
        group = np.cumsum(head) - 1
        known = held[sorted_word]
        before = known + np.arange(len(order)) - heads[group]
        last = np.where(head, seen[sorted_word], np.roll(sorted_unit, 1))
        came = np.where(known > 0, source[sorted_word], sorted_unit[heads[group]])
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        source[word] = came[back]
        seen[sorted_word] = sorted_unit  # the last of each group stays
        np.add.at(held, word, 1)
        return _Pairs(unit, word, first - begins[unit] < told[unit], before[back], last[back], came[back])

    def _lexical(self, columns: Columns, pairs: _Pairs, kinds: NDArray[np.str_], start: int) -> None:
        many = self.many - start
        at = pairs.unit + start
        idf = np.log((1 + at) / (1 + pairs.before)) + 1

        def total(weights: NDArray[Any]) -> Floats:
            return np.asarray(np.bincount(pairs.unit, weights, many), np.float64)

        distinct, worth = np.maximum(total(np.ones(len(at))), 1), total(idf)
        novel = total(pairs.before == 0)
        columns["statement"][:] = np.log1p(total(pairs.told & (pairs.before <= np.maximum(FEW, RARE * at))))
        columns["novel"][:] = np.log1p(novel)
        columns["common"][:] = total(pairs.before > COMMON * at) / distinct
        columns["salience"][:] = np.log1p(worth)
        columns["overlap_previous"][:] = total(idf * (pairs.last == at - 1)) / np.maximum(worth, 1)
        columns["overlap_recent"][:] = total(idf * (pairs.last >= at - RECENT)) / np.maximum(worth, 1)
        columns["novel_excess"][:] = self._means["novel_excess"].excess(novel / distinct)
        columns["rarity_excess"][:] = self._means["rarity_excess"].excess(worth / distinct)
        for kind in _KINDS:
            same = np.flatnonzero(kinds == kind)
            columns["statement_excess"][same] = self._means[kind].excess(columns["statement"][same])
        np.add.at(self._uses.filled, pairs.source[pairs.before > 0], 1)


def _said(text: str) -> tuple[list[str], int]:
    """The words of a text, those of questions last, and how many stand outside questions."""
    if "?" not in text and "？" not in text:
        found = words(text)
        return found, len(found)
    told: list[str] = []
    asked: list[str] = []
    for sentence in _SENTENCE.findall(text):
        (asked if "?" in sentence or "？" in sentence else told).append(sentence)
    found = words(" ".join(told))
    return found + words(" ".join(asked)), len(found)


def statements(text: str) -> list[str]:
    """The words of a text that stand outside its questions."""
    found, told = _said(text)
    return found[:told]


def _cues(columns: Columns, kinds: Ints, lengths: Ints) -> None:
    """Count the classes of words, from the class of each word in order."""
    units = np.repeat(np.arange(len(lengths)), lengths)
    counts = np.bincount(units * len(CUES) + kinds, minlength=len(lengths) * len(CUES)).reshape(-1, len(CUES))
    of = dict(zip(CUES, counts.T, strict=True))
    of |= {name: of[one] + of[other] for name, (one, other) in _SUMS.items()}
    for name in columns.keys() & of.keys():
        columns[name][:] = of[name] / (lengths + 3) if name in _SHARES else np.log1p(of[name])
