"""Cutting a conversation into units, at once or as it grows."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Iterator, MutableMapping
from dataclasses import replace
from typing import Any

from forgetless.messages import Call, Media, Message, Opaque, Part, Result, Text, Wire
from forgetless.tokens import Counter
from forgetless.units import Keys, Kind, Span, Unit

__all__ = ["Reopened", "Splitter", "split"]

KEEP_OPAQUE = frozenset({"compaction", "item_reference"})
"""Blocks that stand for content held by the provider: without them the rest may make no sense."""


class Reopened(Exception):
    """A message belongs to a unit that was taken for settled: the conversation has to be split from its start."""


class Splitter:
    """One pass over the messages; results find their step through the ids of the calls seen so far.

    A unit in the making is a row of columns. An object for each would be one more for the cyclic collector to
    follow, whose work grows faster than a long history does.

    A conversation that grows need not be split from its start each time: a splitter can `absorb` what is settled,
    and its `fork` goes on from there while it stays as it was itself.
    """

    def __init__(self, counter: Counter, after: Splitter | None = None) -> None:
        """Begin a conversation, or go on where all units of `after` are settled."""
        self.counter = counter
        self.count: Callable[[Message], int] = counter.message
        self.first: int = after.first if after is not None else 0  # index of the first unit that is not settled
        self.kinds: list[Kind] = []
        self.tokens: list[int] = []
        self.spans: list[Span] = []
        self.messages: list[Message] = []
        self.more: dict[int, list[tuple[Span, Message]]] = {}  # unit -> its second message and all later ones
        self.pending: set[tuple[int, str]] = set()  # step and call id, while the call has no result
        self.pinned: set[int] = set()
        self.steps: MutableMapping[str, int] = {}  # call id -> the newest step that made a call with it
        self.server: MutableMapping[Any, int] = {}  # id of a call to a provider's own tool -> its unit
        self.run: int | None = None  # the assistant unit that the previous message belongs to
        self.said: Message | None = None  # the newest message of an assistant
        self.keys: Keys = Keys(after.keys if after is not None else None)
        if after is not None:
            self.said = after.said
            self.steps = ChainMap({}, after.steps)
            self.server = ChainMap({}, after.server)

    def put(self, unit: int | None, kind: Kind, span: Span, message: Message) -> int:
        """Add a message to a unit, or to a new one of `kind`; says to which."""
        tokens = self.count(message)
        if unit is None:
            self.kinds.append(kind)
            self.tokens.append(tokens)
            self.spans.append(span)
            self.messages.append(message)
            return self.first + len(self.kinds) - 1
        if unit < self.first:
            raise Reopened
        self.more.setdefault(unit, []).append((span, message))
        self.tokens[unit - self.first] += tokens
        return unit

    def feed(self, index: int, message: Message) -> None:
        """Take the next message.

        Raises:
            Reopened: it belongs to a unit that is settled.
        """
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
                self.kinds[unit - self.first] = "step"
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

    def units(self, pins: Collection[int] = ()) -> list[Unit]:
        """The units that are not settled, as they are now; those with a message in `pins` are pinned."""
        pinned, opened, first = self.pinned, self._open(), self.first
        keys = Keys(self.keys)
        units: list[Unit] = []
        for row, (kind, tokens) in enumerate(zip(self.kinds, self.tokens, strict=True)):
            index = first + row
            at, held = self._held(row, index)
            keys.messages.append(held)
            pin = index in pinned or (bool(pins) and any(i in pins for i, _, _ in at))
            units.append(Unit(index, at, held, kind, tokens, pin, index in opened, keys))
        return units

    def absorb(self, units: Iterable[Unit]) -> None:
        """Take units as settled, as if their messages had been fed: nothing that comes later can change them."""
        newest = -1
        for unit in units:
            self.first = unit.index + 1
            self.keys.messages.append(unit.messages)
            for (index, _, _), message in zip(unit.at, unit.messages, strict=True):
                if message.role == "assistant":
                    self.said, newest = (message, index) if index >= newest else (self.said, newest)
                    self._refer(unit.index, message)

    def _refer(self, unit: int, message: Message) -> None:
        """Note the calls in a message, which later messages may answer."""
        for part in message.parts:
            if type(part) is Call:
                self.steps[part.id] = unit
            elif type(part) is Opaque and str(part.block.get("type")).endswith("_tool_use"):
                self.server[part.block.get("id")] = unit

    def fork(self) -> Splitter:
        """A splitter that goes on from here, where all units are settled; this one stays as it is."""
        return Splitter(self.counter, self)

    @property
    def acted(self) -> bool:
        """Whether an assistant has said or done anything since what is settled."""
        return any(kind in ("assistant", "step") for kind in self.kinds)

    def _held(self, row: int, unit: int) -> tuple[tuple[Span, ...], tuple[Message, ...]]:
        """Where the messages of a unit stood, and the messages."""
        more = self.more.get(unit)
        if more is None:
            return (self.spans[row],), (self.messages[row],)
        spans, messages = zip(*more, strict=True)
        return (self.spans[row], *spans), (self.messages[row], *messages)

    def _open(self) -> set[int]:
        """Steps with unanswered calls, and what an assistant did last while it may go on."""
        found = {unit for unit, _ in self.pending}
        kinds = self.kinds
        acted = next((row for row in reversed(range(len(kinds))) if kinds[row] in ("assistant", "step")), None)
        if acted is not None and (kinds[acted] == "step" or acted == len(kinds) - 1):
            found.add(self.first + acted)
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
    splitter = Splitter(counter)
    feed = splitter.feed
    for index, message in enumerate(messages, start):
        feed(index, message)
    return splitter.units(pins)
