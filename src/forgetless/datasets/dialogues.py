"""Dialogues with whole replies, for training: MT-Eval, the sessions of LongMemEval, and chat messages as JSON lines.

A dialogue is held out by a hash of how it begins, so that the same one is, in whatever file and on whatever machine;
dialogues on the same document begin alike and fall on the same side.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Any

from forgetless.errors import ConfigError

__all__ = ["Dialogue", "Exchange", "read_dialogues"]

BEGINNING = 120
"""Characters of the first user message that tell a dialogue from others."""

HELD_OUT = 5
"""One of so many dialogues is held out."""

LICENCES = {"mt_eval": "MIT", "longmemeval": "MIT"}
"""Of the sets that are known, by the name of the folder."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """Two turns of a dialogue, one after the other.

    Attributes:
        user: what was said.
        reply: the answer, which is what gets compressed.
        next_user: what was said then.
        next_reply: the answer to that.
    """

    user: str
    reply: str
    next_user: str
    next_reply: str


@dataclass(frozen=True, slots=True)
class Dialogue:
    """A dialogue whose user and assistant take turns.

    Attributes:
        source: the folder that its file lies in.
        group: the same for all that begin alike.
        turns: what the user said, and the reply.
    """

    source: str
    group: str
    turns: tuple[tuple[str, str], ...]

    @property
    def held_out(self) -> bool:
        """Whether it is kept for measuring."""
        return int(self.group, 16) % HELD_OUT == 0

    @property
    def licence(self) -> str:
        """Of its set, where that is known."""
        return LICENCES.get(self.source, "of your own data")

    def exchanges(self) -> Iterator[Exchange]:
        """Each reply with what stands around it."""
        for (user, reply), (next_user, next_reply) in zip(self.turns, self.turns[1:], strict=False):
            yield Exchange(user, reply, next_user, next_reply)


def read_dialogues(folder: Path) -> list[Dialogue]:
    """All dialogues of the JSON files below a folder, each once, in the order of their names; other files are passed.

    Known are lines or lists of MT-Eval (`conv`), LongMemEval's haystacks (`haystack_sessions`) and samples
    (`conversation`), and chat messages (`messages`). A dialogue has two turns at least; empty ones end it.

    Raises:
        ConfigError: there is no such folder, or no dialogue in it.
    """
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {str(folder)!r}")
    found: dict[tuple[tuple[str, str], ...], Dialogue] = {}
    for file in sorted(file for file in folder.rglob("*") if file.suffix in (".json", ".jsonl")):
        for turns in (turns for record in _records(file) for turns in _read(record)):
            if len(turns) > 1:
                found.setdefault(turns, Dialogue(file.parent.name, _group(turns[0][0]), turns))
    if not found:
        raise ConfigError(f"{str(folder)!r} holds no dialogues of two turns in a known layout")
    return list(found.values())


def _records(file: Path) -> Iterator[Mapping[str, Any]]:
    try:
        text = file.read_text("utf-8")
        lines = text.splitlines() if file.suffix == ".jsonl" else [text]
        values = [json.loads(line) for line in lines if line.strip()]
    except ValueError:
        return  # not JSON after all
    for value in values:
        found = value.get("data", [value]) if isinstance(value, Mapping) else value
        yield from (record for record in found if isinstance(record, Mapping)) if isinstance(found, list) else ()


def _read(record: Mapping[str, Any]) -> list[tuple[tuple[str, str], ...]]:
    """The turns of each dialogue of a record; none of one that only looks like a known layout."""
    try:
        return [_turns(messages) for messages in _dialogues(record)]
    except (AttributeError, KeyError, TypeError):
        return []


def _dialogues(record: Mapping[str, Any]) -> Iterator[Iterable[Mapping[str, Any]]]:
    if "haystack_sessions" in record:
        yield from record["haystack_sessions"]
    elif "conv" in record:
        pairs = ((("user", turn["user"]), ("assistant", turn["sys"])) for turn in record["conv"])
        yield [{"role": role, "content": text} for pair in pairs for role, text in pair]
    elif isinstance(record.get("conversation"), list):  # sessions one after the other, told by their dates
        turns = (turn for turn in record["conversation"] if isinstance(turn, Mapping))
        yield from (list(group) for _, group in groupby(turns, key=lambda turn: turn.get("date")))
    elif isinstance(record.get("messages"), list):
        yield record["messages"]


def _turns(messages: Iterable[Mapping[str, Any]]) -> tuple[tuple[str, str], ...]:
    """What the user said and the reply, as long as they take turns and both say something."""
    said = [(message.get("role"), message.get("content")) for message in messages if message.get("role") != "system"]
    found: list[tuple[str, str]] = []
    for (asker, question), (answerer, answer) in zip(said[::2], said[1::2], strict=False):
        if (asker, answerer) != ("user", "assistant") or not all(
            isinstance(text, str) and text.strip() for text in (question, answer)
        ):
            break
        found.append((str(question).strip(), str(answer).strip()))
    return tuple(found)


def _group(first: str) -> str:
    beginning = " ".join(first.split())[:BEGINNING]
    return sha256(beginning.encode("utf-8", "replace")).hexdigest()[:16]
