"""A real PostgreSQL server in a folder of its own, that tests start and stop as they like."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

__all__ = ["PostgresServer", "running"]


@contextmanager
def running() -> Iterator[PostgresServer]:
    """A server for a fixture; where none is installed its tests are skipped, but in CI they fail."""
    folder = _binaries()
    if folder is None:
        told = "no PostgreSQL server is installed: apt-get install -y postgresql"
        if os.environ.get("CI") == "true":
            pytest.fail(told)
        pytest.skip(told)
    with closing(PostgresServer(folder)) as server:
        server.start()
        yield server


def _binaries() -> Path | None:
    """The folder with `initdb` and `postgres`, or None: Debian keeps them off the PATH."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    versions = [p.parent for p in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    return max(versions, key=lambda p: int(p.parent.name), default=None)


class PostgresServer:
    """Listens on a loopback port that stays the same over `stop` and `start`; trusts everyone who gets there.

    `initdb` and `postgres` refuse to run as root, so root runs them as `postgres` or `nobody`.
    """

    def __init__(self, bin_folder: Path) -> None:
        self._bin = bin_folder
        self._folder = Path(tempfile.mkdtemp(prefix="forgetless-postgres-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._as: dict[str, Any] = {"env": {**os.environ, "LC_ALL": "C"}, "cwd": self._folder}
        if os.geteuid() == 0:
            import pwd

            names = {entry.pw_name: entry for entry in pwd.getpwall()}
            user = names.get("postgres") or names["nobody"]
            os.chown(self._folder, user.pw_uid, user.pw_gid)
            self._as |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        command = [self._bin / "initdb", "-D", self._folder / "data", "-U", "forgetless", "-A", "trust", "--no-sync"]
        done = subprocess.run([*command, "-E", "UTF8"], capture_output=True, text=True, check=False, **self._as)
        if done.returncode:
            raise RuntimeError(f"initdb failed: {done.stderr}")
        self._databases = 0
        self._frozen: list[int] = []

    def url(self, database: str = "postgres") -> str:
        """The address of a database."""
        return f"postgresql://forgetless@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        import psycopg

        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": "",
            "fsync": "off",
            "shared_buffers": "16MB",
            "max_connections": 200,
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        command = [self._bin / "postgres", "-D", self._folder / "data", *options]
        log = self._folder / "log"
        with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666), "wb") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out, **self._as)
        end = time.monotonic() + 30
        while True:
            try:
                psycopg.connect(self.url(), connect_timeout=2).close()
                return
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > end:
                    self.stop()
                    raise RuntimeError(f"postgres did not start: {log.read_text()}") from None
                time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGINT breaks connections off in order, SIGQUIT as a crash would."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(30)
            self._process = None

    def freeze(self, on: bool = True) -> None:
        """Stop every process of the server from answering, as a machine that has hung, or let them go on."""
        import psycopg

        assert self._process is not None
        if on:
            with psycopg.connect(self.url()) as connection:
                self._frozen = [pid for (pid,) in connection.execute("SELECT pid FROM pg_stat_activity").fetchall()]
                self._frozen = [pid for pid in self._frozen if pid != connection.info.backend_pid]
            self._frozen.append(self._process.pid)
        for pid in self._frozen:
            os.kill(pid, signal.SIGSTOP if on else signal.SIGCONT)

    def database(self) -> str:
        """Make an empty database; its address."""
        import psycopg

        self._databases += 1
        name = f"test_{self._databases}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.url(name)

    def close(self) -> None:
        """Stop it and remove its folder."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self._folder)
