"""Stores to test: each kind, empty, closed when its test ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from forgetless.stores.base import Store
from forgetless.stores.open import open_store
from postgres_server import PostgresServer, running

Make: TypeAlias = Callable[..., Store]


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server that runs; a test that stops it starts it again."""
    with running() as server:
        yield server


POSTGRES = (pytest.param("postgres", marks=pytest.mark.postgres), pytest.param("packed", marks=pytest.mark.postgres))


@pytest.fixture(params=["memory", "sqlite", *POSTGRES])
def spec(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a user calls an empty store, of each kind; `memory` and `packed` take the shortest record in one piece."""
    if request.param in ("memory", "packed"):
        monkeypatch.setattr("forgetless.stores.inbox.LEAST", 1)
    if request.param in ("postgres", "packed"):
        server: PostgresServer = request.getfixturevalue("postgres")
        return server.database()
    return {"memory": "memory", "sqlite": f"sqlite:{tmp_path / 'store.db'}"}[request.param]


@pytest.fixture
def make(spec: str) -> Iterator[Make]:
    """Opens the store, as often as it is called: the same data each time, but for memory."""
    opened: list[Store] = []

    def open_one(*, contents: bool = True) -> Store:
        opened.append(open_store(spec, contents=contents))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(make: Make) -> Store:
    """An empty store of each kind."""
    return make()
