"""Units: the smallest pieces of a conversation that are kept or dropped whole.

A user message, an assistant message, or a step: an assistant message with tool calls together with all their
results, matched by id, wherever they stand. A user message that carries results and the user's own words is split
by parts, so that the words outlive the results. `split` and `join` undo one another.
"""

from __future__ import annotations

import json
from collections import Counter as Bag
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import chain
from typing import Any, Literal, TypeAlias

from forgetless.errors import RequestError
from forgetless.messages import Call, Media, Message, Opaque, Part, Result, Text, Thinking, Wire
from forgetless.tokens import Counter

__all__ = ["Keys", "Kind", "Span", "Unit", "check", "join", "split", "text_of"]

Kind: TypeAlias = Literal["system", "user", "assistant", "step"]

Span: TypeAlias = tuple[int, int, int]
"""Message index, first part, end of parts. Index -1 is a system prompt that stands outside the message list."""

KEEP_OPAQUE = frozenset({"compaction", "item_reference"})
"""Blocks that stand for content held by the provider: without them the rest may make no sense."""


class Keys:
    """The rolling keys of a conversation's units, made when the first is asked for: most calls ask for none."""

    __slots__ = ("_made", "_messages")

    def __init__(self, messages: Sequence[Sequence[Message]]) -> None:
        """Take the messages of each unit."""
        self._messages = messages
        self._made: list[bytes] = []

    def of(self, index: int) -> bytes:
        """The key of the unit at `index`."""
        made = self._made
        while len(made) <= index:
            made.append(_roll(made[-1] if made else b"", self._messages[len(made)]))
        return made[index]


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


class _Splitter:
    """One pass over the messages; results find their step through the ids of the calls seen so far.

    A unit in the making is a row of columns. An object for each would be one more for the cyclic collector to
    follow, whose work grows faster than a long history does.
    """

    def __init__(self, counter: Counter) -> None:
        self.count = counter.message
        self.kinds: list[Kind] = []
        self.tokens: list[int] = []
        self.spans: list[Span] = []
        self.messages: list[Message] = []
        self.more: dict[int, list[tuple[Span, Message]]] = {}  # unit -> its second message and all later ones
        self.pending: set[tuple[int, str]] = set()  # step and call id, while the call has no result
        self.pinned: set[int] = set()
        self.steps: dict[str, int] = {}  # call id -> the newest step that made a call with it
        self.server: dict[Any, int] = {}  # id of a call to a provider's own tool -> its unit
        self.run: int | None = None  # the assistant unit that the previous message belongs to
        self.said: Message | None = None  # the newest message of an assistant

    def put(self, unit: int | None, kind: Kind, span: Span, message: Message) -> int:
        """Add a message to a unit, or to a new one of `kind`; says to which."""
        tokens = self.count(message)
        if unit is None:
            self.kinds.append(kind)
            self.tokens.append(tokens)
            self.spans.append(span)
            self.messages.append(message)
            return len(self.kinds) - 1
        self.more.setdefault(unit, []).append((span, message))
        self.tokens[unit] += tokens
        return unit

    def feed(self, index: int, message: Message) -> None:
        role = message.role
        if role == "assistant":
            self._assistant(index, message)
            return
        self.run = None
        parts = message.parts
        if role == "tool" or (role == "user" and Result in map(type, parts)):
            self._results(index, message)
            return
        unit = self.put(None, "user" if role == "user" else "system", (index, 0, len(parts)), message)
        if role != "user":
            self.pinned.add(unit)

    def _assistant(self, index: int, message: Message) -> None:
        run = self.run
        if self.said is not None and not _continues(self.said, message):
            run = None
        self.said = message
        served = self._served(message)
        run = run if served is None else served
        unit = self.run = self.put(run, "assistant", (index, 0, len(message.parts)), message)
        for part in message.parts:
            if type(part) is Call:
                self.kinds[unit] = "step"
                self.pending.add((unit, part.id))
                self.steps[part.id] = unit
            elif type(part) is Opaque:
                self._opaque(unit, part.block)

    def _served(self, message: Message) -> int | None:
        """The unit whose call a provider's own tool answers in this message, when it paused in between."""
        answers = (part.block.get("tool_use_id") for part in message.parts if type(part) is Opaque)
        return next((self.server[ident] for ident in answers if ident in self.server), None)

    def _opaque(self, unit: int, block: Wire) -> None:
        kind = str(block.get("type"))
        if kind in KEEP_OPAQUE:
            self.pinned.add(unit)
        elif kind.endswith("_tool_use"):
            self.server[block.get("id")] = unit
            self.pending.add((unit, str(block.get("id"))))
        elif "tool_use_id" in block:
            self.pending.discard((unit, str(block["tool_use_id"])))

    def _results(self, index: int, message: Message) -> None:
        words: int | None = None
        for start, stop, ident in _runs(message.parts):
            whole = start == 0 and stop == len(message.parts)
            piece = message if whole else replace(message, parts=message.parts[start:stop])
            span = (index, start, stop)
            if ident is None:
                words = self.put(words, "user", span, piece)
            else:
                step = self.put(self.steps.get(ident), "step", span, piece)
                self.pending.discard((step, ident))

    def held(self, unit: int) -> tuple[tuple[Span, ...], tuple[Message, ...]]:
        """Where the messages of a unit stood, and the messages."""
        more = self.more.get(unit)
        if more is None:
            return (self.spans[unit],), (self.messages[unit],)
        spans, messages = zip(*more, strict=True)
        return (self.spans[unit], *spans), (self.messages[unit], *messages)

    def open(self) -> set[int]:
        """Steps with unanswered calls, and what an assistant did last while it may go on."""
        found = {unit for unit, _ in self.pending}
        kinds = self.kinds
        acted = next((u for u in reversed(range(len(kinds))) if kinds[u] in ("assistant", "step")), None)
        if acted is not None and (kinds[acted] == "step" or acted == len(kinds) - 1):
            found.add(acted)
        return found


def _runs(parts: tuple[Part, ...]) -> Iterator[tuple[int, int, str | None]]:
    """Cut parts into single results (with the id of their call) and runs of anything else (None)."""
    start = 0
    for i, part in enumerate(parts):
        if type(part) is Result:
            if start < i:
                yield start, i, None
            yield i, i + 1, part.id
            start = i + 1
    if start < len(parts):
        yield start, len(parts), None


def _continues(last: Message, message: Message) -> bool:
    """Whether two assistant messages in a row are one reply: dialects of items give reasoning and calls apart."""
    if not any(type(p) in (Text, Media) for p in last.parts):
        return True
    return bool(message.parts) and all(type(p) is Call for p in message.parts)


def split(messages: Iterable[Message], counter: Counter, *, start: int = 0, pins: Collection[int] = ()) -> list[Unit]:
    """Cut a conversation into units.

    Args:
        messages: a conversation, oldest first.
        counter: counts the tokens of each message.
        start: index of the first message; -1 where a system prompt stands before the list.
        pins: indices of messages to pin; the unit that holds any of their parts is pinned whole.
    """
    splitter = _Splitter(counter)
    feed = splitter.feed
    for index, message in enumerate(messages, start):
        feed(index, message)
    pinned, opened = splitter.pinned, splitter.open()
    units: list[Unit] = []
    contents: list[tuple[Message, ...]] = []
    keys = Keys(contents)
    for index, (kind, tokens) in enumerate(zip(splitter.kinds, splitter.tokens, strict=True)):
        at, held = splitter.held(index)
        contents.append(held)
        pin = index in pinned or (bool(pins) and any(i in pins for i, _, _ in at))
        units.append(Unit(index, at, held, kind, tokens, pin, index in opened, keys))
    return units


def join(units: Iterable[Unit]) -> list[Message]:
    """The messages of `units` in their old order, parts of one message put together again."""
    pieces = [(span, message) for unit in units for span, message in zip(unit.at, unit.messages, strict=True)]
    pieces.sort(key=lambda piece: piece[0])
    messages: list[Message] = []
    last: int | None = None
    for (index, _, _), message in pieces:
        if index == last:
            messages[-1] = replace(messages[-1], parts=messages[-1].parts + message.parts)
        else:
            messages.append(message)
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


def _roll(key: bytes, messages: Sequence[Message]) -> bytes:
    """The next rolling key. Wire extras stay out of it: clients move cache marks about between requests."""
    read = "".join([f"\x1e{message.role}\x1f{_read(message.parts)}" for message in messages])
    return blake2b(key + read.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _read(parts: tuple[Part, ...]) -> str:
    if len(parts) == 1 and type(part := parts[0]) is Text:
        return part.text
    return "\x1f".join(map(_identity, parts))


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
