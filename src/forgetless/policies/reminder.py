"""The user's standing instructions, said again beside the newest question, where models follow them best.

REA puts them into a prefix of their own ("Instructional Memory"). What stands far from the question is what a model
forgets first, so they are repeated there; docs/instructions.md has the figures. The repetition is part of a request
only: the next request has it beside the next question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from forgetless.instructions.base import Recogniser
from forgetless.instructions.memory import Standing, State, ended, standing
from forgetless.messages import Message, Text
from forgetless.policies.base import Context, floor, last_user, over
from forgetless.tokens import Counter
from forgetless.units import Unit

__all__ = ["Reminder", "reminder"]

SHARE = 0.5
"""Most of the room that what must stay leaves, which a reminder may take; the newest instructions come first."""

HEAD = "(Standing instructions from earlier in this conversation: "


@dataclass(frozen=True, slots=True)
class Reminder:
    """What is said again.

    Attributes:
        instructions: word for word, oldest first.
        given: indices of the units that gave them.
        question: index of the unit beside which they are said.
        message: index of its message in the conversation.
        tokens: that they take.
        ended: index of a unit whose instructions have ended -> how.
    """

    instructions: tuple[str, ...]
    given: frozenset[int]
    question: int
    message: int
    tokens: int
    ended: Mapping[int, State]

    def beside(self, message: Message) -> Message:
        """The question's message with the instructions."""
        return _said(message, self.instructions) if self.instructions else message

    def told(self, context: Context) -> Context:
        """A context that has them beside its question, and a ledger that says so."""
        # CCM may have made one message of its task and the question behind it
        users = (unit.index for unit in context.units if unit.kind == "user" and unit.index <= self.question)
        holds = max(users, default=self.question)
        units = tuple(
            replace(unit, messages=(self.beside(unit.messages[0]),), tokens=unit.tokens + self.tokens)
            if unit.index == holds
            else unit
            for unit in context.units
        )
        ledger = []
        for entry in context.ledger:
            if entry.unit == self.question:
                entry = replace(entry, tokens_after=entry.tokens_after + self.tokens)  # noqa: PLW2901
            elif entry.unit in self.given and entry.form == "omitted":
                entry = replace(entry, reason="instruction")  # noqa: PLW2901
            ledger.append(over(entry, self.ended))
        tokens = context.tokens + self.tokens
        return replace(context, units=units, ledger=tuple(ledger), tokens=tokens, instructions=self.instructions)


def reminder(units: Sequence[Unit], find: Recogniser, counter: Counter, budget: int) -> Reminder | None:
    """What is to be said again; None where there is none but what the question says itself, and none has ended.

    Args:
        units: the whole conversation.
        find: recognises instructions.
        counter: counts the repetition.
        budget: most tokens of the messages.
    """
    question = last_user(units)
    if question is None:
        return None
    left = int((budget - sum(units[index].tokens for index in floor(units))) * SHARE)
    chosen: list[Standing] = []
    tokens = 0
    bare = counter.message(question.messages[0])
    found = standing(units, find)
    for one in reversed(found):
        known = one.state != "instruction" or one.text.strip() in question.text
        if known or not _replied(units, one.unit, question.index):
            continue
        words = [said.text for said in (one, *chosen)]
        more = counter.message(_said(question.messages[0], words)) - bare
        if more > left:
            break
        chosen.insert(0, one)
        tokens = more
    states = ended(found)
    if not chosen and not states:
        return None
    given = frozenset(one.unit for one in chosen)
    return Reminder(tuple(one.text for one in chosen), given, question.index, question.at[0][0], tokens, states)


def _replied(units: Sequence[Unit], given: int, question: int) -> bool:
    """Whether an instruction has been answered before the question: else it stands close enough."""
    return any(unit.kind in ("assistant", "step") for unit in units[given:question])


def _said(message: Message, instructions: Sequence[str]) -> Message:
    words = f"{HEAD}{' '.join(text.strip() for text in instructions)})"
    match message.parts:
        case [Text(text=text, wire=None) as part]:
            return replace(message, parts=(replace(part, text=f"{text}\n\n{words}"),))
        case parts:  # a part of its own leaves the question as it is, and any cache mark in it good
            return replace(message, parts=(*parts, Text(words)))
