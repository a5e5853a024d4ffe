"""Results of tools that give way to a marker that names what stood there; calls and what was said stay."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import is_

from forgetless.messages import Message, Part, Result, Text
from forgetless.tokens import Counter
from forgetless.units import Unit

__all__ = ["changed", "masked"]


def masked(unit: Unit, counter: Counter) -> Unit | None:
    """The unit with markers in the place of its results, or None where that saves nothing."""
    names = {call.id: call.name for message in unit.messages for call in message.calls}

    def change(message: Message) -> Message:
        parts = (_mask(p, names, counter) if type(p) is Result and not p.fixed else p for p in message.parts)
        return replace(message, parts=tuple(parts))

    return changed(unit, change, counter)


def changed(unit: Unit, change: Callable[[Message], Message], counter: Counter) -> Unit | None:
    """The unit with its messages changed, or None where that saves nothing."""
    messages = tuple(change(message) for message in unit.messages)
    if all(map(is_, messages, unit.messages)):  # most are: counting them again would cost most of the call
        return None
    tokens = sum(map(counter.message, messages))
    return replace(unit, messages=messages, tokens=tokens) if tokens < unit.tokens else None


def _mask(result: Result, names: Mapping[str, str], counter: Counter) -> Part:
    cost = counter.part(result)
    marker = Text(f"[result of {names.get(result.id, 'a tool')} left out: {cost:,} tokens]")
    return replace(result, content=(marker,)) if counter.part(marker) < cost else result
