"""Harbor tasks without Docker: each in a sandbox of Linux namespaces, as root, without network.

What a sandbox makes of a task's Dockerfile is in docs/environments.md: the host's system stands for the image, and
instructions that fetch programs are left out. So tmux, which the agents need, has to be installed on the host.
"""

from __future__ import annotations

import asyncio
import io
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from harbor.environments.base import BaseEnvironment, ExecResult, transfer_tar_filter
from harbor.environments.capabilities import EnvironmentCapabilities

from forgetless.environments.sandbox.base import Limits, Sandbox
from forgetless.environments.sandbox.load import open_sandbox
from forgetless.environments.sandbox.pipes import Pipes
from forgetless.errors import ConfigError

__all__ = ["LocalEnvironment"]

MIB = 1 << 20
MEMORY, DISK, PROCESSES = 2_048 * MIB, 4_096 * MIB, 512
"""Of a task that does not say."""

LIFE = 86_400.0
"""Seconds. Harbor has limits of its own, and ends an environment when they are passed."""

OUTPUT = 256 * MIB
"""Most bytes of what a program prints, a packed folder for one."""

GRACE = 10.0
"""Seconds between asking a program to end and not waiting for it any longer."""

SCRIPT = 'cd -- "$0" && said=$(cat) && exec </dev/null && eval "$said"'
"""Runs what it reads: an argument could be too long for the kernel."""


class _Done(NamedTuple):
    stdout: bytes
    stderr: bytes
    code: int


class LocalEnvironment(BaseEnvironment):  # type: ignore[misc]
    """A task's environment in a sandbox of namespaces."""

    _sandbox: Sandbox | None = None

    @staticmethod
    def type() -> str:
        """Of the environment."""
        return "forgetless-local"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """Nothing in it reaches the network."""
        return EnvironmentCapabilities(disable_internet=True)

    async def start(self, force_build: bool) -> None:
        """Make the sandbox.

        Raises:
            ConfigError: the machine can't have one, or the Dockerfile can't be followed.
        """
        memory, disk = self._effective_memory_mb, self._effective_storage_mb
        limits = Limits(
            memory=memory * MIB if memory else MEMORY,
            disk=disk * MIB if disk else DISK,
            processes=PROCESSES,
            life=LIFE,
        )
        self._sandbox = await asyncio.to_thread(open_sandbox, self.environment_dir, limits, "namespaces")
        for missed in self._sandbox.missed:
            self.logger.warning("not carried out of the Dockerfile: %s", missed)
        await self.ensure_dirs(self._mount_targets(writable_only=True))

    async def stop(self, delete: bool) -> None:
        """End it; nothing of it is left, whether or not that is asked for."""
        if self._sandbox is not None:
            await asyncio.to_thread(self._sandbox.close)
            self._sandbox = None

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a command in bash.

        Args:
            command: of one or more lines, which reads nothing.
            cwd: its folder, by default the one of the Dockerfile.
            env: its variables, beside those of the task.
            timeout_sec: after which it is ended, with code 124.
            user: by default the one of the Dockerfile.
        """
        wanted = self._resolve_user(user)
        argv = _as_user(wanted, (*_given(self._merge_env(env)), *_timed(timeout_sec), "bash", "-c", SCRIPT, cwd or "."))
        wait = LIFE if timeout_sec is None else timeout_sec + 2 * GRACE
        done = await asyncio.to_thread(self._run, argv, command.encode(), wait=wait, root=wanted is not None)
        stdout, stderr = (text.decode("utf-8", "replace") for text in done[:2])
        return ExecResult(stdout=stdout, stderr=stderr, return_code=done.code)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Copy a file into it."""
        path = PurePosixPath(target_path)
        packed = await asyncio.to_thread(_packed, Path(source_path), path.name)
        await self._unpacked(packed, str(path.parent))

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Copy what a folder holds into one of the sandbox."""
        await self._unpacked(await asyncio.to_thread(_packed, Path(source_dir), "."), target_dir)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Copy a file out of it."""
        done = await self._must(("cat", "--", source_path))
        Path(target_path).parent.mkdir(parents=True, exist_ok=True)
        Path(target_path).write_bytes(done.stdout)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copy what a folder of it holds; what is not trusted is not written outside the target."""
        done = await self._must(("tar", "-cf", "-", "-C", source_dir, "."))
        Path(target_dir).mkdir(parents=True, exist_ok=True)
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as packed:
            packed.extractall(target_dir, filter=transfer_tar_filter)

    def _validate_definition(self) -> None:
        if not (self.environment_dir / "Dockerfile").is_file():
            raise FileNotFoundError(f"{self.type()} needs a Dockerfile in {str(self.environment_dir)!r}")

    async def _unpacked(self, packed: bytes, target: str) -> None:
        script = 'mkdir -p -- "$0" && tar -xf - --no-same-owner -C "$0"'
        await self._must(("sh", "-c", script, target), packed)

    async def _must(self, argv: tuple[str, ...], text: bytes = b"") -> _Done:
        """Run a program as root.

        Raises:
            RuntimeError: it failed.
        """
        done = await asyncio.to_thread(self._run, argv, text, wait=LIFE, root=True)
        if done.code != 0:
            raise RuntimeError(f"{argv[0]} failed in the sandbox: {done.stderr.decode('utf-8', 'replace').strip()}")
        return done

    def _run(self, argv: tuple[str, ...], text: bytes, *, wait: float, root: bool) -> _Done:
        if self._sandbox is None:
            raise ConfigError("the environment has not been started, or it has ended")
        deadline = time.monotonic() + wait
        pipes = Pipes(self._sandbox.entry(argv, root=root), OUTPUT)
        try:
            pipes.talk(text, lambda: pipes.sent, deadline)
            pipes.hang_up()
            pipes.talk(b"", lambda: False, deadline)
            code = pipes.code
            return _Done(bytes(pipes.output), bytes(pipes.status), 124 if code is None else code)
        finally:
            pipes.close()


def _given(env: Mapping[str, str] | None) -> tuple[str, ...]:
    return ("env", *(f"{name}={value}" for name, value in (env or {}).items()))


def _timed(seconds: float | None) -> tuple[str, ...]:
    return () if seconds is None else ("timeout", "-k", f"{GRACE:g}", f"{seconds:g}")


def _as_user(user: str | int | None, argv: tuple[str, ...]) -> tuple[str, ...]:
    """A program of a user who is not the Dockerfile's; started as root."""
    if user is None or str(user) in ("root", "0"):
        return argv
    return ("setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--", *argv)


def _packed(source: Path, name: str) -> bytes:
    """A file or a folder as an archive, owned by root."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(source, arcname=name, filter=_owned)
    return packed.getvalue()


def _owned(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member
