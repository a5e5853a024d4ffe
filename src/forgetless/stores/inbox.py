"""Long histories on their way into the tables: kept whole as one record at once, taken apart when nobody waits.

To write a thousand messages each in its place takes ten times as long as to write them in one piece, and whoever
sees a long conversation for the first time waits for it. Only a record that leans on nothing is taken in here, so
that taking it apart later can't fail.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import msgspec

from forgetless.stores import queries
from forgetless.stores.base import Exchange
from forgetless.stores.links import Link

__all__ = ["accept", "packed", "piece", "unpack", "waits"]

LEAST: Final = 64
"""Messages of a record that is worth it."""

PIECE: Final = 100
"""Messages that are written at a time while others may want to write."""


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
    db.do("INSERT INTO inbox (done, record) VALUES (0, ?)", record)


def waits(db: Link) -> bool:
    """Whether there is something to take apart."""
    return bool(db.rows("SELECT 1 FROM inbox LIMIT 1"))


def unpack(db: Link, salt: bytes) -> None:
    """Write what was accepted to where it belongs, in the order in which it came."""
    while _next(db, salt, None):
        pass


def piece(db: Link, salt: bytes) -> bool:
    """A piece of that, which holds up others for milliseconds only; says whether there was anything to do."""
    return _next(db, salt, PIECE)


def _next(db: Link, salt: bytes, most: int | None) -> bool:
    found = db.rows("SELECT n, done, record FROM inbox ORDER BY n LIMIT 1")
    if not found:
        return False
    ((number, done, record),) = found
    exchange = msgspec.msgpack.decode(record, type=Exchange)
    nodes = exchange.nodes[done:]
    if most is not None and len(nodes) > most:
        queries.write_nodes(db, exchange, nodes[:most], salt)
        db.do("UPDATE inbox SET done = ? WHERE n = ?", done + most, number)
    else:
        queries.write(db, [replace(exchange, nodes=nodes)], salt, contents=True)
        db.do("DELETE FROM inbox WHERE n = ?", number)
    return True
