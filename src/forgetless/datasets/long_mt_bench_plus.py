"""Long-MT-Bench+: long conversations of several sessions, and questions on them with answers (Pan et al., 2025).

Each question is asked at the end of the whole conversation, whose replies stand as the data have them. The judge sees
the question and the answer that the data give, not the conversation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forgetless.datasets.judged import Dialogue, Turn, entries

__all__ = ["read_long_mt_bench_plus"]

_SAID = re.compile(r"(?:<Turn \d+>: )?\[human\]: (.*?)\n?\[bot\]: (.*)", re.DOTALL)


def read_long_mt_bench_plus(path: Path) -> list[Dialogue]:
    """A dialogue for each question of a file of `sessions`, `questions` and `answers` (JSON list or lines).

    Raises:
        ConfigError: it can't be read, or is in another layout.
    """
    return entries(path, "Long-MT-Bench+", _questions)


def _questions(number: int, value: Mapping[str, Any]) -> list[Dialogue]:
    before = tuple(_turn(str(text)) for session in value["sessions"] for text in session)
    name = str(value.get("conversation_id", number))
    asked = list(zip(value["questions"], value["answers"], strict=True))
    return [
        Dialogue(f"{name} {at}", name, (*before, Turn(str(question), reference=str(answer), sees=())))
        for at, (question, answer) in enumerate(asked)
    ]


def _turn(text: str) -> Turn:
    found = _SAID.fullmatch(text)
    if found is None:
        raise ValueError(f"no '[human]: … [bot]: …' in {text[:40]!r}")
    return Turn(found[1], found[2], judged=False)
