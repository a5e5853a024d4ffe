"""What asks a model for a summary: the two instructions, and the text of units as the model reads it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from forgetless.messages import Call, Message, Result
from forgetless.models.base import Model
from forgetless.policies.truncate import cut
from forgetless.replies.loose import listed, mapping, string
from forgetless.tokens import Counter
from forgetless.units import Unit, text_of

__all__ = ["ACON", "SUMMARY", "Style", "write"]

MOST = 2_048
"""Tokens of a summary at most, however much room there is: servers refuse to be asked for more than they can write."""


@dataclass(frozen=True, slots=True)
class Style:
    """A way to summarise.

    Attributes:
        instruction: what the model is told.
        rolling: the summary before is written anew together with what came after it; else all is read each time.
        asked: the model is shown what was asked last, which stays.
    """

    instruction: str
    rolling: bool
    asked: bool


SUMMARY = Style(
    "Distil the key points of the conversation that you are given. They take its place: what you leave out is lost. "
    "Keep who said what, names, numbers, dates, decisions, and all that the user wants remembered, in their own words.",
    rolling=False,
    asked=False,
)
"""REA's baseline: one summary of the whole history each time, in which the question is not looked at."""

ACON = Style(
    "You compress the history of an agent that works in steps. The older steps are removed, and the agent goes on from "
    "what you write alone. Write these sections and nothing else:\n"
    "REASONING: what was found out and decided so far, and why; what failed, and must not be tried again.\n"
    "STATE: a line for each value that later steps may need, as name = value: identifiers, paths, addresses, tokens, "
    "numbers, error messages, copied character by character.\n"
    "DONE: what is finished.\n"
    "NEXT: what is still to do.",
    rolling=True,
    asked=True,
)
"""ACON's history compressor (Kang et al., 2025) with a fixed instruction, in our words."""


def write(
    style: Style,
    model: Model,
    counter: Counter,
    units: Sequence[Unit],
    tokens: int,
    *,
    before: str = "",
    query: Unit | None = None,
) -> str:
    """A summary of units; where they are more than the model's window can take, part by part.

    Args:
        style: how to summarise.
        model: what writes.
        counter: counts what the model reads.
        units: what the summary is to stand for.
        tokens: about as long as it may be.
        before: a summary of what came before them, which the new one includes.
        query: what was asked last.

    Raises:
        ModelError: the model failed.
    """
    window = model.window
    most = min(tokens, MOST, window // 4 if window else MOST)
    asked = cut(query.text, most, counter) if query is not None and style.asked else ""
    for part in _parts([line for unit in units for line in _lines(unit)], window and window // 2, counter):
        told = {
            "The task, which stays": asked,
            "Summary so far": before,
            "What came next" if before else "History": part,
        }
        body = {
            "messages": [
                {"role": "system", "content": f"{style.instruction}\nWrite at most {most // 2} words."},
                {"role": "user", "content": "\n\n".join(f"{name}:\n{text}" for name, text in told.items() if text)},
            ],
            "max_tokens": most * 3 // 4,  # the model's own tokens may be longer than ours
            "temperature": 0,
            "seed": 0,
        }
        choice = next(iter(listed(model(body).get("choices"))), {})
        before = string(mapping(choice.get("message")).get("content")).strip()
    return before


def _parts(lines: Sequence[str], size: int | None, counter: Counter) -> Iterator[str]:
    """The lines in runs of at most `size` tokens; a longer line loses its middle."""
    if size is None:
        yield "\n".join(lines)
        return
    run: list[str] = []
    spent = 0
    for line in lines:
        short = cut(line, size, counter)
        cost = counter.text(short)
        if run and spent + cost > size:
            yield "\n".join(run)
            run, spent = [], 0
        run.append(short)
        spent += cost
    if run:
        yield "\n".join(run)


def _lines(unit: Unit) -> Iterator[str]:
    for message in unit.messages:
        for part in message.parts:
            text = text_of(part)
            if text.strip():
                yield f"{_speaker(message, part)}: {text}"


def _speaker(message: Message, part: object) -> str:
    if isinstance(part, Call):
        return "Call"
    return "Result" if isinstance(part, Result) else message.role.capitalize()
