"""Units: the smallest pieces of a conversation that are kept or dropped whole.

A user message, an assistant message, or a step: an assistant message with tool calls together with all their
results, matched by id, wherever they stand. A user message that carries results and the user's own words is split
by parts, so that the words outlive the results. `split` and `join` undo one another.
"""

from __future__ import annotations

import json
from collections import Counter as Bag
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import chain
from operator import itemgetter
from typing import Literal, TypeAlias

from forgetless.errors import RequestError
from forgetless.messages import Call, Media, Message, Opaque, Part, Result, Text, Thinking

__all__ = ["Keys", "Kind", "Span", "Unit", "check", "join", "placed", "roll", "text_of"]

Kind: TypeAlias = Literal["system", "user", "assistant", "step"]

Span: TypeAlias = tuple[int, int, int]
"""Message index, first part, end of parts. Index -1 is a system prompt that stands outside the message list."""


class Keys:
    """The rolling keys of a conversation's units, made when the first is asked for: most calls ask for none."""

    __slots__ = ("_after", "_made", "_start", "messages")

    def __init__(self, after: Keys | None = None) -> None:
        """Begin a conversation, or go on from the units that `after` has so far."""
        self.messages: list[Sequence[Message]] = []  # of each unit
        self._after = after
        self._start = after.end if after is not None else 0
        self._made: list[bytes] = []

    @property
    def end(self) -> int:
        """How many units there are."""
        return self._start + len(self.messages)

    def of(self, index: int) -> bytes:
        """The key of the unit at `index`."""
        made, after = self._made, self._after
        if after is not None and index < self._start:
            return after.of(index)
        while len(made) <= index - self._start:
            last = made[-1] if made else after.of(self._start - 1) if after is not None and self._start else b""
            made.append(roll(last, self.messages[len(made)]))
        return made[index - self._start]


@dataclass(frozen=True, slots=True)
class Unit:
    """A piece of a conversation that is kept or dropped whole.

    Attributes:
        index: place among the units of the conversation, from 0.
        at: where each of `messages` stood in the conversation, ascending.
        messages: whole messages, or the parts of one that belong here.
        kind: `system` covers developer messages too.
        tokens: of all `messages`.
        pinned: system messages, and what the caller pinned.
        open: a step with unanswered calls, or the last thing an assistant did, not yet followed by another.
        keys: the rolling keys of the conversation that it was cut from.
    """

    index: int
    at: tuple[Span, ...]
    messages: tuple[Message, ...]
    kind: Kind
    tokens: int
    pinned: bool = False
    open: bool = False
    keys: Keys | None = field(default=None, compare=False, repr=False)

    @property
    def key(self) -> bytes:
        """Rolling hash of all that a model reads up to and including this unit: what memoising goes by."""
        return self.keys.of(self.index) if self.keys is not None else b""

    @property
    def text(self) -> str:
        """Everything readable in the unit, reasoning excepted, a line per part."""
        if len(self.messages) == 1 and len(parts := self.messages[0].parts) == 1 and type(parts[0]) is Text:
            return parts[0].text
        return "\n".join(chain.from_iterable(map(_readable, (p for m in self.messages for p in m.parts))))


def join(units: Iterable[Unit]) -> list[Message]:
    """The messages of `units` in their old order, parts of one message put together again."""
    return [message for _, message in placed(units)]


def placed(units: Iterable[Unit]) -> list[tuple[int, Message]]:
    """What `join` gives, each message with its index in the conversation."""
    pieces: list[tuple[Span, Message]] = []
    for unit in units:
        if len(unit.at) == 1:  # nearly every unit: worth a short way
            pieces.append((unit.at[0], unit.messages[0]))
        else:
            pieces.extend(zip(unit.at, unit.messages, strict=True))
    pieces.sort(key=itemgetter(0))
    messages: list[tuple[int, Message]] = []
    last: int | None = None
    for (index, _, _), message in pieces:
        if index == last:
            before = messages[-1][1]
            messages[-1] = (index, replace(before, parts=before.parts + message.parts))
        else:
            messages.append((index, message))
        last = index
    return messages


def check(units: Sequence[Unit]) -> None:
    """Refuse a conversation whose calls and results do not match, which no selection could make valid.

    Raises:
        RequestError: names the message with a result that has no call before it, or that comes twice.
    """
    for unit in units:
        if unit.kind != "step":
            continue
        waiting: Bag[str] = Bag()
        for (index, _, _), message in zip(unit.at, unit.messages, strict=True):
            for part in message.parts:
                if type(part) is Call:
                    waiting[part.id] += 1
                elif type(part) is Result:
                    if not waiting[part.id]:
                        raise RequestError(
                            f"the tool result {part.id!r} answers no open call before it: remove it, or send the "
                            "assistant message that made the call",
                            message=index,
                        )
                    waiting[part.id] -= 1


def text_of(part: Part) -> str:
    """What can be read in one part, a line per text."""
    return "\n".join(_readable(part))


def _readable(part: Part) -> Iterator[str]:
    match part:
        case Text(text=text):
            yield text
        case Call(name=name, arguments=arguments):
            yield name
            yield arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        case Result(content=content):
            for inner in content:
                yield from _readable(inner)
        case Media() | Thinking() | Opaque():
            return


def roll(key: bytes, messages: Sequence[Message]) -> bytes:
    """The next rolling key. Wire extras stay out of it: clients move cache marks about between requests."""
    read = "".join([f"\x1e{message.role}\x1f{_read(message.parts)}" for message in messages])
    return blake2b(key + read.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _read(parts: tuple[Part, ...]) -> str:
    if len(parts) == 1 and type(part := parts[0]) is Text:
        return part.text
    # Clients send the content of a reply that has none as null or as "": a model reads the same.
    return "\x1f".join([_identity(part) for part in parts if type(part) is not Text or part.text])


def _identity(part: Part) -> str:
    """A text that two parts share only when a model would read the same in both."""
    match part:
        case Text(text=text):
            return text
        case Thinking(text=text):
            return f"\x01{text}"
        case Call(id=ident, name=name, arguments=arguments):
            given = arguments if isinstance(arguments, str) else json.dumps(arguments, sort_keys=True)
            return f"\x02{ident}\x1f{name}\x1f{given}"
        case Result(id=ident, content=content):
            return f"\x03{ident}\x1f" + "\x1f".join(map(_identity, content))
        case Media(block=block) | Opaque(block=block):
            seen = {key: value for key, value in block.items() if key != "cache_control"}
            return "\x04" + json.dumps(seen, sort_keys=True, default=str)
