"""Arithmetic: a reply's number against the gold one (GSM8K)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

__all__ = ["Number"]

PROMPT = """\
Solve the user's arithmetic problem. The user may give it piece by piece: answer as well as you can with what you know \
so far, step by step, and end with a line of this form: Answer: NUMBER"""

_NUMBER = r"(-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?)"
_MARKED = re.compile(rf"(?:answer(?:\s+is)?|####|\\boxed)\W{{0,12}}?{_NUMBER}", re.IGNORECASE)
_ANY = re.compile(_NUMBER)


class Number:
    """Takes the last number that is marked as the answer, else the last number of a reply."""

    def prompt(self, record: Mapping[str, Any]) -> str:
        """The same for all."""
        return PROMPT

    def score(self, reply: str, record: Mapping[str, Any]) -> bool | None:
        """Whether the number is the one behind `####` in the record's `answer`."""
        found = _last(reply)
        return None if found is None else found == _last(str(record["answer"]).rpartition("####")[2])


def _last(text: str) -> Decimal | None:
    found = _MARKED.findall(text) or _ANY.findall(text)
    return Decimal(found[-1].replace(",", "")) if found else None
