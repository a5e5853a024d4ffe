"""A store in an SQL database."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar, TypeVar

from forgetless.errors import StoreError
from forgetless.stores import inbox, queries
from forgetless.stores.base import Conversation, Exchange, Place, Summary
from forgetless.stores.links import Link, Links, fit

__all__ = ["SqlStore"]

T = TypeVar("T")


class SqlStore:
    """What the SQL stores share. Each says how it connects, and brings its tables up to date.

    Args:
        links: connections to the database.
        contents: whether messages, states and memories are kept.

    Raises:
        StoreError: the database can't be opened.
    """

    READ: ClassVar[str] = "BEGIN"
    WRITE: ClassVar[str] = "BEGIN"

    def __init__(self, links: Links, *, contents: bool) -> None:
        self._links = links
        self._contents = contents
        try:
            self.salt: bytes = links.run(self.WRITE, self._opened, write=True)
        except BaseException:
            links.close()
            raise

    def _migrate(self, db: Link) -> None:
        raise NotImplementedError

    def _sick(self, db: Link) -> list[str]:
        """What the database's own check finds."""
        return []

    def _shrink(self) -> None:
        """Give back the room of what was purged."""

    def tidy(self) -> bool:
        """See `Store`. Here it takes apart what was accepted in one piece."""
        if not self._links.run("", inbox.waits):
            return False
        return self._links.run(self.WRITE, lambda db: inbox.piece(db, self.salt), write=True)

    def _read(self, work: Callable[[Link], T]) -> T:
        """Do `work` in a transaction that reads; it sees all that was written before."""
        done = self._links.run(self.READ, lambda db: None if inbox.waits(db) else (work(db),))
        if done is not None:
            return done[0]
        self._change(lambda _: None)
        return self._links.run(self.READ, work)

    def _change(self, work: Callable[[Link], T]) -> T:
        """The same in one that writes."""

        def whole(db: Link) -> T:
            inbox.unpack(db, self.salt)
            return work(db)

        return self._links.run(self.WRITE, whole, write=True)

    def _opened(self, db: Link) -> bytes:
        self._migrate(db)
        db.do("INSERT INTO settings (name, value) VALUES ('salt', ?) ON CONFLICT DO NOTHING", secrets.token_bytes(16))
        ((salt,),) = db.rows("SELECT value FROM settings WHERE name = 'salt'")
        return bytes(salt)

    def write(self, exchanges: Sequence[Exchange]) -> None:
        """See `Store`."""
        named = [_fitting(exchange) for exchange in exchanges]
        record = inbox.packed(named[0]) if self._contents and len(named) == 1 else None
        if record is not None:
            self._links.run(self.WRITE, lambda db: inbox.accept(db, record), write=True)
        elif named:
            work = partial(queries.write, exchanges=named, salt=self.salt, contents=self._contents)
            try:
                self._links.run(self.WRITE, work, write=True)
            except StoreError:  # it may lean on what is not yet taken apart
                if not self._links.run("", inbox.waits):
                    raise
                self._change(work)

    def locate(self, caller: str, keys: Sequence[bytes]) -> Place | None:
        """See `Store`."""
        return self._read(lambda db: queries.locate(db, caller, keys))

    def state(self, caller: str, conversation: str, keys: Sequence[bytes]) -> bytes | None:
        """See `Store`."""
        work = partial(queries.at_last, table="states", column="state")
        found = self._read(partial(work, caller=caller, conversation=conversation, keys=keys))
        return None if found is None else found[1]

    def memory(self, caller: str, conversation: str, keys: Sequence[bytes]) -> tuple[int, str] | None:
        """See `Store`."""
        work = partial(queries.at_last, table="memories", column="memory")
        found = self._read(partial(work, caller=caller, conversation=conversation, keys=keys))
        return None if found is None else (found[0], found[1].decode("utf-8", "surrogatepass"))

    def remember(self, caller: str, conversation: str, key: bytes, memory: str) -> None:
        """See `Store`. A memory is contents: where these are off it is not kept."""
        sql = (
            "INSERT INTO memories (conversation, key, memory) VALUES (?, ?, ?) "
            "ON CONFLICT (conversation, key) DO UPDATE SET memory = excluded.memory"
        )

        def work(db: Link) -> None:
            number = queries.number_of(db, caller, conversation, begin=True)
            db.do(sql, number, key, memory.encode("utf-8", "surrogatepass"))

        if self._contents:
            self._change(work)

    def request(self, caller: str, request: str) -> Exchange | None:
        """See `Store`."""
        return self._read(lambda db: queries.request(db, caller, request))

    def conversations(self, caller: str | None = None) -> list[Summary]:
        """See `Store`."""
        if caller is None:
            return self._read(queries.summaries)
        return self._read(lambda db: queries.summaries(db, "WHERE c.caller = ?", caller))

    def branches(self, caller: str, conversation: str) -> Iterator[Conversation]:
        """See `Store`. No connection is held between one branch and the next."""
        found = self._read(lambda db: queries.ends(db, caller, conversation))
        if found is not None:
            summary, number, ends = found
            for end in ends:
                yield self._read(partial(queries.branch, summary, number, end))

    def pins(self, caller: str, conversation: str) -> frozenset[bytes]:
        """See `Store`."""
        sql = "SELECT key FROM pins WHERE conversation = ?"
        work = lambda db: db.rows(sql, queries.number_of(db, caller, conversation))  # noqa: E731
        return frozenset(key for (key,) in self._read(work))

    def pin(self, caller: str, conversation: str, key: bytes, *, on: bool = True) -> None:
        """See `Store`."""

        def work(db: Link) -> None:
            number = queries.number_of(db, caller, conversation, begin=on)
            if on:
                db.do("INSERT INTO pins (conversation, key) VALUES (?, ?) ON CONFLICT DO NOTHING", number, key)
            else:
                db.do("DELETE FROM pins WHERE conversation = ? AND key = ?", number, key)

        self._change(work)

    def purge(self, *, caller: str | None = None, conversation: str | None = None, before: float | None = None) -> int:
        """See `Store`. Each conversation goes in a transaction of its own, so that writers need not wait for all."""
        asked = {"caller = ?": caller, "name = ?": conversation, "updated < ?": before}
        where = " AND ".join(sql for sql, value in asked.items() if value is not None) or "1 = 1"
        values = [value for value in asked.values() if value is not None]
        found = self._read(lambda db: db.rows(f"SELECT id FROM conversations WHERE {where}", *values))
        gone = 0
        for (number,) in found:
            gone += self._change(partial(queries.forget, where, values, number))
        if gone:
            self._shrink()
        return gone

    def check(self) -> list[str]:
        """See `Store`."""
        return self._read(lambda db: self._sick(db) or queries.faults(db))

    def close(self) -> None:
        """See `Store`."""
        self._links.close()


def _fitting(exchange: Exchange) -> Exchange:
    """The exchange with names as the database will have them."""
    names = {name: getattr(exchange, name) for name in ("id", "caller", "conversation", "base")}
    fitting = {name: fit(value) for name, value in names.items()}
    return exchange if fitting == names else replace(exchange, **fitting)
