"""Which standing instructions hold by now: found in the user's turns, ended by later words or by their own terms.

An instruction ends when a later one takes its place ("write in Spanish instead"), when the user takes it back
("forget the word limit"), or when the replies that it was for have been given. What is not plainly one of these
leaves it standing: of two rules that contradict one another a model reads the later one last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from forgetless.instructions.base import Recogniser, Span
from forgetless.instructions.terms import Terms, terms
from forgetless.messages import Text
from forgetless.units import Unit

__all__ = ["Standing", "State", "ended", "standing"]

State: TypeAlias = Literal["instruction", "replaced", "withdrawn", "expired"]


@dataclass(frozen=True, slots=True)
class Standing:
    """A standing instruction.

    Attributes:
        unit: index of the user unit that gives it.
        part: which part of the unit's message it stands in.
        span: where in that part.
        text: its words.
        terms: what it is about, and for how long.
        state: `instruction` while it holds, else what ended it.
    """

    unit: int
    part: int
    span: Span
    text: str
    terms: Terms
    state: State = "instruction"


def standing(units: Sequence[Unit], find: Recogniser) -> list[Standing]:
    """The standing instructions of a conversation, oldest first, with those that have ended."""
    found: list[Standing] = []
    for unit in units:
        if unit.kind == "user":
            for new in _given(unit, find):
                if new.terms.topics or new.terms.withdraws:  # else it ends none
                    found = [_after(old, new) for old in found]
                found.append(new)
    if not any(one.terms.replies for one in found):
        return found
    replies = [unit.index for unit in units if unit.kind == "assistant"]
    return [_expired(one, replies) for one in found]


def ended(found: Sequence[Standing]) -> dict[int, State]:
    """The units whose instructions have all ended, and how the last of them did."""
    states: dict[int, State] = {one.unit: one.state for one in found if one.state != "instruction"}
    for one in found:
        if one.state == "instruction":
            states.pop(one.unit, None)  # it gives another that still holds
    return states


def _given(unit: Unit, find: Recogniser) -> Iterator[Standing]:
    for number, part in enumerate(unit.messages[0].parts):
        if type(part) is Text:
            for start, end in find(part.text):
                words = part.text[start:end]
                yield Standing(unit.index, number, (start, end), words, terms(words))


def _after(old: Standing, new: Standing) -> Standing:
    """An instruction once another has been given."""
    if old.state != "instruction" or not new.terms.ends(old.terms):
        return old
    return replace(old, state="withdrawn" if new.terms.withdraws else "replaced")


def _expired(one: Standing, replies: Sequence[int]) -> Standing:
    most = one.terms.replies
    if one.state != "instruction" or not most or sum(index > one.unit for index in replies) < most:
        return one
    return replace(one, state="expired")
