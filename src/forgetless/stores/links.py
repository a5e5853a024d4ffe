"""A few connections to one database, each lent to one thread at a time.

Neither a connection a thread (worker threads come and go) nor one for all (a reader would wait for the writer):
connections are opened when they are needed and kept for whoever comes next.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from itertools import chain
from threading import BoundedSemaphore, Lock
from typing import Any, Final, TypeVar

from forgetless.errors import StoreError

__all__ = ["WAIT", "Link", "Links", "fit"]

WAIT: Final = 5.0
"""Seconds to wait for a connection or for another writer."""

CHUNK: Final = 400
"""Most values in one list: older SQLite takes 999 in a statement."""

T = TypeVar("T")

_UNFIT = re.compile("[\0\ud800-\udfff]")


class Link:
    """One connection. `?` stands for a value, whatever the database calls it.

    Args:
        raw: the driver's connection, in autocommit mode.
        mark: what the driver calls `?`.
    """

    def __init__(self, raw: Any, mark: str = "?") -> None:
        self.raw = raw
        self._mark = mark

    def do(self, sql: str, *values: Any) -> int:
        """Run a statement; says how many rows it touched."""
        return int(self.raw.execute(self._spelt(sql), [*map(fit, values)]).rowcount)

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """What a query finds."""
        found: list[tuple[Any, ...]] = self.raw.execute(self._spelt(sql), [*map(fit, values)]).fetchall()
        return found

    def among(self, sql: str, wanted: Iterable[Sequence[Any]], *values: Any) -> list[tuple[Any, ...]]:
        """What a query finds for a list of tuples, which it sees as a table `wanted` with columns a, b.

        It says `FROM wanted CROSS JOIN`, by which SQLite looks each of them up: of `IN` it makes a scan.
        """
        listed = list(wanted)
        found: list[tuple[Any, ...]] = []
        for start in range(0, len(listed), CHUNK):
            chunk = listed[start : start + CHUNK]
            marks = ",".join(["(" + ",".join("?" * len(chunk[0])) + ")"] * len(chunk))
            names = ", ".join("ab"[: len(chunk[0])])
            found += self.rows(f"WITH wanted ({names}) AS (VALUES {marks}) {sql}", *chain(*chunk), *values)
        return found

    def each(self, sql: str, many: Sequence[Sequence[Any]]) -> None:
        """Run a statement for each tuple of values."""
        if many:
            cursor = self.raw.cursor()
            cursor.executemany(self._spelt(sql), [[*map(fit, values)] for values in many])
            cursor.close()

    def _spelt(self, sql: str) -> str:
        return sql if self._mark == "?" else sql.replace("?", self._mark)


LEAST, MOST = -(2**63), 2**63 - 1
"""The integers that every database takes."""


def fit(value: Any) -> Any:
    """A value as every database takes it, so that a client's odd name can't keep a batch from being written."""
    kind = type(value)
    if kind is bytes:
        return value
    if kind is str and not (value.isascii() and "\0" not in value):
        return _UNFIT.sub("\ufffd", value)
    if kind is int and not LEAST <= value <= MOST:
        return LEAST if value < 0 else MOST
    return value


class Links:
    """The connections of one store.

    Args:
        name: of the database in errors; without passwords.
        connect: opens a connection.
        error: what the driver raises.
        lost: whether a connection is of no use after an error; where not given it always is of use.
        most: how many are open at once.
        writers: how many may write at once.
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[], Link],
        *,
        error: type[Exception],
        lost: Callable[[Link, Exception], bool] | None = None,
        most: int = 8,
        writers: int = 8,
    ) -> None:
        self.name = name
        self._connect = connect
        self._error = error
        self._lost = lost or (lambda *_: False)
        self._idle: deque[Link] = deque()
        self._slots = BoundedSemaphore(most)
        self._writing = Lock() if writers == 1 else nullcontext()
        self._closed = False

    def run(self, begin: str, work: Callable[[Link], T], *, write: bool = False) -> T:
        """Do `work` in a transaction, once more on a new connection where the old one turns out to be dead.

        Args:
            begin: the statement that begins the transaction; none where empty.
            work: is run again from its start on a second try.
            write: whether it writes.

        Raises:
            StoreError: the database can't be reached, or refuses.
        """
        with self._writing if write else nullcontext():
            if not self._slots.acquire(timeout=WAIT):
                raise StoreError(f"{self.name!r} is busy: no connection came free in {WAIT:.0f} seconds")
            try:
                return self._tried(begin, work)
            except self._error as error:
                raise StoreError(f"{self.name!r} failed: {' '.join(str(error).split())}") from error
            finally:
                self._slots.release()

    def _tried(self, begin: str, work: Callable[[Link], T]) -> T:
        if self._closed:
            raise StoreError(f"{self.name!r} is closed: open it anew")
        try:
            link = self._idle.pop()
        except IndexError:
            return self._transaction(self._connect(), begin, work)
        try:
            return self._transaction(link, begin, work)
        except self._error as error:
            if not self._lost(link, error):
                raise
        self._drop()  # the others died with it
        return self._transaction(self._connect(), begin, work)

    def _transaction(self, link: Link, begin: str, work: Callable[[Link], T]) -> T:
        lost = False
        try:
            if begin:
                link.do(begin)
            result = work(link)
            if begin:
                link.do("COMMIT")
            return result
        except self._error as error:
            lost = self._lost(link, error)
            raise
        finally:
            self._back(link, lost)

    def _back(self, link: Link, lost: bool) -> None:
        """Keep a connection for the next, with what it left open undone."""
        try:
            if not lost:
                link.raw.rollback()
        except self._error:
            lost = True
        if lost:
            link.raw.close()
            return
        self._idle.append(link)
        if self._closed:
            self._drop()

    def _drop(self) -> None:
        with suppress(IndexError):
            while True:
                self._idle.pop().raw.close()

    def close(self) -> None:
        """Close every connection, those in use when they are given back."""
        self._closed = True
        self._drop()
