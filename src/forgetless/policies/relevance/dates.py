"""Dates in texts: the years, months and days that a question names, and those that a session is headed by."""

from __future__ import annotations

import re
from dataclasses import dataclass

from forgetless.text import words

__all__ = ["Date", "date", "heading"]

_HEAD = re.compile(r"\s*\[([^\]\n]*\d[^\]\n]*)\]")
_MONTHS = "january february march april may june july august september october november december"
_MONTH = {name: at for at, month in enumerate(_MONTHS.split(), 1) for name in (month, month[:3]) if name != "may"}
_MAY = re.compile(r"\bMay\b")  # in lower case it is a verb
_ISO = re.compile(r"\b((?:19|20)\d\d)[-/.](\d{1,2})[-/.](\d{1,2})\b|(\d{4})年(?:(\d{1,2})月)?(?:(\d{1,2})日)?")
_CLOCK = re.compile(r"\d{1,2}:\d\d")
_DAY = re.compile(r"([12]?\d|3[01])(?:st|nd|rd|th)?")
_YEAR = re.compile(r"(?:19|20)\d\d")


@dataclass(frozen=True, slots=True)
class Date:
    """The years, months and days of the month that a text names."""

    years: frozenset[int] = frozenset()
    months: frozenset[int] = frozenset()
    days: frozenset[int] = frozenset()


def date(text: str) -> Date:
    """The dates in a text: as numbers, in Chinese or Japanese, or with the English name of a month."""
    found = [match.groups() for match in _ISO.finditer(text)]
    rest = words(_CLOCK.sub(" ", _ISO.sub(" ", text)))
    years = {int(word) for word in rest if _YEAR.fullmatch(word)} | _numbers(found, 0)
    months = {_MONTH[word] for word in rest if word in _MONTH} | _numbers(found, 1)
    days = {int(day[1]) for word in rest if (day := _DAY.fullmatch(word))} | _numbers(found, 2)
    return Date(frozenset(years), frozenset(months | {5} if _MAY.search(text) else months), frozenset(days))


def _numbers(found: list[tuple[str | None, ...]], part: int) -> set[int]:
    return {int(number) for groups in found if (number := groups[part] or groups[part + 3])}


def heading(text: str) -> Date | None:
    """The date in brackets that a text begins with, as `[1:56 pm on 8 May, 2023]`; None where there is none."""
    head = _HEAD.match(text)
    found = date(head[1]) if head else Date()
    return found if found.months else None
