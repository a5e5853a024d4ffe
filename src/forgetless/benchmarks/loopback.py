"""Servers of a benchmark, each a process of its own on a free port of loopback: started, watched, killed."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from forgetless.errors import ConfigError

__all__ = ["Server", "forgetless", "listener", "serve"]

HOST = "127.0.0.1"
START = 120.0
"""Seconds that a server has to start."""


def listener() -> socket.socket:
    """A socket on a free port, made as one for TCP: asyncio leaves Nagle's delay of 40 ms on with any other."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.bind((HOST, 0))
    return made


def serve(app: Any) -> None:
    """Serve an app until the process ends, with the very settings of `forgetless serve`, and say where."""
    import uvicorn

    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=75,  # a benchmark that pauses is not to measure a new connection
        limit_concurrency=10_000,
    )
    with listener() as socket_:
        print(f"http://{HOST}:{socket_.getsockname()[1]}", file=sys.stderr, flush=True)
        uvicorn.Server(config).run(sockets=[socket_])


class Server:
    """A process that serves.

    Attributes:
        address: its base address, without a slash at the end.
    """

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str] | None = None, address: str | None = None
    ) -> None:
        """Start a command and wait until it takes connections.

        Args:
            command: prints its address on stderr, or is given one.
            env: variables to set.
            address: where it will be found.

        Raises:
            ConfigError: it ended, or took too long.
        """
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop; a pipe that nobody reads would fill up
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self._said, stderr=self._said, env={**os.environ, **(env or {})}
        )
        end = time.monotonic() + START
        while True:
            found = address or self._told()
            if found and _open(found):
                self.address = found
                return
            if self._process.poll() is not None or time.monotonic() > end:
                said = self._words().strip().split("\n")[-1]
                self.stop()
                raise ConfigError(f"{Path(command[0]).name!r} did not start to serve: {said or 'it said nothing'}")
            time.sleep(0.02)

    def _words(self) -> str:
        self._said.seek(0)
        return self._said.read().decode("utf-8", "replace")

    def _told(self) -> str:
        found = re.search(rf"http://{re.escape(HOST)}:\d+", self._words())
        return found[0] if found else ""

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def rss(self) -> int | None:
        """Bytes of memory in use; None where the system does not say."""
        try:
            return int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError):
            return None

    @property
    def cpu(self) -> float | None:
        """Seconds of processor time so far; None where the system does not say."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        """End it as `kill -9` does."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """End it in order, and in any case."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()
        self._said.close()


def forgetless(upstream: str, store: Path, *, budget: int) -> Server:
    """`forgetless serve` with the default policy and an SQLite store in a file."""
    code = "from forgetless.cli.main import run; run()"
    options = {"upstream": upstream, "store": str(store), "budget": str(budget), "port": "0"}
    flags = [part for name, value in options.items() for part in (f"--{name}", value)]
    return Server([sys.executable, "-c", code, "serve", *flags])


def _open(address: str) -> bool:
    host, _, port = address.removeprefix("http://").partition(":")
    try:
        socket.create_connection((host, int(port)), 1).close()
    except OSError:
        return False
    return True
