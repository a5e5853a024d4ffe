"""What a store is: an append-only log of messages and what became of them, told apart by caller and conversation.

A message stands in a conversation under a rolling key: the hash of all that a model reads up to and including it
(`forgetless.units.roll`). The same start has the same keys, so a conversation is a tree whose branches share what
they have in common, and each message is kept once. System messages at the start of a request stay out of the
keys, because clients change them (a clock, a list of files) while the conversation goes on; a request names those
that it came with. Wire JSON is kept once a conversation by the hash of its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

__all__ = ["Conversation", "Exchange", "Node", "Place", "Row", "Store", "Summary"]

Row: TypeAlias = Sequence[Any]
"""A ledger entry as JSON: unit, messages, form, pinned, score, reason, tokens before, tokens after."""


class Node(NamedTuple):
    """One message in its place in a conversation.

    Attributes:
        key: rolling key, 16 bytes.
        parent: the key before it; empty at the start.
        role: as its dialect has it.
        tokens: of the message.
        wire: its JSON as bytes; None where contents are off.
    """

    key: bytes
    parent: bytes
    role: str
    tokens: int
    wire: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A request and what came back, as one record: it is written whole or not at all.

    Attributes:
        id: of the request, unique in the store.
        caller: hash of the caller's credential.
        conversation: id, unique for the caller.
        at: seconds since the epoch.
        dialect: wire format of the messages.
        model: the model asked for.
        policy: that acted, as it was named.
        scorer: version of the weights that it scored with, empty where none.
        outcome: what the proxy did, such as `compacted`, `unchanged`, `floor`, `fault`, `shadow`.
        status: of the reply; 0 when none came.
        budget: tokens allowed for the whole request; 0 when none was known.
        tokens_before: of the request as it came.
        tokens_after: of the request as it went (as it would have gone, in shadow).
        reused_tokens: of its exact prefix that the request before it had.
        input_tokens: as the provider counted, None when it did not say.
        cached_tokens: of these, read from the provider's cache.
        output_tokens: of the reply.
        asked: key of the last message of the request itself; clients may resend the reply in other words.
        head: key of the last message, the reply included where one came.
        system: wire JSON of the system messages that the request began with.
        nodes: the messages that the store may not know yet, parents first.
        base: id of the request whose ledger this one goes on from, or empty.
        kept: how many rows of that ledger stand unchanged at the start of this one.
        rows: the ledger from there on.
        state: what a session needs to go on from `asked` (`Session.dump`), only when it has changed.
    """

    id: str
    caller: str
    conversation: str
    at: float
    dialect: str
    model: str = ""
    policy: str = ""
    scorer: str = ""
    outcome: str = "unchanged"
    status: int = 200
    budget: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    reused_tokens: int = 0
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    asked: bytes = b""
    head: bytes = b""
    system: tuple[bytes, ...] = ()
    nodes: tuple[Node, ...] = ()
    base: str = ""
    kept: int = 0
    rows: tuple[Row, ...] = ()
    state: bytes | None = None


class Place(NamedTuple):
    """Where a list of keys was found: the conversation, and the place in the list of the last known key."""

    conversation: str
    at: int


@dataclass(frozen=True, slots=True)
class Summary:
    """One conversation in a list.

    Attributes:
        caller: hash of the credential.
        conversation: its id.
        created: seconds since the epoch.
        updated: the same, of its last request.
        dialect: wire format.
        model: of its last request.
        policy: of its last request.
        messages: kept, all branches together.
        requests: made.
        tokens_before: of all its requests as they came.
        tokens_after: of all its requests as they went.
    """

    caller: str
    conversation: str
    created: float
    updated: float
    dialect: str
    model: str
    policy: str
    messages: int
    requests: int
    tokens_before: int
    tokens_after: int


@dataclass(frozen=True, slots=True)
class Conversation:
    """One branch of a conversation, from its first message to a head that no other message follows.

    Attributes:
        summary: of the whole conversation.
        system: wire JSON of the system messages of the last request on this branch.
        nodes: its messages in order.
        exchanges: the requests on this branch, oldest first, without nodes and rows.
    """

    summary: Summary
    system: tuple[bytes, ...]
    nodes: tuple[Node, ...]
    exchanges: tuple[Exchange, ...]


class Store(Protocol):
    """A store. Every method may be called from any thread; each raises `StoreError` when the store can't be reached.

    All but `conversations`, `branches` and `purge` with no caller see one caller's data only.
    """

    salt: bytes
    """Secret of this store, 16 bytes: keys and callers are hashed with it, so that a copy of the store tells no
    secret by guessing. The same for every process that opens the store."""

    def write(self, exchanges: Sequence[Exchange]) -> None:
        """Keep all of them in one transaction. One that is there already is left as it is.

        Raises:
            StoreError: one goes on from a message or a ledger that is not there, and none of them is kept.
        """

    def locate(self, caller: str, keys: Sequence[bytes]) -> Place | None:
        """The last of `keys` that one of the caller's conversations has; the one updated last where several do."""

    def state(self, caller: str, conversation: str, keys: Sequence[bytes]) -> bytes | None:
        """The state that was written last at the longest of the prefixes `keys`."""

    def request(self, caller: str, request: str) -> Exchange | None:
        """A request with its whole ledger in `rows` (`base` empty, `kept` 0) and no `nodes`."""

    def conversations(self, caller: str | None = None) -> list[Summary]:
        """Every conversation, the one updated last first."""

    def branches(self, caller: str, conversation: str) -> Iterator[Conversation]:
        """The branches of a conversation, the newest first; none when it is not known."""

    def pins(self, caller: str, conversation: str) -> frozenset[bytes]:
        """Keys of the messages that the caller has pinned."""

    def pin(self, caller: str, conversation: str, key: bytes, *, on: bool = True) -> None:
        """Pin a message, or take the pin away."""

    def memory(self, caller: str, conversation: str, keys: Sequence[bytes]) -> tuple[int, str] | None:
        """The memory that was kept at the last of `keys` that has one, with the index of that key."""

    def remember(self, caller: str, conversation: str, key: bytes, memory: str) -> None:
        """Keep an agent's memory as it was after the message `key`; a later one at the same key replaces it.

        A memory is contents: where these are off it is not kept.
        """

    def purge(self, *, caller: str | None = None, conversation: str | None = None, before: float | None = None) -> int:
        """Remove conversations with all that belongs to them, and say how many.

        Args:
            caller: only this caller's.
            conversation: only the one with this id.
            before: only those not updated since, in seconds since the epoch.
        """

    def check(self) -> list[str]:
        """What is wrong inside, empty when all is well.

        Nodes without their parents or contents, requests without their head or base, the database's own check.
        """

    def tidy(self) -> bool:
        """Do a piece of what can wait until nobody waits; says whether there may be more of it to do.

        Whoever writes much calls it after a write, as long as nobody else wants to write.
        """

    def close(self) -> None:
        """Let go of files and connections."""
