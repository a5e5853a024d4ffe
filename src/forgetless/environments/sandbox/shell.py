"""Commands in a sandbox: one by one, or in a shell that keeps its folder, variables and functions between them."""

from __future__ import annotations

import secrets
import shlex
import time
from dataclasses import dataclass

from forgetless.environments.sandbox.base import Entry, Sandbox
from forgetless.environments.sandbox.pipes import Pipes

__all__ = ["EXIT", "TIME", "Outcome", "Shell", "once"]

TIME, EXIT = "time", "exit"

WIDEST = 4
"""Bytes of the longest character."""

GRACE = 5.0
"""Seconds in which a program that was ended must be gone."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command led to.

    Attributes:
        output: of both streams, cut at the limit.
        code: its exit code; None where it was ended.
        ended: why everything was ended: `time`, or a limit of the sandbox; `exit` where the shell ended itself.
        seconds: that it took.
    """

    output: str
    code: int | None
    ended: str = ""
    seconds: float = 0.0


def once(sandbox: Sandbox, argv: tuple[str, ...], *, text: bytes = b"", seconds: float, root: bool = False) -> Outcome:
    """Run a program and wait for it; everything in the sandbox is ended where it takes too long.

    Args:
        sandbox: where it runs.
        argv: the program.
        text: what it reads.
        seconds: most that it may take.
        root: as root instead of the task's user.
    """
    return run(sandbox, sandbox.entry(argv, root=root), text, seconds)


def run(sandbox: Sandbox, entry: Entry, text: bytes, seconds: float) -> Outcome:
    """The same for an entry."""
    began = time.monotonic()
    pipes = Pipes(entry, sandbox.limits.output * WIDEST, merged=True)
    try:
        in_time = pipes.talk(text, lambda: pipes.sent, began + seconds)
        pipes.hang_up()
        in_time = in_time and pipes.talk(b"", lambda: False, began + seconds)
        if not in_time:
            sandbox.end()
            pipes.talk(b"", lambda: False, time.monotonic() + GRACE)
        ended = sandbox.passed() or ("" if in_time else TIME)
        return Outcome(_said(pipes, sandbox.limits.output), None if ended else pipes.code, ended, _since(began))
    finally:
        pipes.close()


class Shell:
    """A bash that lasts. Where it ends, or has to be ended, a new one begins in the folder where it stood."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._pipes: Pipes | None = None
        self.folder = ""

    def run(self, command: str, seconds: float) -> Outcome:
        """Run a command, which reads nothing.

        Args:
            command: any number of lines.
            seconds: after which everything in the sandbox is ended.
        """
        began = time.monotonic()
        mark = secrets.token_hex(8).encode()
        pipes = self._pipes = self._pipes or self._begun()
        pipes.clear()
        line = b'eval %s </dev/null 3>&-; builtin printf \'%%s %%s %%s\\0\' %s "$?" "$PWD" >&3\n' % (
            shlex.quote(command.replace("\0", "")).encode("utf-8", "replace"),
            mark,
        )
        in_time = pipes.talk(line, lambda: b"\0" in pipes.status.partition(mark)[2], began + seconds)
        _, found, told = pipes.status.partition(mark)
        if found and b"\0" in told:
            code, _, folder = told.partition(b"\0")[0].decode("utf-8", "replace").strip().partition(" ")
            self.folder = folder
            return Outcome(_said(pipes, self._sandbox.limits.output), int(code), "", _since(began))
        return self._lost(pipes, in_time, began)

    def close(self) -> None:
        """End it; the sandbox stays."""
        if self._pipes is not None:
            self._pipes.close()
            self._pipes = None

    def _lost(self, pipes: Pipes, in_time: bool, began: float) -> Outcome:
        """The shell has ended, or has to."""
        if not in_time:
            self._sandbox.end()
            pipes.talk(b"", lambda: False, time.monotonic() + GRACE)
        ended = self._sandbox.passed() or (EXIT if in_time else TIME)
        code = pipes.code if ended == EXIT else None
        output = _said(pipes, self._sandbox.limits.output)
        self.close()
        return Outcome(output, code, ended, _since(began))

    def _begun(self) -> Pipes:
        entry = self._sandbox.entry(("bash", "--noprofile", "--norc"))
        pipes = Pipes(entry, self._sandbox.limits.output * WIDEST)
        place = f"cd -- {shlex.quote(self.folder)} 2>&- || :\n" if self.folder else ""
        deadline = time.monotonic() + self._sandbox.limits.seconds
        pipes.talk(
            f"exec 3>&2 2>&1\n{place}builtin printf '\\0' >&3\n".encode(), lambda: b"\0" in pipes.status, deadline
        )
        return pipes


def _said(pipes: Pipes, most: int) -> str:
    text = pipes.output.decode("utf-8", "replace")
    if len(text) <= most and not pipes.dropped:
        return text
    total = len(pipes.output) + pipes.dropped
    return f"{text[:most]}\n[the output was cut at {most:,} characters; it had {total:,} bytes]"


def _since(began: float) -> float:
    return time.monotonic() - began
