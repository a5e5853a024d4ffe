"""What the latent memory learns from: texts to repeat, texts and dialogues to go on with, answers of the model itself.

Stage 1 has two objectives (notes A3): a text is compressed and repeated from its memory; or a text stands as clear,
compressed and target pieces, of which the target is learnt. Dialogues give the second kind too: the user's turn is
clear, the reply compressed, the next turn and its reply the target. Stage 2 has dialogues whose past replies are all
compressed, and the answers that the uncompressed model gave to the whole text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from forgetless.datasets.dialogues import Dialogue, Exchange
from forgetless.models.embeds import TYPE
from forgetless.models.local.chat import MEMORY, numbers, pieces, render
from forgetless.models.local.network import IGNORED, Sample

__all__ = ["TARGET", "Texts", "answered", "exchange", "history", "repeated"]

SLOT: Mapping[str, Any] = {"type": TYPE}
"""The place of a memory in a message."""

AGAIN = "\n\nThe same again:\n\n"
CLEAR = 32
"""Most tokens of a user's turn before a reply, and of a clear piece."""

TARGET = 64
"""Most tokens of a turn that is measured, and of an answer."""

LEARNT = 48
"""Most tokens of a turn that is learnt in stage 1."""

DIALOGUES = 0.75
"""Share of stage 1 that is of dialogues; the rest is of pieces of long replies."""

WHOLE = 0.7
"""Share of these with replies that go in whole, where there are enough."""

TURNS = 3
"""Most turns before the question in stage 2."""


@dataclass(frozen=True, slots=True)
class Texts:
    """What samples are drawn from.

    Attributes:
        tokenizer: of the model.
        replies: tokens of each reply.
        exchanges: with their replies' tokens.
    """

    tokenizer: Any
    replies: tuple[tuple[int, ...], ...]
    exchanges: tuple[tuple[Exchange, tuple[int, ...]], ...]

    @classmethod
    def of(cls, tokenizer: Any, dialogues: Sequence[Dialogue]) -> Texts:
        """The texts of dialogues."""
        known: dict[str, tuple[int, ...]] = {}
        for text in (reply for dialogue in dialogues for _, reply in dialogue.turns):
            if text not in known:
                known[text] = tuple(numbers(tokenizer, text))
        found = [(one, known[one.reply]) for dialogue in dialogues for one in dialogue.exchanges()]
        return cls(tokenizer, tuple(known.values()), tuple(found))

    def draw(self, chance: Random, span: int) -> tuple[Sample, Sample]:
        """Two samples of stage 1 on one compressed text of up to `span` tokens: to repeat it, and to go on after it."""
        if chance.random() < DIALOGUES:
            found, reply = self._exchange(chance, span)
            return repeated(self.tokenizer, reply), exchange(self.tokenizer, found, reply, most=LEARNT)
        before, text, after = self._cut(chance, span)
        return repeated(self.tokenizer, text), Sample((text,), (*before, MEMORY, *after), after)

    def _exchange(self, chance: Random, span: int) -> tuple[Exchange, tuple[int, ...]]:
        """An exchange; mostly one whose reply goes in whole, since this is what the next turn is about."""
        whole = chance.random() < WHOLE
        for _ in range(30):
            found, reply = chance.choice(self.exchanges)
            if not whole or span // 4 <= len(reply) <= span + span // 4:
                break
        return found, reply[:span]

    def _cut(self, chance: Random, span: int) -> tuple[tuple[int, ...], ...]:
        """What stands before a piece of a reply, the piece of up to `span` tokens, and what comes after it."""
        wide = chance.randint(max(1, span // 2), span)
        for _ in range(30):
            reply = chance.choice(self.replies)
            if len(reply) >= wide + LEARNT:
                break
        begin = chance.randrange(max(1, len(reply) - wide - LEARNT))
        end = begin + wide
        return reply[max(0, begin - chance.randrange(CLEAR)) : begin], reply[begin:end], reply[end : end + LEARNT]


def repeated(tokenizer: Any, text: tuple[int, ...]) -> Sample:
    """A text to be said again from its memory."""
    return Sample((text,), (MEMORY, *numbers(tokenizer, AGAIN), *text), text)


def exchange(
    tokenizer: Any, found: Exchange, reply: tuple[int, ...], *, content: Any = (SLOT,), most: int = TARGET
) -> Sample:
    """The turn after a reply, and the reply to it, to be guessed.

    Args:
        tokenizer: of the model.
        found: the exchange.
        reply: tokens of the reply, as far as they are compressed.
        content: of the reply's message: the place of its memory, a text, or None for no message at all.
        most: tokens of each turn that is guessed.
    """
    messages = [
        {"role": "user", "content": shortened(tokenizer, found.user, CLEAR)},
        {"role": "assistant", "content": content},
        {"role": "user", "content": shortened(tokenizer, found.next_user, most)},
        {"role": "assistant", "content": shortened(tokenizer, found.next_reply, most)},
    ]
    if content is None:
        del messages[1]
    tokens: list[int] = []
    labels: list[int] = []
    for piece, at in pieces(tokenizer, messages, answer=False):
        tokens += piece
        if labels or (at is not None and at >= len(messages) - 2):
            labels += piece if at is not None else [IGNORED] * len(piece)
    return Sample((reply,) if MEMORY in tokens else (), tuple(tokens), tuple(labels))


def history(
    tokenizer: Any, dialogue: Dialogue, turn: int, span: int
) -> tuple[list[dict[str, Any]], list[tuple[int, ...]]]:
    """The messages before a turn's reply with replies in clear, and the tokens of these replies.

    Args:
        tokenizer: of the model.
        dialogue: whose turn it is.
        turn: its number.
        span: most tokens of a reply.
    """
    messages: list[dict[str, Any]] = []
    replies: list[tuple[int, ...]] = []
    for user, reply in dialogue.turns[max(0, turn - TURNS) : turn]:
        replies.append(tuple(numbers(tokenizer, reply)[:span]))
        messages.append({"role": "user", "content": shortened(tokenizer, user, CLEAR)})
        messages.append({"role": "assistant", "content": tokenizer.decode(replies[-1])})
    messages.append({"role": "user", "content": shortened(tokenizer, dialogue.turns[turn][0], TARGET)})
    return messages, replies


def answered(
    tokenizer: Any, messages: Sequence[Mapping[str, Any]], replies: Sequence[tuple[int, ...]], answer: Sequence[int]
) -> Sample:
    """A dialogue with its replies compressed, and the answer to be guessed."""
    short = [{**one, "content": [SLOT]} if one["role"] == "assistant" else one for one in messages]
    return Sample(tuple(replies), (*render(tokenizer, short, answer=True), *answer), tuple(answer))


def shortened(tokenizer: Any, text: str, most: int) -> str:
    """The beginning of a text."""
    found = numbers(tokenizer, text)
    return text if len(found) <= most else tokenizer.decode(found[:most])
