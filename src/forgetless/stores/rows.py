"""Exchanges as rows of tables and back, and what of a batch is new."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec

from forgetless.errors import StoreError
from forgetless.stores.base import Exchange, Node, Row

__all__ = ["FIELDS", "HASH", "Batch", "Stored", "exchange_of", "hashes", "leaves", "ledger"]

HASH: Final = 16
"""Bytes of a hash and of a key."""

FIELDS: Final = (
    "at",
    "dialect",
    "model",
    "policy",
    "scorer",
    "outcome",
    "status",
    "budget",
    "tokens_before",
    "tokens_after",
    "reused_tokens",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
)
"""What a request's row has as the exchange does."""


class Stored(NamedTuple):
    """A request that is in the store: its conversation's number and the rows of its whole ledger."""

    conversation: int
    length: int


class Batch:
    """Rows to be written for a list of exchanges, each checked against what the store has and the batch brings.

    Args:
        salt: of the store.
        contents: whether messages and states are kept.
        known: nodes that the store has, by the conversation's number and key.
        stored: requests that the store has, by caller and id.
    """

    def __init__(
        self, salt: bytes, contents: bool, known: set[tuple[int, bytes]], stored: dict[tuple[str, str], Stored]
    ) -> None:
        self._salt = salt
        self._keep = contents
        self._known = known
        self._stored = stored
        self._contents: dict[tuple[int, bytes], bytes | None] = {}
        self.nodes: list[tuple[Any, ...]] = []
        self.requests: list[tuple[Any, ...]] = []
        self.states: list[tuple[Any, ...]] = []

    @property
    def contents(self) -> list[tuple[int, bytes, bytes | None]]:
        """Conversation, hash and wire."""
        return [(*place, wire) for place, wire in self._contents.items()]

    def add(self, exchange: Exchange, conversation: int) -> None:
        """Take one exchange in.

        Raises:
            StoreError: it goes on from a message or a ledger that is not there.
        """
        for node in exchange.nodes:
            self.node(exchange, conversation, node)
        if exchange.head and (conversation, exchange.head) not in self._known:
            raise _missing(exchange, "its head", exchange.head.hex())
        length = exchange.kept + len(exchange.rows)
        if exchange.base or exchange.kept:
            base = self._stored.get((exchange.caller, exchange.base))
            if base is None or base.conversation != conversation or base.length < exchange.kept:
                raise _missing(exchange, f"the {exchange.kept} rows of ledger", exchange.base)
        self._stored[exchange.caller, exchange.id] = Stored(conversation, length)
        self.requests.append(
            (
                conversation,
                exchange.caller,
                exchange.id,
                *(getattr(exchange, name) for name in FIELDS),
                exchange.head or None,
                b"".join([self._content(conversation, wire) for wire in exchange.system]),
                exchange.base or None,
                exchange.kept,
                length,
                msgspec.json.encode(exchange.rows).decode(),
            )
        )
        if self._keep and exchange.state is not None:
            self.states.append((conversation, exchange.asked or exchange.head, exchange.state))

    def node(self, exchange: Exchange, conversation: int, node: Node) -> None:
        """Take one message of it in."""
        if (conversation, node.key) in self._known:
            return
        if node.parent and (conversation, node.parent) not in self._known:
            raise _missing(exchange, "a message's parent", node.parent.hex())
        self._known.add((conversation, node.key))
        content = None if node.wire is None else self._content(conversation, node.wire)
        parent = node.parent or None
        self.nodes.append((conversation, exchange.caller, node.key, parent, node.role, node.tokens, content))

    def _content(self, conversation: int, wire: bytes) -> bytes:
        named = blake2b(wire, digest_size=HASH, key=self._salt).digest()
        self._contents[conversation, named] = wire if self._keep else None
        return named


def _missing(exchange: Exchange, what: str, name: str) -> StoreError:
    return StoreError(
        f"request {exchange.id!r} goes on from what conversation {exchange.conversation!r} does not have: {what} "
        f"{name!r}; send the conversation whole (it may have been purged)"
    )


def exchange_of(
    caller: str, conversation: str, row: Sequence[Any], wires: Mapping[bytes, bytes], rows: tuple[Row, ...] = ()
) -> Exchange:
    """An exchange from its row.

    Args:
        caller: hash of the credential.
        conversation: its id.
        row: id, head, system and `FIELDS`.
        wires: of system messages by hash; one that is not there is left out.
        rows: its whole ledger.
    """
    ident, head, system, *fields = row
    return Exchange(
        id=ident,
        caller=caller,
        conversation=conversation,
        head=head or b"",
        system=tuple(wires[one] for one in hashes(system) if one in wires),
        rows=rows,
        **dict(zip(FIELDS, fields, strict=True)),
    )


def hashes(system: bytes) -> list[bytes]:
    """The hashes that stand in the column `system`."""
    return [system[start : start + HASH] for start in range(0, len(system), HASH)]


def ledger(chain: Iterable[tuple[int, int, str]]) -> tuple[Row, ...]:
    """A whole ledger from a request and those it goes on from.

    Args:
        chain: oldest first, of each: how many rows before its own it kept, how many of the sum are needed, its own.
    """
    found: list[Row] = []
    for kept, needed, own in chain:
        found += msgspec.json.decode(own, type=list[list[Any]])[: needed - kept]
    return tuple(found)


def leaves(
    nodes: Iterable[tuple[bytes, bytes | None]], requests: Iterable[tuple[bytes | None, float, int]]
) -> list[bytes | None]:
    """Keys that no node follows, the one whose branch had the newest request first.

    None stands for the start, where there are requests without messages alone.

    Args:
        nodes: key and parent, parents first.
        requests: head, time and number.
    """
    never = (float("-inf"), 0)
    newest: dict[bytes | None, tuple[float, int]] = {}
    for head, at, number in requests:
        newest[head] = max(newest.get(head, never), (at, number))
    ends: dict[bytes | None, int] = {None: 0} if None in newest else {}
    for place, (key, parent) in enumerate(nodes, 1):
        newest[key] = max(newest.get(key, never), newest.get(parent, never))
        ends.pop(parent, None)
        ends[key] = place
    return sorted(ends, key=lambda end: (newest[end], ends[end]), reverse=True)
