"""What the latent memory learns from: texts to repeat, texts and dialogues to go on with, answers of the model itself.

Stage 1 has two objectives (notes A3), both as chats, since chats are where memories are read later: a reply is
compressed, and said again when the user asks for it; or it is gone on from, in clear, compressed and target pieces. For
the second, the user's turn is clear, the reply compressed, the next turn and its reply the target; or the beginning of
a reply is clear, a piece of it compressed, what comes after it the target. Stage 2 has dialogues whose past replies are
all compressed, and the answers that the uncompressed model gave to the whole text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from forgetless.datasets.dialogues import Dialogue, Exchange
from forgetless.models.embeds import TYPE
from forgetless.models.local.chat import MEMORY, numbers, pieces, render
from forgetless.models.local.network import IGNORED, Sample

__all__ = ["TARGET", "Texts", "answered", "clipped", "exchange", "history"]

SLOT: Mapping[str, Any] = {"type": TYPE}
"""The place of a memory in a message."""

AGAIN = ("Say that again, word for word.", "Repeat your last reply.", "What did you just say?", "Copy your answer.")
ON = "Go on."

CLEAR = 32
"""Most tokens of a user's turn before a reply, and of a clear piece."""

TARGET = 64
"""Most tokens of a turn that is measured, and of an answer."""

LEARNT = 48
"""Most tokens of a turn that is learnt in stage 1."""

DIALOGUES = 0.6
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
        exchanges: with their replies' tokens.
    """

    tokenizer: Any
    exchanges: tuple[tuple[Exchange, tuple[int, ...]], ...]

    @classmethod
    def of(cls, tokenizer: Any, dialogues: Sequence[Dialogue]) -> Texts:
        """The texts of dialogues."""
        found = ((one, tuple(numbers(tokenizer, one.reply))) for dialogue in dialogues for one in dialogue.exchanges())
        return cls(tokenizer, tuple((one, reply) for one, reply in found if reply))

    def draw(self, chance: Random, span: int) -> tuple[Sample, Sample]:
        """Two samples of stage 1 on one compressed text of up to `span` tokens: to repeat it, and to go on after it."""
        dialogue = chance.random() < DIALOGUES
        found, before, reply = self._exchange(chance, span) if dialogue else self._piece(chance, span)
        text = self.tokenizer.decode(reply)
        if dialogue:
            on, clear = (exchange(self.tokenizer, found, reply, content=one, most=LEARNT) for one in ([SLOT], text))
            on = replace(on, clear=clear.tokens)
        else:
            content = [{"type": "text", "text": before}, SLOT]
            on = exchange(self.tokenizer, found, reply, content=content, most=LEARNT, guessed=1)
        asked = replace(found, next_user=chance.choice(AGAIN), next_reply=text)
        return exchange(self.tokenizer, asked, reply, most=span, guessed=1), on

    def _exchange(self, chance: Random, span: int) -> tuple[Exchange, str, tuple[int, ...]]:
        """An exchange, nothing before its reply, and the reply: mostly whole: the next turn is about that."""
        whole = chance.random() < WHOLE
        for _ in range(30):
            found, reply = chance.choice(self.exchanges)
            if not whole or span // 4 <= len(reply) <= span + span // 4:
                break
        return found, "", clipped(self.tokenizer, reply[:span])

    def _piece(self, chance: Random, span: int) -> tuple[Exchange, str, tuple[int, ...]]:
        """An exchange that goes on with a long reply, what stands before a piece of it, and the piece."""
        wide = chance.randint(max(1, span // 2), span)
        for _ in range(30):
            found, reply = chance.choice(self.exchanges)
            if len(reply) >= wide + LEARNT:
                break
        wide = min(wide, -(-len(reply) // 2))  # where none is as long, half of this one, so that something comes after
        begin = chance.randrange(max(1, len(reply) - wide - LEARNT))
        end = begin + wide
        after = self.tokenizer.decode(reply[end : end + LEARNT])
        before = self.tokenizer.decode(reply[max(0, begin - chance.randrange(CLEAR)) : begin])
        return replace(found, next_user=ON, next_reply=after), before, clipped(self.tokenizer, reply[begin:end])


def exchange(
    tokenizer: Any,
    found: Exchange,
    reply: tuple[int, ...],
    *,
    content: Any = (SLOT,),
    most: int = TARGET,
    guessed: int = 2,
) -> Sample:
    """The turn after a reply, and the reply to it, to be guessed.

    Args:
        tokenizer: of the model.
        found: the exchange.
        reply: tokens of the reply, as far as they are compressed.
        content: of the reply's message: the place of its memory, a text, or None for no message at all.
        most: tokens of the next turn, and of the reply to it.
        guessed: messages that are guessed: the last one, or both.
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
        if labels or (at is not None and at >= len(messages) - guessed):
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
        replies.append(clipped(tokenizer, numbers(tokenizer, reply)[:span]))
        messages.append({"role": "user", "content": shortened(tokenizer, user, CLEAR)})
        messages.append({"role": "assistant", "content": tokenizer.decode(replies[-1])})
    messages.append({"role": "user", "content": shortened(tokenizer, dialogue.turns[turn][0], TARGET)})
    return messages, replies


def answered(
    tokenizer: Any, messages: Sequence[Mapping[str, Any]], replies: Sequence[tuple[int, ...]], answer: Sequence[int]
) -> Sample:
    """A dialogue with its replies compressed, and the answer to be guessed."""
    short = [{**one, "content": [SLOT]} if one["role"] == "assistant" else one for one in messages]
    tokens, clear = ((*render(tokenizer, found, answer=True), *answer) for found in (short, messages))
    return Sample(tuple(replies), tokens, tuple(answer), clear)


def shortened(tokenizer: Any, text: str, most: int) -> str:
    """The beginning of a text."""
    found = numbers(tokenizer, text)
    return text if len(found) <= most else str(tokenizer.decode(clipped(tokenizer, found[:most])))


def clipped(tokenizer: Any, tokens: Sequence[int]) -> tuple[int, ...]:
    """Tokens without half a character at an end, which could be neither said nor read again."""
    begin, end = 0, len(tokens)
    while end - begin > 1 and (text := tokenizer.decode(tokens[begin:end])).endswith("\ufffd"):
        end -= 1
    while end - begin > 1 and text.startswith("\ufffd"):
        begin += 1
        text = tokenizer.decode(tokens[begin:end])
    return tuple(tokens[begin:end])
