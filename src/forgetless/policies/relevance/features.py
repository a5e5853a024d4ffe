"""Features of units for a question: how well a unit, and what stands around it, matches what is asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forgetless.policies.relevance.dates import Date, date
from forgetless.policies.relevance.index import Index, numbers
from forgetless.policies.relevance.stems import FUNCTION, stem
from forgetless.text import words

__all__ = ["QUERY", "VERSION", "matches"]

Floats = NDArray[np.float64]

VERSION = 1
"""Of the meaning of the features: weights that were fitted to another version are refused."""

NEAR = (1, 2, 5, 10)

QUERY = (
    "match", *(f"near_{reach}" for reach in NEAR), "reply", "named", "other", "year", "month", "other_month", "day",
)  # fmt: skip
"""The columns.

* `match`: log(1 + BM25) of the unit for the question, by stems, without function words and the speakers' names.
  `near_1` to `near_10`: BM25 of the unit together with so many on each side of it, as a share of the best unit's.
  `reply`: `match` of the unit before, where that asks something.
* `named`: the question names who speaks, or says "I" and the user speaks. `other`: it names somebody else who speaks.
* `year`, `month`: the question names that of the unit's session. `day`: both month and day. `other_month`: it names
  another month.
"""

STEMS = 64  # most stems of a question that are looked for: the rarest
K1, B = 1.5, 0.75
FIRST = frozenset(("i", "my", "me", "mine", "im", "我", "私", "僕"))


def matches(index: Index, question: str) -> Floats:
    """The features of all units for a question: [units, QUERY]."""
    if not index.many:
        return np.zeros((0, len(QUERY)))
    said = list(dict.fromkeys(words(question)))
    speakers = _speakers(index)
    persons = {word for name in speakers for word in words(name)}
    content = [word for word in said if word not in FUNCTION and word not in persons]
    counts = _counts(index, list(dict.fromkeys(map(stem, content or said))))
    match = np.log1p(_bm25(counts, index.lengths))
    near = [_share(_bm25(_around(counts, reach), _around(index.lengths, reach))) for reach in NEAR]
    reply = np.where([False, *index.asks[:-1]], np.roll(match, 1), 0.0)
    return np.column_stack([match, *near, reply, *_persons(index, set(said), speakers), *_days(index, question)])


def _counts(index: Index, asked: list[str]) -> Floats:
    """How often each unit has each stem of a question, of many the rarest: [stems, units]."""
    counts = index.counts(numbers(asked))
    if len(asked) > STEMS:
        held = (counts > 0).sum(axis=1)
        order = np.argsort(np.where(held > 0, held, index.many + 1), kind="stable")
        counts = counts[np.sort(order[:STEMS])]
    return counts


def _bm25(counts: Floats, lengths: NDArray[Any]) -> Floats:
    held = (counts > 0).sum(axis=1)
    idf = np.log(1 + (len(lengths) - held + 0.5) / (held + 0.5))
    damp = K1 * (1 - B + B * lengths / max(float(lengths.mean()), 1.0))
    found: Floats = idf @ (counts * (K1 + 1) / (counts + damp))
    return found


def _around(values: NDArray[Any], reach: int) -> Floats:
    """The sum over each unit and so many on each side of it, along the last axis."""
    many = values.shape[-1]
    sums = np.zeros((*values.shape[:-1], many + 1))
    np.cumsum(values, axis=-1, out=sums[..., 1:])
    places = np.arange(many)
    found: Floats = sums[..., np.minimum(places + reach + 1, many)] - sums[..., np.maximum(places - reach, 0)]
    return found


def _share(scores: Floats) -> Floats:
    best = float(scores.max())
    return scores / best if best > 0 else scores


def _speakers(index: Index) -> set[str]:
    """Who speaks, where most units begin with a name; a `Note:` here and there is none."""
    named = [name for name in index.speakers if name]
    return set(named) if 2 * len(named) > index.many else set()


def _persons(index: Index, said: set[str], speakers: set[str]) -> Iterator[Floats]:
    asked = {name for name in speakers if said.issuperset(words(name))}
    first = not said.isdisjoint(FIRST)
    named = [
        name in asked or (first and kind == "user") for name, kind in zip(index.speakers, index.kinds, strict=True)
    ]
    yield np.array(named, np.float64)
    others = speakers - asked if asked else set()
    yield np.array([name in others for name in index.speakers], np.float64)


def _days(index: Index, question: str) -> Iterator[Floats]:
    asked = date(question)
    if asked == Date():
        yield from np.zeros((4, index.many))
        return
    year = np.array([not asked.years.isdisjoint(day.years) for day in index.dates], np.float64)
    month = np.array([not asked.months.isdisjoint(day.months) for day in index.dates], np.float64)
    dated = np.array([bool(asked.months and day.months) for day in index.dates], np.float64)
    days = np.array([not asked.days.isdisjoint(day.days) for day in index.dates], np.float64)
    yield from (year, month, dated - month, days * month)
