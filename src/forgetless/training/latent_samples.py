"""What the latent memory learns from: texts to say again and to go on from, and answers of the model itself.

Stage 1 has two objectives (notes A3), both as chats, since chats are where memories are read later: a text is
compressed, and said again when the user asks for it; or it is gone on from, in clear, compressed and target pieces.
Most texts are passages, whole sentences from anywhere in what users and assistants said, so that hardly one is seen
twice: the few short replies of some two hundred dialogues are soon known by heart, and that teaches to read no others.
What stands before a passage is clear, and what comes after it the target; every other one is said again with a word
changed instead. A reply of a dialogue is gone on from as it was there: the user's turn is clear, the next turn and its
reply the target. Stage 2 has dialogues whose past replies are all compressed, and the answers that the uncompressed
model gave to the whole text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from random import Random
from typing import Any

from forgetless.datasets.dialogues import Dialogue, Exchange
from forgetless.models.embeds import TYPE
from forgetless.models.local.chat import MEMORY, numbers, pieces, render
from forgetless.models.local.network import IGNORED, Sample
from forgetless.sentences import sentences

__all__ = ["TARGET", "Texts", "answered", "clipped", "exchange", "history"]

SLOT: Mapping[str, Any] = {"type": TYPE}
"""The place of a memory in a message."""

AGAIN = ("Say that again, word for word.", "Repeat your last reply.", "What did you just say?", "Copy your answer.")
ON = "Go on."
CHANGED = "Write {new} in the place of {old}."
WORD = re.compile(r"\b[^\W\d_]{4,}\b")

CLEAR = 32
"""Most tokens of a user's turn before a reply, and of a clear piece."""

TARGET = 64
"""Most tokens of a turn that is measured, and of an answer."""

LEARNT = 48
"""Most tokens of a turn that is learnt in stage 1."""

DIALOGUES = 0.25
"""Share of stage 1 that is of dialogues; the rest is of passages."""

WHOLE = 0.7
"""Share of these with replies that go in whole, where there are enough."""

CHARACTERS = 12
"""More than a token has in prose: so much of a text is looked at for each token."""

SENTENCES = 3
"""Most sentences that stand before a passage in clear."""

TURNS = 3
"""Most turns before the question in stage 2."""


@dataclass(frozen=True, slots=True)
class Texts:
    """What samples are drawn from.

    Attributes:
        tokenizer: of the model.
        exchanges: with their replies' tokens.
        said: what users and assistants said, each once.
        ends: characters of each of these and all before it.
    """

    tokenizer: Any
    exchanges: tuple[tuple[Exchange, tuple[int, ...]], ...]
    said: tuple[str, ...]
    ends: tuple[int, ...]

    @classmethod
    def of(cls, tokenizer: Any, dialogues: Sequence[Dialogue]) -> Texts:
        """The texts of dialogues."""
        found = ((one, tuple(numbers(tokenizer, one.reply))) for dialogue in dialogues for one in dialogue.exchanges())
        said = dict.fromkeys(text for one in dialogues for turn in one.turns for text in turn if any(sentences(text)))
        ends = accumulate(map(len, said))
        return cls(tokenizer, tuple((one, reply) for one, reply in found if reply), tuple(said), tuple(ends))

    def draw(self, chance: Random, span: int) -> tuple[Sample, Sample]:
        """Two samples of stage 1 on one compressed text of up to `span` tokens: to say it again, and to go on after it.

        Every other passage is not gone on from, but said again with a word changed.
        """
        if chance.random() < DIALOGUES or not self.said:
            found, reply = self._exchange(chance, span)
            text = self.tokenizer.decode(reply)
            on, clear = (exchange(self.tokenizer, found, reply, content=one, most=LEARNT) for one in ([SLOT], text))
            on = replace(on, clear=clear.tokens)
        else:
            before, reply, after = self._passage(chance, span)
            text = self.tokenizer.decode(reply)
            changed = self._changed(chance, text) if chance.random() < 0.5 or not after else None
            found = Exchange(ON, text, *(changed or (ON, after or text)))
            content = [SLOT] if changed else [{"type": "text", "text": before}, SLOT]
            most = span if changed else LEARNT
            on = exchange(self.tokenizer, found, reply, content=content, most=most, guessed=1)
        again = replace(found, next_user=chance.choice(AGAIN), next_reply=text)
        return exchange(self.tokenizer, again, reply, most=span, guessed=1), on

    def _exchange(self, chance: Random, span: int) -> tuple[Exchange, tuple[int, ...]]:
        """An exchange and its reply: mostly whole: the next turn is about that."""
        whole = chance.random() < WHOLE
        for _ in range(30):
            found, reply = chance.choice(self.exchanges)
            if not whole or span // 4 <= len(reply) <= span + span // 4:
                break
        return found, clipped(self.tokenizer, reply[:span])

    def _passage(self, chance: Random, span: int) -> tuple[str, tuple[int, ...], str]:
        """What stands before a passage, its tokens, and what comes after it.

        It begins with a sentence, and ends with one where one ends within its length. The longer a text is, the more
        often passages are taken from it.
        """
        text = chance.choices(self.said, cum_weights=self.ends)[0]
        cuts = list(sentences(text))
        at = chance.randrange(len(cuts))
        begin = cuts[at][0]
        wide = chance.randint(max(1, span // 2), span)
        tokens = numbers(self.tokenizer, text[begin : begin + CHARACTERS * wide])
        reply = clipped(self.tokenizer, tokens[:wide])
        end = begin + len(self.tokenizer.decode(reply))
        end = max((stop for start, stop in cuts if begin < stop <= end), default=end)
        reply = clipped(self.tokenizer, numbers(self.tokenizer, text[begin:end])[:wide])
        before = numbers(self.tokenizer, text[cuts[max(0, at - SENTENCES)][0] : begin])
        clear = clipped(self.tokenizer, before[len(before) - min(len(before), chance.randrange(CLEAR)) :])
        return self.tokenizer.decode(clear), reply, text[end : end + CHARACTERS * LEARNT].strip()

    def _changed(self, chance: Random, text: str) -> tuple[str, str] | None:
        """That a word be changed, and the text with the change; nothing where there is no word in it."""
        old = sorted(set(WORD.findall(text)))
        new = sorted(set(WORD.findall(chance.choices(self.said, cum_weights=self.ends)[0])) - set(old))
        if not old or not new:
            return None
        gone, put = chance.choice(old), chance.choice(new)
        return CHANGED.format(new=put, old=gone), re.sub(rf"\b{gone}\b", put, text)


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
