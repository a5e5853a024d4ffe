"""A store in PostgreSQL: any number of machines on one database."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any, Final

from forgetless.errors import MissingExtra, StoreError
from forgetless.stores.links import Link, Links
from forgetless.stores.schema import INBOX, TABLES
from forgetless.stores.sql import SqlStore

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
except ImportError as error:
    raise MissingExtra("postgres", "psycopg") from error

__all__ = ["MIGRATIONS", "Postgres"]

MIGRATIONS: Final = tuple(
    tables.format(serial="BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", bytes="BYTEA", float="DOUBLE PRECISION")
    for tables in (TABLES, INBOX)
)

CONNECT: Final = 2
"""Seconds to wait for a connection; libpq allows no fewer."""

PATIENCE: Final = 10
"""Seconds to wait for the answer to a statement."""

GRACE: Final = 2.0
"""Seconds more until we give up on a server that has not kept to that itself."""

SETTINGS: Final = f"""SET search_path TO forgetless; SET statement_timeout TO '{PATIENCE}s';
SET idle_in_transaction_session_timeout TO '{3 * PATIENCE}s'"""

ALONE: Final = 0x46474C53
"""The lock that is held while tables are brought up to date."""


class Postgres(SqlStore):
    """Keeps conversations in the schema `forgetless` of a PostgreSQL database.

    When the server has gone away each call is a `StoreError`; when it is back they work again.

    Args:
        url: postgresql://user:password@host:port/database
        contents: whether messages, states and memories are kept.

    Raises:
        StoreError: the server can't be reached, or the tables are from a newer forgetless.
    """

    READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

    def __init__(self, url: str, *, contents: bool = True) -> None:
        try:
            given = conninfo_to_dict(url)
            self._url = make_conninfo(url, **({"connect_timeout": CONNECT} | given))
        except psycopg.ProgrammingError:  # what it says may hold the password
            raise StoreError("that is no address of a PostgreSQL database: postgresql://user@host:5432/name") from None
        name = f"postgresql://{given.get('host', 'localhost')}:{given.get('port', 5432)}/{given.get('dbname', '')}"
        links = Links(name, self._connect, error=psycopg.Error, lost=_lost)
        super().__init__(links, contents=contents)

    def _connect(self) -> Link:
        raw = _Patient.connect(self._url, autocommit=True)
        try:
            raw.execute(SETTINGS)
        except BaseException:
            raw.close()
            raise
        return Link(raw, "%s")

    def _migrate(self, db: Link) -> None:
        db.rows("SELECT pg_advisory_xact_lock(?)", ALONE)
        if db.rows("SELECT to_regclass('forgetless.version')") == [(None,)]:
            db.raw.execute("CREATE SCHEMA IF NOT EXISTS forgetless; CREATE TABLE version AS SELECT 0 AS version")
        ((version,),) = db.rows("SELECT version FROM version")
        if version > len(MIGRATIONS):
            raise StoreError(
                f"{self._links.name!r} is from a newer forgetless (version {version} of its tables, this one knows "
                f"{len(MIGRATIONS)}): upgrade forgetless"
            )
        for migration in MIGRATIONS[version:]:
            db.raw.execute(migration)
        db.do("UPDATE version SET version = ?", len(MIGRATIONS))


class _Patient(psycopg.Connection[Any]):
    """A connection that gives up on a server that has frozen, which libpq would wait for without end."""

    def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        """Run a generator of the driver's to its end, or for as long as our patience lasts."""
        return super().wait(self._until(gen, time.monotonic() + PATIENCE + GRACE), *args, **options)

    def _until(self, gen: Any, end: float) -> Generator[Any, Any, Any]:
        try:
            ready = yield next(gen)
            while True:
                if time.monotonic() > end:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"no answer in {PATIENCE + GRACE:.0f} seconds")
                ready = yield gen.send(ready)
        except StopIteration as done:
            return done.value


def _lost(link: Link, error: Exception) -> bool:
    """Whether the server has closed the connection, or is about to."""
    return bool(link.raw.closed) or str(getattr(error, "sqlstate", None) or "").startswith("57P")
