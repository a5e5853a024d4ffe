"""Experts, which play an environment without mistake from what stands before them: for baselines and demonstrations."""

from __future__ import annotations

import re
from collections.abc import Sequence

from forgetless.environments.recall import ANSWER, NEXT, QUESTION

__all__ = ["UNKNOWN", "asked", "codes", "recall"]

UNKNOWN = "UNKNOWN"
"""The answer to what cannot be known."""

_ASKED = re.compile(re.escape(QUESTION).replace(r"\{thing\}", r"(\w+ \w+)"))
_FACT = re.compile(r"(\w+ \w+)(?: is|:) ([A-Z]\d{4})\b")


def recall(texts: Sequence[str]) -> str:
    """Answers the question at the end with the code that these texts give; reads on where none is asked."""
    thing = asked(texts[-1])
    return NEXT if thing is None else f"{ANSWER} {codes(texts).get(thing, UNKNOWN)}"


def asked(text: str) -> str | None:
    """The thing whose code is asked for last in a text."""
    found = _ASKED.findall(text)
    return found[-1] if found else None


def codes(texts: Sequence[str]) -> dict[str, str]:
    """Thing -> code, in the order in which they are first named; what is said last holds."""
    return {thing: code for text in texts for thing, code in _FACT.findall(text)}
