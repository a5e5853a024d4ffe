"""PostgreSQL: the server goes away and comes back, hangs, belongs to others too."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from exchanges import exchange, keys_of
from forgetless.errors import MissingExtra, StoreError
from postgres_server import PostgresServer

pytestmark = pytest.mark.postgres


@pytest.fixture
def server(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """The server, which runs again after the test."""
    yield postgres
    postgres.stop()
    postgres.start()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
def test_it_fails_while_the_server_is_away_and_works_when_it_is_back(
    server: PostgresServer, how: signal.Signals
) -> None:
    from forgetless.stores.postgres import Postgres

    with closing(Postgres(server.database())) as store:
        store.write([exchange("r1", ["a"])])
        server.stop(how)
        for _ in range(3):
            begun = time.monotonic()
            with pytest.raises(StoreError, match=r"127\.0\.0\.1"):
                store.write([exchange("r2", ["a", "b"])])
            assert time.monotonic() - begun < 3
        server.start()
        store.write([exchange("r2", ["a", "b"])])
        assert store.locate("ann", keys_of(["a", "b"])) == ("c1", 1)
        server.stop(how)
        server.start()
        assert store.request("ann", "r2") is not None, "a restart between two calls is not seen"
        assert store.check() == []


def test_it_gives_up_on_a_server_that_hangs(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    from forgetless.stores import postgres

    with closing(postgres.Postgres(server.database())) as store:
        store.write([exchange("r1", ["a"])])
        monkeypatch.setattr(postgres, "GRACE", 0.2)
        monkeypatch.setattr(postgres, "PATIENCE", 0)
        server.freeze()
        try:
            begun = time.monotonic()
            with pytest.raises(StoreError, match="timeout"):
                store.pins("ann", "c1")
            assert time.monotonic() - begun < 5
        finally:
            server.freeze(False)
        monkeypatch.undo()
        assert store.request("ann", "r1") is not None


def test_other_tables_in_the_database_are_left_alone(postgres: PostgresServer) -> None:
    import psycopg

    from forgetless.stores.postgres import MIGRATIONS, Postgres

    url = postgres.database()
    with psycopg.connect(url) as raw:
        raw.execute("CREATE TABLE nodes (mine text)")
        raw.execute("CREATE TABLE version (mine text)")
    with closing(Postgres(url)) as store:
        store.write([exchange("r1", ["a"])])
    with psycopg.connect(url) as raw:
        assert raw.execute("SELECT count(*) FROM public.nodes").fetchone() == (0,)
        raw.execute(f"UPDATE forgetless.version SET version = {len(MIGRATIONS) + 1}".encode())
    with pytest.raises(StoreError, match="newer forgetless"):
        Postgres(url)


def test_no_password_stands_in_an_error(postgres: PostgresServer) -> None:
    from forgetless.stores.postgres import Postgres

    for url in (
        f"postgresql://nobody:hunter2@127.0.0.1:{postgres.port}/none",
        "postgresql://a:hunter2@127.0.0.1:1/none",
        "postgresql://a:hunter2%zz@127.0.0.1/none",
        "postgresql://a:hunter2@127.0.0.1:port/none",
    ):
        with pytest.raises(StoreError) as caught:
            Postgres(url)
        assert "hunter2" not in str(caught.value)


def test_a_missing_driver_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "forgetless.stores.postgres", raising=False)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=r"forgetless\[postgres\]"):
        import forgetless.stores.postgres  # noqa: F401
