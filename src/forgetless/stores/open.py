"""Stores by what users call them: a file, a database's address, `memory`, `none`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from forgetless.errors import ConfigError
from forgetless.stores.base import Store

__all__ = ["default_file", "file_of", "open_store"]

FORMS = "sqlite (the file in your data directory), a path or sqlite:PATH, postgresql://…, memory, none"


def default_file() -> Path:
    """The store in the user's data directory."""
    home = Path.home()
    if sys.platform == "win32":
        folder = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        folder = home / "Library" / "Application Support"
    else:
        folder = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    return folder / "forgetless" / "forgetless.db"


def file_of(spec: str | None) -> Path | None:
    """The file that a store is kept in; None for one that is in no file.

    Raises:
        ConfigError: it is no form that is known.
    """
    if spec is None or spec == "sqlite":
        return default_file()
    if spec in ("memory", "none") or spec.startswith(("postgresql://", "postgres://")):
        return None
    path = spec.removeprefix("sqlite:")
    if not path or path.startswith("//") or "://" in path or "\0" in path:
        raise ConfigError(f"there is no store {_shown(spec)!r}: it is one of {FORMS}")
    if path == spec and not {"/", os.sep, "."} & set(path):  # `memmory` is no file that anyone means
        raise ConfigError(f"there is no store {spec!r}: it is one of {FORMS}; a file of that name is './{spec}'")
    return Path(path).expanduser()


def _shown(spec: str) -> str:
    """An address as an error may show it: what stands between its scheme and its host may be a password."""
    scheme, slashes, rest = spec.partition("://")
    return f"{scheme}{slashes}…@{rest.rpartition('@')[2]}" if slashes and "@" in rest else spec


def open_store(spec: str | None = None, *, contents: bool = True) -> Store:
    """Open a store.

    Args:
        spec: None or `sqlite` for the file in the user's data directory, a path or `sqlite:PATH` for another, the
            address of a PostgreSQL database, `memory`, or `none` to keep nothing.
        contents: whether messages, states and memories are kept; else decisions and numbers only.

    Raises:
        ConfigError: it is no form that is known.
        StoreError: it can't be opened.
        MissingExtra: what it needs is not installed.
    """
    path = file_of(spec)
    if path is not None:
        from forgetless.stores.sqlite import Sqlite

        return Sqlite(path, contents=contents)
    if spec == "memory":
        from forgetless.stores.inmemory import InMemory

        return InMemory(contents=contents)
    if spec == "none":
        from forgetless.stores.nothing import Nothing

        return Nothing()
    from forgetless.stores.postgres import Postgres

    return Postgres(str(spec), contents=contents)
