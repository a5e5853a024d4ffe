"""The pipes of a program that is not trusted: read and written until a deadline, and never more kept than wanted."""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from typing import IO

from forgetless.environments.sandbox.base import Entry

__all__ = ["Pipes"]

TICK = 0.05
"""Seconds between two looks at whether the program has ended: others may hold its pipes open for longer."""

PIECE = 1 << 16
STATUS = 1 << 16
"""Most bytes of the second stream."""


class Pipes:
    """A program and what it says.

    Attributes:
        output: the beginning of what it wrote to stdout.
        dropped: bytes of that which were not kept.
        status: what it wrote to stderr.
    """

    def __init__(self, entry: Entry, most: int, *, merged: bool = False) -> None:
        """Start it.

        Args:
            entry: the program.
            most: bytes of output to keep.
            merged: whether stderr goes where stdout goes.
        """
        self._program = subprocess.Popen(
            entry.argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merged else subprocess.PIPE,
            pass_fds=entry.keep,
            env=entry.env,
        )
        self._most = most
        self.output, self.status, self.dropped = bytearray(), bytearray(), 0
        self._unsent = memoryview(b"")
        self._selector = selectors.DefaultSelector()
        for stream in (self._program.stdout, self._program.stderr):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)
                self._selector.register(stream, selectors.EVENT_READ)
        os.set_blocking(_open(self._program.stdin).fileno(), False)

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._program.poll()

    @property
    def sent(self) -> bool:
        """Whether all that was written to it has reached it."""
        return not self._unsent

    def clear(self) -> None:
        """Forget what it has said."""
        self.output, self.status, self.dropped = bytearray(), bytearray(), 0

    def talk(self, text: bytes, until: Callable[[], bool], deadline: float) -> bool:
        """Write to it, and read until something has been said or it has ended; False where the deadline came first."""
        self._unsent = memoryview(text)
        if text:
            self._selector.register(_open(self._program.stdin), selectors.EVENT_WRITE)
        while not until():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            ended = self.code is not None
            if not self._once(min(left, TICK)) and ended:
                return True
        self._once(0.0)
        return True

    def hang_up(self) -> None:
        """Tell it that nothing more will come."""
        if self._unsent:
            self._selector.unregister(_open(self._program.stdin))
            self._unsent = memoryview(b"")
        _open(self._program.stdin).close()

    def close(self) -> None:
        """End it, and what is left of it on this side."""
        self._program.kill()
        self._program.wait()
        self._selector.close()
        for stream in (self._program.stdin, self._program.stdout, self._program.stderr):
            if stream is not None:
                _closed(stream)

    def _once(self, wait: float) -> bool:
        """Read and write what can be now; whether anything was."""
        busy = False
        for key, _ in self._selector.select(wait):
            moved = self._write() if key.fileobj is self._program.stdin else self._read(key)
            busy = busy or moved
        return busy

    def _write(self) -> bool:
        stdin = _open(self._program.stdin)
        try:
            self._unsent = self._unsent[os.write(stdin.fileno(), self._unsent[:PIECE]) :]
        except BlockingIOError:
            return False
        except BrokenPipeError:
            self._unsent = memoryview(b"")
        if not self._unsent:
            self._selector.unregister(stdin)
        return True

    def _read(self, key: selectors.SelectorKey) -> bool:
        try:
            piece = os.read(key.fd, PIECE)
        except BlockingIOError:
            return False
        if not piece:
            self._selector.unregister(key.fileobj)
        elif key.fileobj is self._program.stdout:
            kept = piece[: self._most - len(self.output)]
            self.output += kept
            self.dropped += len(piece) - len(kept)
        else:
            self.status += piece[: STATUS - len(self.status)]
        return bool(piece)


def _open(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


def _closed(stream: IO[bytes]) -> None:
    with suppress(BrokenPipeError):  # what it did not want to read
        stream.close()
