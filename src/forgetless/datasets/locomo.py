"""LoCoMo: long two-person conversations with marked evidence turns (Maharana et al., 2024).

Each dialogue turn is one chat message and so one unit, as in LRE. Whoever speaks first is the user, the
other the assistant: the two alternate nearly always, so a turn of the conversation is what policies call a
turn. The speaker's name stands before the text, since questions ask for persons by name. A session's date
stands before its first turn: a message of its own would be a unit that no evidence mark can name. Captions
of shared images are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forgetless.errors import ConfigError

__all__ = ["ADVERSARIAL", "Conversation", "Question", "load_locomo"]

ADVERSARIAL = 5
"""The category of questions that the conversation does not answer; they are asked after something it does
say."""

_EVIDENCE = re.compile(r"D\d+:\d+")
_SESSION = re.compile(r"session_(\d+)")


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the turns that hold its answer.

    Attributes:
        text: the question.
        answer: the gold answer, "" where there is none.
        evidence: places of the evidence turns in `Conversation.messages`, ascending.
        category: 1 multi-hop, 2 temporal, 3 open-domain, 4 single-hop, 5 adversarial.
    """

    text: str
    answer: str
    evidence: tuple[int, ...]
    category: int


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation as chat messages.

    Attributes:
        name: the sample's id.
        messages: one a turn.
        texts: what each turn says, without date and name.
        turn_ids: the mark of each message, such as `D1:3`.
        questions: those with at least one evidence turn that exists.
    """

    name: str
    messages: tuple[dict[str, Any], ...]
    texts: tuple[str, ...]
    turn_ids: tuple[str, ...]
    questions: tuple[Question, ...]


def load_locomo(path: Path) -> list[Conversation]:
    """Read a LoCoMo file, such as the official `locomo10.json`, or the one such file in a folder.

    Evidence marks are dirty in the official file: whatever looks like a mark and names a turn that exists
    counts.

    Raises:
        ConfigError: the file is missing or not in LoCoMo's layout; names the sample.
    """
    path = _file(path)
    try:
        samples = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read the LoCoMo file {str(path)!r}: {error}") from None
    if not isinstance(samples, list) or not samples:
        raise ConfigError(f"{str(path)!r} is not a LoCoMo file: a list of conversations is needed")
    conversations = []
    for number, sample in enumerate(samples):
        try:
            conversations.append(_conversation(sample, number))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(
                f"{str(path)!r}, sample {number}: not in LoCoMo's layout ({type(error).__name__}: {error})"
            ) from None
    return conversations


def _file(path: Path) -> Path:
    if not path.is_dir():
        return path
    found = sorted(path.glob("*.json"))
    if len(found) != 1:
        raise ConfigError(f"the folder {str(path)!r} holds {len(found)} JSON files: name the LoCoMo file itself")
    return found[0]


def _conversation(sample: Mapping[str, Any], number: int) -> Conversation:
    talk = sample["conversation"]
    sessions = sorted(int(match[1]) for key in talk if (match := _SESSION.fullmatch(key)))
    messages: list[dict[str, Any]] = []
    texts: list[str] = []
    places: dict[str, int] = {}
    user = None
    for session in sessions:
        date = f"[{talk[f'session_{session}_date_time']}]\n"
        for turn in talk[f"session_{session}"]:
            speaker, text = str(turn["speaker"]), str(turn["text"])
            user = user or speaker
            places[turn["dia_id"]] = len(messages)
            role = "user" if speaker == user else "assistant"
            messages.append({"role": role, "content": f"{date}{speaker}: {text}"})
            texts.append(text)
            date = ""
    if not messages:
        raise ValueError("no turns")
    if len(places) < len(messages):
        raise ValueError("two turns share one 'dia_id'")
    questions = [_question(question, places) for question in sample["qa"]]
    return Conversation(
        str(sample.get("sample_id", number)),
        tuple(messages),
        tuple(texts),
        tuple(places),
        tuple(question for question in questions if question.evidence),
    )


def _question(question: Mapping[str, Any], places: Mapping[str, int]) -> Question:
    marks = [mark for text in question.get("evidence", []) for mark in _EVIDENCE.findall(str(text))]
    evidence = sorted({places[mark] for mark in marks if mark in places})
    return Question(
        str(question["question"]), str(question.get("answer", "")), tuple(evidence), int(question["category"])
    )
