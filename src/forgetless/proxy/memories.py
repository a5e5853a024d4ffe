"""Memories that models write for themselves (CCM): found for a request, taken out of its reply, kept.

A memory is kept under the reply that it came with: a key that rolls over the whole history before the reply and over
what was said and called in it, but not over how a client spells that. A request goes on from the memory of the last of
its replies that has one, so an edited or a branched history never sees another branch's; what was said since then is
sent as it is. A reply without a memory that can be read is one that the memory does not know of.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, ClassVar, NamedTuple

from forgetless.errors import BudgetError, RequestError, StoreError
from forgetless.intake import Intake
from forgetless.messages import Call, Message, Part, Text
from forgetless.policies.base import Context, Policy
from forgetless.policies.ccm.policy import NEW, Ccm
from forgetless.policies.truncate import truncate
from forgetless.proxy.bodies import decode, encode
from forgetless.proxy.conversations import Live, leading
from forgetless.proxy.metrics import Metrics
from forgetless.proxy.screens.anthropic import AnthropicScreen
from forgetless.proxy.screens.base import Make, Screen
from forgetless.proxy.screens.chat import ChatScreen
from forgetless.proxy.screens.responses import ResponsesScreen
from forgetless.proxy.upstream import Answer
from forgetless.replies.base import Completion
from forgetless.replies.sse import Events
from forgetless.stores.base import Store
from forgetless.units import Unit, roll

__all__ = ["Memories", "Remembering", "Screened", "after", "spoken"]

log = logging.getLogger("forgetless.proxy")

MOST = 2_000
"""Memories in this process, for stores that keep none."""

LEAST = 256
"""Most tokens of a reply below which no memory is asked for, since none would fit: clients ask so for titles."""

NEWEST = 8
"""Replies at the end of a history that are looked up first; nearly always one of them has a memory."""

MARKS = 4
"""Most marks for a cache that Anthropic takes."""

_SCREENS: Mapping[str, Callable[[Make], Screen]] = {
    "chat": ChatScreen,
    "responses": ResponsesScreen,
    "anthropic": AnthropicScreen,
}


class Spot(NamedTuple):
    """A reply in a history: the place of its last message among the keys, and what its memory is kept under."""

    at: int
    key: bytes


@dataclass(frozen=True)
class Remembering:
    """A rewriter as the policy of one request, with the memory that the request goes on from.

    Attributes:
        rewriter: what makes the prompt.
        memory: empty where there is none.
        since: index of the first unit that the memory does not know of.
        shortens: whether what must stay is cut inside where it does not fit.
        own: tokens that the prompt needs beside messages: what is kept for standing instructions leaves them room.
    """

    rewriter: Ccm
    memory: str
    since: int
    shortens: bool = False
    own: int = 0
    lazy: ClassVar[bool] = False

    def __call__(self, units: Sequence[Unit], budget: int, query: Unit | None = None) -> Context:
        """The prompt; `query` is not used."""
        try:
            return self.rewriter.prompt(units, self.memory, budget, since=self.since)
        except BudgetError as error:
            stays = self.rewriter.stays(units)
            room = budget - error.floor + sum(units[index].tokens for index in stays)
            if not self.shortens or room <= 0:
                raise
        shorter = truncate(units, stays, room, self.rewriter.counter)
        context = self.rewriter.prompt([shorter.get(u.index, u) for u in units], self.memory, budget, since=self.since)
        ledger = (
            replace(entry, form="compressed", reason="truncated", tokens_before=units[entry.unit].tokens)
            if entry.unit in shorter
            else entry
            for entry in context.ledger
        )
        return replace(context, ledger=tuple(ledger))


class Memories:
    """The memories of all conversations. Not thread-safe: the event loop's thread is the one that calls it."""

    def __init__(self, rewriter: Ccm, store: Store, metrics: Metrics, *, shortens: bool = False) -> None:
        """Begin with those that the store has."""
        self.rewriter, self.metrics = rewriter, metrics
        self._store, self._shortens = store, shortens
        self._here: OrderedDict[tuple[str, str, bytes], str] = OrderedDict()

    async def before(self, live: Live, body: Any) -> None:
        """Have a conversation's next request go on from the memory that belongs to it."""
        live.session.take(body)
        taken = live.update()
        if 0 < taken.parsed.reply_tokens < LEAST:
            live.policy = None
            return
        spots = _spots(taken.parsed.messages, live)
        found = await self._found(live, list(islice(spots, NEWEST))) or await self._found(live, list(spots))
        known, memory = found or (-1, "")
        index = taken.parsed.start + leading(taken.parsed.messages) + known
        dialect = taken.dialect.name
        if dialect == "anthropic" and _marks([body.get("tools"), body.get("system")]) >= MARKS:
            dialect = ""
        since = 0 if known < 0 else _since(taken, index)
        rewriter = replace(self.rewriter, counter=taken.counter, dialect=dialect)
        live.policy = Remembering(rewriter, memory, since, self._shortens, rewriter.own(taken.units, memory))

    async def keep(self, live: Live, key: bytes, memory: str) -> None:
        """Keep a memory under a reply; where the store is away, in this process alone."""
        place = (live.caller, live.id, key)
        self._here[place] = memory
        self._here.move_to_end(place)
        if len(self._here) > MOST:
            self._here.popitem(last=False)
        try:
            await asyncio.to_thread(self._store.remember, *place, memory)
        except StoreError as error:
            self.metrics.faults.labels("store").inc()
            log.warning("a memory is not in the store", extra={"data": {"error": str(error)}})

    async def _found(self, live: Live, spots: Sequence[Spot]) -> tuple[int, str] | None:
        """The memory of the first of these replies that has one, with the place of the reply's last message."""
        places = [(live.caller, live.id, spot.key) for spot in spots]
        here = next((at for at, place in enumerate(places) if place in self._here), len(spots))
        with suppress(StoreError):  # what is newer than the newest one here may have been kept by another process
            keys = [spot.key for spot in reversed(spots[:here])]
            kept = await asyncio.to_thread(self._store.memory, live.caller, live.id, keys) if keys else None
            if kept is not None:
                return spots[len(keys) - 1 - kept[0]].at, kept[1]
        return (spots[here].at, self._here[places[here]]) if here < len(spots) else None


class Screened:
    """One reply on its way to the client, and the memory in it."""

    def __init__(self, memories: Memories, dialect: str, policy: Policy | None) -> None:
        """Begin a reply to a request that went on from a memory; None where the provider holds the history."""
        self._memories, self._policy = memories, policy
        self._screen: Screen = _SCREENS[dialect](memories.rewriter.template.taker)

    def whole(self, reply: bytes) -> bytes:
        """A reply's body as the client sees it."""
        try:
            body = decode(reply)
        except (ValueError, RecursionError):
            return reply
        made = self._screen.whole(body) if isinstance(body, dict) else body
        return reply if made is body else encode(made)

    async def chunks(self, answer: Answer) -> AsyncGenerator[bytes, None]:
        """The stream that the client sees."""
        events = Events()
        async for chunk in answer.chunks:
            if out := b"".join(map(self._screen.feed, events.feed(chunk))):
                yield out
        if out := b"".join(map(self._screen.feed, events.rest())) + self._screen.end():
            yield out

    async def keep(self, live: Live, taken: Intake, asked: bytes, completion: Completion) -> None:
        """Keep the memory that came with a reply.

        Args:
            live: the conversation.
            taken: the request.
            asked: key of its last message.
            completion: the reply as the client saw it.
        """
        if not isinstance(self._policy, Remembering):
            return
        self._screen.end()  # of a stream that broke off; nobody hears it any more
        memory, outcome = self._policy.rewriter.update(self._screen.takers, self._policy.memory)
        self._memories.metrics.memories.labels(outcome).inc()
        if outcome in NEW:
            with suppress(RequestError):  # a reply that no request could hold
                said = taken.dialect.parse(list(completion.messages)).messages
                await self._memories.keep(live, after(asked, said), memory)


def after(key: bytes, reply: Sequence[Message]) -> bytes:
    """What a memory is kept under: the key of what came before a reply, rolled over what was said and called in it.

    Clients leave out thoughts, strip texts and spell arguments anew.
    """
    parts = tuple(part for message in reply for part in map(_plain, message.parts) if part is not None)
    return roll(key + b"memory", (Message("assistant", parts),))


def spoken(request: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """A request without the replies of which nothing is left but a role; the same object where there is none.

    Clients send back what they got: of a reply that was nothing but memory, one without content, which is refused.
    """
    messages = request.get(key)
    if not isinstance(messages, list):
        return request
    left = [message for message in messages if not _silent(message)]
    return request if len(left) == len(messages) else {**request, key: left}


def _silent(message: Any) -> bool:
    """Whether an assistant says and does nothing in a message."""
    if not isinstance(message, Mapping) or message.get("role") != "assistant":
        return False
    return not any(value for name, value in message.items() if name != "role")


def _plain(part: Part) -> Part | None:
    match part:
        case Text(text=text):
            return Text(text.strip()) if text.strip() else None
        case Call(id=ident, name=name, arguments=str(arguments)):
            with suppress(ValueError, RecursionError):
                given = json.loads(arguments)
                return Call(ident, name, json.dumps(given, sort_keys=True))
            return part
        case Call(id=ident, name=name, arguments=arguments):
            return Call(ident, name, json.dumps(arguments, sort_keys=True))
        case _:
            return None


def _spots(messages: Sequence[Message], live: Live) -> Iterator[Spot]:
    """The replies in a history, the newest first."""
    said = messages[leading(messages) :]
    start = len(said)
    while start:
        end = start
        while start and said[start - 1].role == "assistant":
            start -= 1
        if start < end:
            yield Spot(end - 1, after(live.keys[start - 1] if start else live.root, said[start:end]))
        else:
            start -= 1


def _since(taken: Intake, index: int) -> int:
    """Index of the first unit with a message behind the one at `index`."""
    return next((unit.index for unit in taken.units if unit.at[-1][0] > index), len(taken.units))


def _marks(value: Any) -> int:
    """How many blocks are marked for a cache."""
    if isinstance(value, dict):
        return ("cache_control" in value) + sum(map(_marks, value.values()))
    return sum(map(_marks, value)) if isinstance(value, list) else 0
