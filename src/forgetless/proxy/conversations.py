"""Which conversation a request belongs to, and the sessions of those that are under way.

Clients resend the whole history with each request, so a conversation is known by what it says: a rolling key for
each message, salted with the store's secret. A request goes on from the longest prefix that is known, in memory or
in the store. An edited or branched history finds the conversation that it comes from, and goes on from the last
decisions that hold for it. A caller may name conversations in a header instead.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import is_
from secrets import token_hex
from typing import Any

import msgspec

from forgetless.intake import Intake
from forgetless.messages import Message
from forgetless.policies.base import Entry, Policy
from forgetless.proxy.bodies import encode
from forgetless.proxy.pins import dropped, merged
from forgetless.proxy.recall import Offer
from forgetless.session import Session
from forgetless.stores.base import Store
from forgetless.units import roll

__all__ = ["Conversations", "Live"]

MOST = 1_000
"""Sessions in memory."""

MOST_BYTES = 64 * 2**20
"""Bytes of the bodies that they were last asked with; in memory a session takes about six times as much."""

TRIES = 8
"""Sessions that begin with the same message and are compared with a request before keys are made."""

LOOSE = 16
"""Messages at the end of a history that may be spelt otherwise than in the last request: cache marks move about."""


@dataclass(eq=False)
class Live:
    """A conversation, or a branch of one, whose session is in memory.

    Attributes:
        caller: hash of the credential.
        id: of the conversation.
        session: its session.
        root: what its keys grow from.
        lock: held while a request is prepared or recorded.
        keys: rolling keys of the last request's messages, but for system messages at its start.
        ends: keys of the last message of the last recorded request, and of the reply to it.
        stored: keys of the messages that the store has been given with the last record.
        request: id of the last request.
        ledger: of the last request.
        state: how many evictions the session had when its state was last recorded; -1 where it has to be at once.
        pins: what the caller has pinned and dropped, as `forgetless.proxy.pins` writes it.
        kept_pins: what of it the store has.
        wanted: keys of messages that a model asked back while it called other tools: they stay in the next request.
        offer: the tool that the last request offered for what it left out.
        policy: decides about the next request in place of the session's own: a rewriter with its memory.
        budget: what the provider turned out to take, where that is less than it was thought to.
        size: bytes of the last body.
    """

    caller: str
    id: str
    session: Session
    root: bytes
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    keys: list[bytes] = field(default_factory=list)
    ends: tuple[bytes, bytes] = (b"", b"")
    stored: list[bytes] = field(default_factory=list)
    request: str = ""
    ledger: tuple[Entry, ...] = ()
    state: int = 0
    pins: set[bytes] = field(default_factory=set)
    kept_pins: set[bytes] = field(default_factory=set)
    wanted: frozenset[bytes] = frozenset()
    offer: Offer | None = None
    policy: Policy | None = None
    budget: int | None = None
    size: int = 0
    messages: Sequence[Message] = ()
    _first: Any = None

    def update(self) -> Intake:
        """Bring the keys up to the request that the session was asked with last."""
        taken = self.session.taken
        assert taken is not None
        messages = taken.parsed.messages
        start, before = leading(messages), leading(self.messages)
        old, new = self.messages[before:], messages[start:]
        same = next((n for n, equal in enumerate(map(is_, old, new)) if not equal), min(len(old), len(new)))
        keys = self.keys[:same]
        for message in new[same:]:
            keys.append(roll(keys[-1] if keys else self.root, (message,)))
        self.keys, self.messages = keys, messages
        return taken

    def pinned(self, body: Mapping[str, Any]) -> list[int]:
        """Indices of the messages of a request that are pinned; what was dropped counts as no instruction."""
        find = self.session.recogniser
        if find is not None:
            find.dropped = ()
        if not (pins := self.pins | self.wanted):
            return []
        self.session.take(body)
        taken = self.update()
        first = leading(taken.parsed.messages)
        if find is not None:
            find.dropped = dropped(self.pins, self.keys, taken.parsed.messages[first:])
        start = taken.parsed.start + first
        return [index for index, key in enumerate(self.keys, start) if key in pins]


def leading(messages: Sequence[Message]) -> int:
    """How many system messages a request begins with."""
    return next((n for n, message in enumerate(messages) if message.role not in ("system", "developer")), len(messages))


class Conversations:
    """Finds the conversation of each request. Not thread-safe: the event loop's thread is the one that calls it."""

    def __init__(self, store: Store, make: Callable[[str, Mapping[str, Any]], Session]) -> None:
        """Begin with nothing in memory; `make` makes a session from a dialect and a body."""
        self._store = store
        self._make = make
        self._live: OrderedDict[int, Live] = OrderedDict()  # the one used last comes last
        self._bytes = 0
        self._first: dict[tuple[str, str, bytes], list[Live]] = {}
        self._heads: dict[tuple[str, bytes], Live] = {}

    def __len__(self) -> int:
        return len(self._live)

    async def find(self, caller: str, dialect: str, body: Mapping[str, Any], size: int, name: str = "") -> Live:
        """The conversation that a request goes on from, or a new one.

        Args:
            caller: hash of the credential.
            dialect: the dialect's name.
            body: the request.
            size: bytes of the body.
            name: what the caller calls the conversation, where it says.

        Raises:
            RequestError: the body is not of its dialect.
            ConfigError: no usable budget.
            StoreError: the store is away.
        """
        first = (caller, dialect, _beginning(body, name))
        live = self._known(first, body, name)
        if live is None:
            live = await self._sought(caller, dialect, body, name)
        else:
            await self._caught_up(live, body)
        self._use(live, first, size)
        return live

    def follow(self, live: Live, last: bytes, head: bytes) -> None:
        """Take note that a conversation now ends in `head`, the reply to `last`, so that its next request finds it."""
        for key in live.ends:
            if self._heads.get((live.caller, key)) is live:
                del self._heads[live.caller, key]
        live.ends = (last, head)
        for key in live.ends:
            self._heads[live.caller, key] = live

    def _known(self, first: Any, body: Mapping[str, Any], name: str) -> Live | None:
        """A session in memory of which the request is plainly the next one."""
        wires = _list(body)
        for live in reversed(self._first.get(first, ())):
            taken = live.session.taken
            if taken is None or taken.wires is None or live.lock.locked():
                continue
            had, same = len(taken.wires), live.session.same(wires)
            if same < had and not _alike(live, taken, wires[same:had], had - same):
                continue
            spoken = any(message.role == "assistant" for message in taken.parsed.messages)
            if name or spoken or self._answered(live, taken, wires[had:]):
                return live
        return None

    async def _caught_up(self, live: Live, body: Mapping[str, Any]) -> None:
        """Take over what other workers have decided, where they have gone on with a conversation since."""
        taken = live.session.taken
        if taken is None or taken.wires is None:
            return
        more = [message.role for message in taken.dialect.parse(_list(body)[len(taken.wires) :]).messages]
        if not any(one != "assistant" and other == "assistant" for one, other in pairwise(more)):
            return
        async with live.lock:
            live.session.take(body)
            live.update()
            await self.restore(live)

    def _answered(self, live: Live, taken: Intake, more: list[Any]) -> bool:
        """Whether what follows the last request begins with the reply that was given to it."""
        key, head = live.ends
        if not more or not live.keys or key != live.keys[-1] or key == head:
            return False
        for message in taken.dialect.parse(more).messages:
            key = roll(key, (message,))
            if key == head:
                return True
            if message.role != "assistant":
                return False
        return False

    async def _sought(self, caller: str, dialect: str, body: Mapping[str, Any], name: str) -> Live:
        """The conversation of the longest known prefix, by keys."""
        session = self._make(dialect, body)
        session.take(body)
        fresh = Live(caller, name or f"c_{token_hex(10)}", session, self._store.salt + dialect.encode())
        fresh.state = -1 if session.scorer else 0  # it has begun with these weights
        taken = fresh.update()
        said = taken.parsed.messages[leading(taken.parsed.messages) :]
        for at in reversed(range(len(fresh.keys))):
            live = self._heads.get((caller, fresh.keys[at]))
            if live is not None and (live.id == name if name else _same(said, at)) and not live.lock.locked():
                return live
        place = await asyncio.to_thread(self._store.locate, caller, fresh.keys)
        if place is not None and (place.conversation == name if name else _same(said, place.at)):
            fresh.id, fresh.stored = place.conversation, fresh.keys[: place.at + 1]
            await self.restore(fresh)
        return fresh

    def of(self, caller: str, conversation: str) -> list[Live]:
        """The branches of a conversation that are in memory."""
        return [live for live in self._live.values() if (live.caller, live.id) == (caller, conversation)]

    async def restore(self, live: Live) -> None:
        """Go on from the last decisions in the store that hold for a conversation."""
        found = await asyncio.to_thread(self._store.state, live.caller, live.id, live.keys)
        state = None if found is None else msgspec.json.decode(found)
        if state is not None and (state["evictions"] > live.session.evictions or live.state < 0):
            live.session.load(state)
            live.state = live.session.evictions
        stored = await asyncio.to_thread(self._store.pins, live.caller, live.id)
        live.pins, live.kept_pins = merged(live.pins, live.kept_pins, stored), set(stored)

    def _use(self, live: Live, first: Any, size: int) -> None:
        """Move a session to the end of those in memory, and let the ones used longest ago go."""
        if live._first != first:
            self._forget_first(live)
            live._first = first
            same = self._first.setdefault(first, [])
            same.append(live)
            del same[:-TRIES]
        self._bytes += size - (live.size if id(live) in self._live else 0)
        live.size = size
        self._live[id(live)] = live
        self._live.move_to_end(id(live))
        while len(self._live) > 1 and (len(self._live) > MOST or self._bytes > MOST_BYTES):
            _, old = self._live.popitem(last=False)
            self._bytes -= old.size
            self._forget_first(old)
            for key in old.ends:
                if self._heads.get((old.caller, key)) is old:
                    del self._heads[old.caller, key]

    def _forget_first(self, live: Live) -> None:
        same = self._first.get(live._first, [])
        if live in same:
            same.remove(live)
        if not same:
            self._first.pop(live._first, None)


def _alike(live: Live, taken: Intake, now: list[Any], count: int) -> bool:
    """Whether the last messages of the last request read the same as those in their place, which differ as JSON."""
    before = len(live.keys) - count
    if len(now) != count or count > LOOSE or before <= 0:
        return False
    key = live.keys[before - 1]
    for message in taken.dialect.parse(now).messages:
        key = roll(key, (message,))
    return key == live.keys[-1]


def _list(body: Mapping[str, Any]) -> list[Any]:
    """The messages of a body of any dialect, as they came."""
    found = body.get("messages", body.get("input"))
    return found if isinstance(found, list) else []


def _beginning(body: Mapping[str, Any], name: str) -> bytes:
    """What a conversation is looked up by at first: its name, or its first message that is no system message."""
    if name:
        return name.encode()
    for message in _list(body):
        if not (isinstance(message, Mapping) and message.get("role") in ("system", "developer")):
            return encode(message)[:4096]
    return b""


def _same(said: Sequence[Message], at: int) -> bool:
    """Whether a known prefix that ends at `at` makes two histories one conversation.

    Many begin alike: with the same greeting, the same task. They are one when they share something that an
    assistant said, or when an assistant has since answered what they share.
    """
    if any(message.role == "assistant" for message in said[: at + 1]):
        return True
    return at + 1 < len(said) and said[at + 1].role == "assistant"
