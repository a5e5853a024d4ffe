"""What a sandbox is: a place apart from the host in which programs of a task run, within limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

__all__ = ["MEMORY", "PROCESSES", "Entry", "Limits", "Sandbox"]

MEMORY, PROCESSES = "memory", "processes"
"""Limits for which everything in a sandbox is ended."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a sandbox may take of the host.

    Attributes:
        seconds: of one command.
        memory: bytes of all processes together.
        processes: most at a time.
        disk: bytes that may be written, and kept.
        output: most characters of a command's output that are kept.
        life: seconds after which a sandbox is gone, whoever still holds it.
    """

    seconds: float = 30.0
    memory: int = 2 << 30
    processes: int = 256
    disk: int = 2 << 30
    output: int = 50_000
    life: float = 900.0


@dataclass(frozen=True, slots=True)
class Entry:
    """How a program of the host starts one in a sandbox.

    Attributes:
        argv: the host's program; what runs in the sandbox is appended.
        keep: file descriptors that it needs.
        env: of the host's program; what runs in the sandbox gets nothing of it.
    """

    argv: tuple[str, ...]
    keep: tuple[int, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


class Sandbox(Protocol):
    """A sandbox with the environment of a task, ready for commands.

    Attributes:
        kind: `docker` or `namespaces`.
        limits: of it.
        pytest: the command in it that runs tests.
        missed: what of the Dockerfile was not carried out, and why.
    """

    kind: str
    limits: Limits
    pytest: tuple[str, ...]
    missed: list[str]

    def entry(self, argv: tuple[str, ...], *, root: bool = False) -> Entry:
        """How to run a program as the task's user, in its folder.

        Args:
            argv: the program, looked up in the sandbox.
            root: as the sandbox's root instead.
        """

    def end(self) -> None:
        """End everything that runs; what has been written stays."""

    def passed(self) -> str:
        """The limit for which everything was ended since this was last asked; empty where none was."""

    def close(self) -> None:
        """Leave nothing behind."""
