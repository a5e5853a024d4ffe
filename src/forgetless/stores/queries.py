"""What is asked of the tables, in SQL that SQLite and PostgreSQL both understand."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

from forgetless.stores.base import Conversation, Exchange, Node, Place, Summary
from forgetless.stores.links import Link
from forgetless.stores.rows import FIELDS, Batch, Stored, exchange_of, hashes, leaves, ledger

__all__ = [
    "at_last",
    "branch",
    "ends",
    "faults",
    "forget",
    "locate",
    "number_of",
    "request",
    "summaries",
    "write",
    "write_nodes",
]

REQUEST: Final = "id, head, system, " + ", ".join(FIELDS)

PATH: Final = """WITH RECURSIVE path (key, parent, depth) AS (
  SELECT key, parent, 0 FROM nodes WHERE conversation = ? AND key = ?
  UNION ALL
  SELECT nodes.key, nodes.parent, depth + 1 FROM path JOIN nodes ON conversation = ? AND nodes.key = path.parent
) """

CHAIN: Final = """WITH RECURSIVE chain (id, conversation, base, kept, needed, depth) AS (
  SELECT id, conversation, base, kept, length, 0 FROM requests WHERE id = ? AND caller = ?
  UNION ALL
  SELECT r.id, r.conversation, r.base, r.kept, CASE WHEN c.needed < c.kept THEN c.needed ELSE c.kept END, depth + 1
  FROM chain c JOIN requests r ON r.conversation = c.conversation AND r.id = c.base WHERE c.kept > 0 AND c.needed > 0
) SELECT chain.kept, needed, r.rows FROM chain JOIN requests r ON r.conversation = chain.conversation
  AND r.id = chain.id WHERE needed > chain.kept ORDER BY depth DESC"""

SUMMARIES: Final = """SELECT c.caller, c.name, c.created, c.updated, coalesce(r.dialect, ''), coalesce(r.model, ''),
  coalesce(r.policy, ''), (SELECT count(*) FROM nodes WHERE conversation = c.id), c.requests, c.before, c.after
FROM (
  SELECT c.id, c.caller, c.name, c.created, c.updated, count(r.n) AS requests,
    CAST(coalesce(sum(r.tokens_before), 0) AS BIGINT) AS before,
    CAST(coalesce(sum(r.tokens_after), 0) AS BIGINT) AS after,
    (SELECT n FROM requests WHERE conversation = c.id ORDER BY at DESC, n DESC LIMIT 1) AS newest
  FROM conversations c LEFT JOIN requests r ON r.conversation = c.id {where} GROUP BY c.id
) c LEFT JOIN requests r ON r.n = c.newest ORDER BY c.updated DESC, c.id DESC"""

FAULTS: Final = (
    (
        "message {} has no parent",
        "SELECT n.key FROM nodes n LEFT JOIN nodes p ON p.conversation = n.conversation AND p.key = n.parent "
        "WHERE n.parent IS NOT NULL AND p.key IS NULL",
    ),
    (
        "message {} has no content",
        "SELECT n.key FROM nodes n LEFT JOIN contents c ON c.conversation = n.conversation AND c.hash = n.content "
        "WHERE n.content IS NOT NULL AND c.hash IS NULL",
    ),
    (
        "request {} has no head",
        "SELECT r.id FROM requests r LEFT JOIN nodes n ON n.conversation = r.conversation AND n.key = r.head "
        "WHERE r.head IS NOT NULL AND n.key IS NULL",
    ),
    (
        "request {} keeps more of a ledger than its base has",
        "SELECT r.id FROM requests r LEFT JOIN requests b ON b.conversation = r.conversation AND b.id = r.base "
        "WHERE r.kept > coalesce(b.length, 0) OR (r.base IS NOT NULL AND b.id IS NULL)",
    ),
)


def write(db: Link, exchanges: Sequence[Exchange], salt: bytes, contents: bool) -> None:
    """Write what of `exchanges` is not there yet."""
    named = {(ident, e.caller) for e in exchanges for ident in (e.id, e.base) if ident}
    found = db.among(
        "SELECT caller, id, conversation, length FROM wanted CROSS JOIN requests WHERE id = a AND caller = b", named
    )
    stored = {(caller, ident): Stored(*rest) for caller, ident, *rest in found}
    fresh: dict[tuple[str, str], Exchange] = {}
    for exchange in exchanges:
        if (exchange.caller, exchange.id) not in stored:
            fresh.setdefault((exchange.caller, exchange.id), exchange)
    old = _named(db, fresh.values())  # one that is new knows nothing, and need not be asked
    numbers = _seen(db, fresh.values())
    wanted = {
        (old[e.caller, e.conversation], key)
        for e in fresh.values()
        if (e.caller, e.conversation) in old
        for key in (e.head, *(key for node in e.nodes for key in (node.key, node.parent)))
        if key
    }
    known = db.among("SELECT conversation, key FROM wanted CROSS JOIN nodes WHERE conversation = a AND key = b", wanted)
    batch = Batch(salt, contents, {(number, key) for number, key in known}, stored)
    for exchange in fresh.values():
        batch.add(exchange, numbers[exchange.caller, exchange.conversation])
    _insert(db, batch)


def write_nodes(db: Link, exchange: Exchange, nodes: Sequence[Node], salt: bytes) -> None:
    """Write some messages of an exchange that is written whole later; what stands before them is there."""
    number = _seen(db, [exchange])[exchange.caller, exchange.conversation]
    batch = Batch(salt, True, {(number, nodes[0].parent)}, {})
    for node in nodes:
        batch.node(exchange, number, node)
    _insert(db, batch)


def _seen(db: Link, exchanges: Iterable[Exchange]) -> dict[tuple[str, str], int]:
    """The numbers of conversations, after taking note of when each was seen.

    In sorted order, so that two writers who wait for one another's rows never do so crosswise.
    """
    db.each(
        "INSERT INTO conversations (caller, name, created, updated) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (caller, name) DO UPDATE SET "
        "created = CASE WHEN excluded.created < conversations.created THEN excluded.created "
        "ELSE conversations.created END, "
        "updated = CASE WHEN excluded.updated > conversations.updated THEN excluded.updated "
        "ELSE conversations.updated END",
        sorted((e.caller, e.conversation, e.at, e.at) for e in exchanges),
    )
    return _named(db, exchanges)


def _named(db: Link, exchanges: Iterable[Exchange]) -> dict[tuple[str, str], int]:
    """The numbers of those conversations that there are."""
    named = {(e.caller, e.conversation) for e in exchanges}
    found = db.among(
        "SELECT caller, name, id FROM wanted CROSS JOIN conversations WHERE caller = a AND name = b", named
    )
    return {(caller, name): number for caller, name, number in found}


def _insert(db: Link, batch: Batch) -> None:
    db.each(
        "INSERT INTO contents (conversation, hash, wire) VALUES (?, ?, ?) ON CONFLICT (conversation, hash) "
        "DO UPDATE SET wire = excluded.wire WHERE contents.wire IS NULL AND excluded.wire IS NOT NULL",
        batch.contents,
    )
    db.each(
        "INSERT INTO nodes (conversation, caller, key, parent, role, tokens, content) VALUES (?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT DO NOTHING",
        batch.nodes,
    )
    names = ("conversation", "caller", "id", *FIELDS, "head", "system", "base", "kept", "length", "rows")
    marks = ", ".join("?" * len(names))
    db.each(f"INSERT INTO requests ({', '.join(names)}) VALUES ({marks}) ON CONFLICT DO NOTHING", batch.requests)
    db.each(
        "INSERT INTO states (conversation, key, state) VALUES (?, ?, ?) "
        "ON CONFLICT (conversation, key) DO UPDATE SET state = excluded.state",
        batch.states,
    )


def number_of(db: Link, caller: str, conversation: str, *, begin: bool = False) -> int | None:
    """The number of a conversation, which begins here where it is new and may; else None."""
    if begin:
        sql = "INSERT INTO conversations (caller, name, created, updated) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
        now = time.time()
        db.do(sql, caller, conversation, now, now)
    found = db.rows("SELECT id FROM conversations WHERE caller = ? AND name = ?", caller, conversation)
    return int(found[0][0]) if found else None


def locate(db: Link, caller: str, keys: Sequence[bytes]) -> Place | None:
    """As the store's."""
    at = _last(db, "SELECT key FROM wanted CROSS JOIN nodes WHERE key = a AND caller = ?", keys, caller)
    if at is None:
        return None
    ((name,),) = db.rows(
        "SELECT name FROM nodes JOIN conversations c ON c.id = conversation WHERE nodes.caller = ? AND key = ? "
        "ORDER BY updated DESC, c.id DESC LIMIT 1",
        *(caller, keys[at]),
    )
    return Place(name, at)


def at_last(
    db: Link, *, table: str, column: str, caller: str, conversation: str, keys: Sequence[bytes]
) -> tuple[int, bytes] | None:
    """What a table has at the last of `keys` that it knows, with the place of that key."""
    number = number_of(db, caller, conversation)
    at = _last(db, f"SELECT key FROM wanted CROSS JOIN {table} WHERE key = a AND conversation = ?", keys, number)
    if at is None:
        return None
    ((value,),) = db.rows(f"SELECT {column} FROM {table} WHERE conversation = ? AND key = ?", number, keys[at])
    return at, value


def _last(db: Link, sql: str, keys: Sequence[bytes], value: object) -> int | None:
    """The place of the last of `keys` that a query finds; asks for the newest first."""
    for end in range(len(keys), 0, -256):
        start = max(0, end - 256)
        found = {key for (key,) in db.among(sql, [(key,) for key in keys[start:end]], value)}
        if found:
            return next(at for at in range(end - 1, start - 1, -1) if keys[at] in found)
    return None


def request(db: Link, caller: str, ident: str) -> Exchange | None:
    """A request with its whole ledger."""
    sql = f"SELECT conversation, {REQUEST} FROM requests WHERE id = ? AND caller = ?"
    for number, *row in db.rows(sql, ident, caller):
        ((name,),) = db.rows("SELECT name FROM conversations WHERE id = ?", number)
        rows = ledger((kept, needed, own) for kept, needed, own in db.rows(CHAIN, ident, caller))
        return exchange_of(caller, name, row, _wires(db, number, [row[2]]), rows)
    return None


def summaries(db: Link, where: str = "", *values: Any) -> list[Summary]:
    """Conversations, the one updated last first, of those that `where` holds for."""
    return [Summary(*row) for row in db.rows(SUMMARIES.format(where=where), *values)]


def ends(db: Link, caller: str, conversation: str) -> tuple[Summary, int, list[bytes | None]] | None:
    """A conversation, its number, and the last key of each of its branches."""
    number = number_of(db, caller, conversation)
    if number is None:
        return None
    (summary,) = summaries(db, "WHERE c.id = ?", number)
    nodes = db.rows("SELECT key, parent FROM nodes WHERE conversation = ? ORDER BY n", number)
    requests = db.rows("SELECT head, at, n FROM requests WHERE conversation = ?", number)
    return summary, number, leaves(((k, p) for k, p in nodes), ((h, at, n) for h, at, n in requests))


def branch(summary: Summary, number: int, end: bytes | None, db: Link) -> Conversation:
    """The branch of a conversation that stops at the key `end`."""
    nodes = db.rows(
        f"{PATH}SELECT n.key, n.parent, n.role, n.tokens, c.wire FROM path JOIN nodes n ON n.conversation = ? "
        "AND n.key = path.key LEFT JOIN contents c ON c.conversation = n.conversation AND c.hash = n.content "
        "ORDER BY depth DESC",
        *(number, end, number, number),
    )
    requests = db.rows(
        f"{PATH}SELECT {REQUEST} FROM requests WHERE conversation = ? "
        "AND (head IS NULL OR head IN (SELECT key FROM path)) ORDER BY at, n",
        *(number, end, number, number),
    )
    wires = _wires(db, number, {row[2] for row in requests})
    exchanges = tuple(exchange_of(summary.caller, summary.conversation, row, wires) for row in requests)
    return Conversation(
        summary,
        exchanges[-1].system if exchanges else (),
        tuple(Node(key, parent or b"", role, tokens, wire) for key, parent, role, tokens, wire in nodes),
        exchanges,
    )


def _wires(db: Link, number: int, systems: Iterable[bytes]) -> dict[bytes, bytes]:
    """Wire JSON of system messages by hash."""
    sql = "SELECT hash, wire FROM wanted CROSS JOIN contents WHERE hash = a AND conversation = ? AND wire IS NOT NULL"
    return dict(db.among(sql, {(one,) for system in systems for one in hashes(system)}, number))


def forget(where: str, values: Sequence[Any], number: int, db: Link) -> int:
    """Remove a conversation with all that belongs to it, where the condition still holds."""
    return db.do(f"DELETE FROM conversations WHERE {where} AND id = ?", *values, number)


def faults(db: Link) -> list[str]:
    """What hangs in the air."""
    found: list[str] = []
    for text, sql in FAULTS:
        found += [text.format(repr(one if isinstance(one, str) else one.hex())) for (one,) in db.rows(sql)]
    for (number,) in db.rows("SELECT id FROM conversations"):
        wanted = db.rows("SELECT DISTINCT system FROM requests WHERE conversation = ?", number)
        there = {named for (named,) in db.rows("SELECT hash FROM contents WHERE conversation = ?", number)}
        gone = {one for (system,) in wanted for one in hashes(system)} - there
        found += [f"system message {one.hex()!r} has no content" for one in sorted(gone)]
    return found
