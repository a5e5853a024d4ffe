"""The message that sets the task, with what a model is told before it and its memory behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from forgetless.messages import Call, Media, Opaque, Part, Result, Text
from forgetless.tokens import Counter
from forgetless.units import Unit

__all__ = ["MARK", "beside", "joined"]

MARK = "cache_control"
"""Field of a block up to which Anthropic's cache is to read."""

_GAP = "\n\n"


def beside(task: Unit, told: Sequence[str], counter: Counter, dialect: str) -> Unit:
    """The task with what its model is told: before it what to do, behind it the memory where there is one."""
    (message,) = task.messages
    before, *after = (Text(text) for text in told)
    parts: tuple[Part, ...] = (before, *(part for part in message.parts if part != Text("")))
    if dialect == "anthropic":
        *first, static = map(_bare, parts)
        parts = (*first, _marked(static))
    made = replace(message, parts=_plain((*parts, *after), dialect))
    tokens = task.tokens + counter.message(made) - counter.message(message)
    return replace(task, messages=(made,), tokens=tokens)


def joined(units: Sequence[Unit], task: Unit, observes: bool, dialect: str) -> tuple[Unit, ...]:
    """Units with the task among them in its new form.

    Args:
        units: that stay.
        task: in its new form.
        observes: whether a user message right behind the task is its newest observation; the two become one message,
            for not every provider takes two of a user in a row.
        dialect: as in `beside`; but for system prompts nothing else keeps a mark for a cache: there may be four at
            most, and what stands behind the task is never read again.
    """
    place = next(at for at, unit in enumerate(units) if unit.index == task.index)
    first, rest = ([_unmarked(u, dialect) for u in some] for some in (units[:place], units[place + 1 :]))
    if observes and rest and rest[0].kind == "user":
        observation, *rest = rest
        (message,), (seen,) = task.messages, observation.messages
        message = replace(message, parts=_plain((*message.parts, *seen.parts), dialect))
        task = replace(task, messages=(message,), tokens=task.tokens + observation.tokens)
    return (*first, task, *rest)


def _plain(parts: tuple[Part, ...], dialect: str) -> tuple[Part, ...]:
    """Parts as one text where all came as bare strings."""
    texts = [part.text for part in parts if type(part) is Text and part.wire is None]
    return (Text(_GAP.join(texts)),) if dialect != "anthropic" and len(texts) == len(parts) else parts


def _unmarked(unit: Unit, dialect: str) -> Unit:
    if unit.kind == "system" or dialect != "anthropic":
        return unit
    messages = tuple(replace(message, parts=tuple(map(_bare, message.parts))) for message in unit.messages)
    return replace(unit, messages=messages)


def _bare(part: Part) -> Part:
    """A part without marks for a cache."""
    match part:
        case Result(content=content, wire=wire):
            return replace(part, content=tuple(map(_bare, content)), wire=_without(wire))
        case Text(wire=wire) | Call(wire=wire):
            return replace(part, wire=_without(wire))
        case Media(block=block) | Opaque(block=block):
            return replace(part, block=_without(block))
        case _:
            return part


def _without(wire: Mapping[str, Any] | None) -> Any:
    return wire if wire is None or MARK not in wire else {key: value for key, value in wire.items() if key != MARK}


def _marked(part: Part) -> Part:
    """A part with a mark up to which a cache reads."""
    mark = {MARK: {"type": "ephemeral"}}
    match part:
        case Text(text=text, wire=wire):
            return replace(part, wire={**(wire or {"type": "text", "text": text}), **mark})
        case Media(block=block) | Opaque(block=block):
            return replace(part, block={**block, **mark})
        case _:
            return part
