"""A store in an SQLite file: one machine, any number of processes."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from forgetless.errors import StoreError
from forgetless.stores.links import WAIT, Link, Links
from forgetless.stores.schema import INBOX, TABLES
from forgetless.stores.sql import SqlStore

__all__ = ["MIGRATIONS", "Sqlite"]

MIGRATIONS: Final = tuple(
    tables.format(serial="INTEGER PRIMARY KEY", bytes="BLOB", float="REAL") for tables in (TABLES, INBOX)
)

OURS: Final = 0x46474C53
"""What the file's header says it is (`FGLS`), so that another program's database is left alone."""

TIDY_BYTES: Final = 4 * 2**20
"""Bytes of the log above which `tidy` has something to do."""

MOST_PAGES: Final = 25_000
"""Pages of the log (100 MiB) at which SQLite tidies by itself, where nobody calls `tidy`."""


class Sqlite(SqlStore):
    """Keeps conversations in a file that only its owner may read.

    Args:
        path: of the file; it is made where it is not there, and so is its folder.
        contents: whether messages, states and memories are kept.

    Raises:
        StoreError: the file can't be written, is no store, or is from a newer forgetless.
    """

    WRITE = "BEGIN IMMEDIATE"  # a transaction that began to read could not be sure to get to write

    def __init__(self, path: str | Path, *, contents: bool = True) -> None:
        self._path = str(path)
        alone = self._path == ":memory:"  # a second connection would have a memory of its own
        links = Links(
            self._path,
            self._connect,
            error=sqlite3.Error,
            most=1 if alone else 8,
            writers=1,  # SQLite takes one at a time; the others wait better here than there
        )
        super().__init__(links, contents=contents)

    def _connect(self) -> Link:
        if self._path != ":memory:":
            _make(Path(self._path))
        raw = sqlite3.connect(self._path, timeout=WAIT, isolation_level=None, check_same_thread=False)
        link = Link(raw)
        try:
            link.do("BEGIN")  # another process may be at work on the tables between the two
            ((kind,),) = link.rows("PRAGMA application_id")
            others = kind != OURS and link.rows("SELECT 1 FROM sqlite_master LIMIT 1")
            link.do("COMMIT")
            if others:
                raise StoreError(f"{self._path!r} is the database of another program: name another file")
            link.do("PRAGMA foreign_keys = ON")
            link.do("PRAGMA synchronous = NORMAL")
            link.do(f"PRAGMA wal_autocheckpoint = {MOST_PAGES}")
            link.do("PRAGMA secure_delete = ON")  # what is purged is not left readable in free pages
            if kind != OURS:
                link.do("PRAGMA auto_vacuum = INCREMENTAL")
            _log_ahead(link)
        except BaseException:
            raw.close()
            raise
        return link

    def _migrate(self, db: Link) -> None:
        ((version,),) = db.rows("PRAGMA user_version")
        if version > len(MIGRATIONS):
            raise StoreError(
                f"{self._path!r} is from a newer forgetless (version {version} of its tables, this one knows "
                f"{len(MIGRATIONS)}): upgrade forgetless"
            )
        for migration in MIGRATIONS[version:]:
            for statement in migration.split(";"):
                db.do(statement)
        db.do(f"PRAGMA user_version = {len(MIGRATIONS)}")
        db.do(f"PRAGMA application_id = {OURS}")

    def check(self) -> list[str]:
        """See `Store`. A file in which not even that can be looked up is a fault too."""
        try:
            return super().check()
        except StoreError as error:
            code = getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF
            if code not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise
            return [str(error)]

    def _sick(self, db: Link) -> list[str]:
        found = [str(text) for (text,) in db.rows("PRAGMA integrity_check") if text != "ok"]
        return found + [
            f"a row of {row[0]!r} has lost what it refers to" for row in db.rows("PRAGMA foreign_key_check")
        ]

    def tidy(self) -> bool:
        """See `Store`. Here it also takes what the log holds into the file, which else the next writer does."""
        if super().tidy():
            return True
        with suppress(FileNotFoundError):
            if os.stat(f"{self._path}-wal").st_size > TIDY_BYTES:
                self._links.run("", lambda db: db.rows("PRAGMA wal_checkpoint(PASSIVE)"))
        return False

    def _shrink(self) -> None:
        def work(db: Link) -> None:
            left = -1
            while (free := db.rows("PRAGMA freelist_count")[0][0]) not in (0, left):
                db.rows("PRAGMA incremental_vacuum(1000)")  # a piece at a time, so that writers get their turn
                left = free
            db.rows("PRAGMA wal_checkpoint(TRUNCATE)")  # what was purged still stands in the log

        self._links.run("", work, write=True)


def _make(path: Path) -> None:
    """Make a file for its owner alone, and its folders. SQLite gives the files beside it the same mode."""
    try:
        for folder in reversed(path.absolute().parents):
            if not folder.exists():
                folder.mkdir(mode=0o700, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise StoreError(f"{str(path)!r} cannot be written: {error.strerror}") from error


def _log_ahead(link: Link) -> None:
    """Switch to the write-ahead log, for which SQLite itself does not wait when another process has just done so."""
    end = time.monotonic() + WAIT
    while link.rows("PRAGMA journal_mode") not in ([("wal",)], [("memory",)]):
        try:
            link.rows("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)
