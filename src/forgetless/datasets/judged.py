"""Dialogues whose replies a judge scores, and how their files are read."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from forgetless.errors import ConfigError

__all__ = ["Dialogue", "Turn", "entries"]

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Turn:
    """What the user says, and what is known of the reply.

    Attributes:
        user: the user's words.
        reply: what the assistant has said; None where the model that is measured replies.
        judged: whether a judge scores the reply.
        reference: a right answer, for the judge alone; "" where there is none.
        sees: earlier turns that the judge is shown; None for all.
    """

    user: str
    reply: str | None = None
    judged: bool = True
    reference: str = ""
    sees: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Dialogue:
    """One dialogue.

    Attributes:
        name: unique in its data set.
        group: what tables put together: a category, a task, an aspect.
        turns: in order.
        system: a system prompt, or "".
        about: what the judge is told beside the dialogue, or "".
    """

    name: str
    group: str
    turns: tuple[Turn, ...]
    system: str = ""
    about: str = ""


def entries(path: Path, layout: str, make: Callable[[int, Any], Sequence[Made]]) -> list[Made]:
    """What is made of each entry of a file: of each line of a `.jsonl` file, else of each item of a JSON list.

    Args:
        path: the file.
        layout: whose layout it has, for errors.
        make: an entry and its number to dialogues.

    Raises:
        ConfigError: it can't be read, or an entry is not in the layout; names it.
    """
    try:
        text = path.read_text(encoding="utf-8")
        lines = [line for line in text.split("\n") if line.strip()]
        values = [json.loads(line) for line in lines] if path.suffix == ".jsonl" else json.loads(text)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{str(path)!r} can't be read: {error}") from None
    if not isinstance(values, list) or not values:
        raise ConfigError(f"{str(path)!r} holds no list of entries in the layout of {layout}")
    found: list[Made] = []
    for number, value in enumerate(values):
        try:
            found += make(number, value)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(
                f"{str(path)!r}, entry {number}: not in the layout of {layout} ({type(error).__name__}: {error})"
            ) from None
    return found
