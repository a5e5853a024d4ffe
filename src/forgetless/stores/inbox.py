"""Long histories on their way into the tables: kept whole as one record at once, taken apart when nobody waits.

To write a thousand messages each in its place takes ten times as long as to write them in one piece, and whoever
sees a long conversation for the first time waits for it. Only a record that leans on nothing is taken in here, so
that taking it apart later can't fail.
"""

from __future__ import annotations

from typing import Final

import msgspec

from forgetless.stores import queries
from forgetless.stores.base import Exchange
from forgetless.stores.links import Link

__all__ = ["accept", "packed", "unpack", "waits"]

LEAST: Final = 64
"""Messages of a record that is worth it."""


def packed(exchange: Exchange) -> bytes | None:
    """A record in one piece; None where it is short, or no conversation from its first message to its head."""
    nodes = exchange.nodes
    if len(nodes) < LEAST or exchange.base or exchange.kept or exchange.head != nodes[-1].key:
        return None
    before = b""
    for node in nodes:
        if node.parent != before:
            return None
        before = node.key
    try:
        return msgspec.msgpack.encode(exchange)
    except (UnicodeEncodeError, OverflowError):  # a client's odd name or number, which has to be made to fit
        return None


def accept(db: Link, record: bytes) -> None:
    """Keep a packed record."""
    db.do("INSERT INTO inbox (record) VALUES (?)", record)


def waits(db: Link) -> bool:
    """Whether there is something to take apart."""
    return bool(db.rows("SELECT 1 FROM inbox LIMIT 1"))


def unpack(db: Link, salt: bytes) -> None:
    """Write what was accepted to where it belongs, in the order in which it came."""
    while found := db.rows("SELECT n, record FROM inbox ORDER BY n LIMIT 1"):
        ((number, record),) = found
        queries.write(db, [msgspec.msgpack.decode(record, type=Exchange)], salt, contents=True)
        db.do("DELETE FROM inbox WHERE n = ?", number)
