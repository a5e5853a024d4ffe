"""A sandbox in a Docker container: an engine builds the task's Dockerfile and keeps the limits.

Disk is limited where the engine's storage driver can do that; the size of each file always is.
"""

from __future__ import annotations

import os
import secrets
import subprocess
from pathlib import Path

from forgetless.environments.sandbox.base import Entry, Limits
from forgetless.errors import ConfigError

__all__ = ["Docker", "engine"]

BUILD = 600.0
"""Seconds for building an image, which may download programs."""


def engine() -> bool:
    """Whether a Docker engine answers."""
    try:
        return _docker("version", "--format", "{{.Server.Version}}", seconds=20).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


class Docker:
    """A container of a task's image.

    Attributes:
        kind: `docker`.
        limits: of it.
        pytest: the command in it that runs tests; the image brings it.
        missed: nothing.
    """

    kind = "docker"
    pytest: tuple[str, ...] = ("python3", "-B", "-m", "pytest")

    def __init__(self, folder: Path, limits: Limits) -> None:
        """Build the image and start the container.

        Args:
            folder: holds the Dockerfile and what it copies.
            limits: of the sandbox.

        Raises:
            ConfigError: the image can't be built or started.
        """
        self.limits = limits
        self.missed: list[str] = []
        self._name = f"forgetless-{secrets.token_hex(6)}"
        _checked("build", "--quiet", "--tag", self._name, str(folder), seconds=BUILD)
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def entry(self, argv: tuple[str, ...], *, root: bool = False) -> Entry:
        """How to run a program as the image's user, in its folder."""
        user = ("--user", "0") if root else ()
        return Entry(("docker", "exec", "--interactive", *user, self._name, *argv), env=_env())

    def end(self) -> None:
        """End everything that runs: the container starts over, with its files."""
        _checked("restart", "--time", "0", self._name)

    def passed(self) -> str:
        """Empty: the engine's limits make the program fail that would pass them."""
        return ""

    def close(self) -> None:
        """Remove the container and its image."""
        _docker("rm", "--force", "--volumes", self._name)
        _docker("rmi", "--force", self._name)

    def _start(self) -> None:
        most = self.limits
        given = [
            *("run", "--detach", "--init", "--rm", "--network", "none", "--hostname", "sandbox"),
            *("--memory", str(most.memory), "--memory-swap", str(most.memory), "--pids-limit", str(most.processes)),
            *("--ulimit", f"fsize={most.disk}", "--ulimit", "core=0", "--name", self._name, "--entrypoint", "sleep"),
        ]
        run = (self._name, str(int(most.life)))
        if _docker(*given, "--storage-opt", f"size={most.disk}", *run).returncode != 0:
            _docker("rm", "--force", self._name)
            _checked(*given, *run)


def _checked(*argv: str, seconds: float = 120) -> None:
    try:
        done = _docker(*argv, seconds=seconds)
    except subprocess.TimeoutExpired:
        raise ConfigError(f"'docker {argv[0]}' took more than {seconds:g} s") from None
    if done.returncode != 0:
        raise ConfigError(f"'docker {argv[0]}' failed: {done.stderr.decode('utf-8', 'replace').strip()[-500:]}")


def _docker(*argv: str, seconds: float = 120) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ("docker", *argv), env=_env(), stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False
    )


def _env() -> dict[str, str]:
    """What the docker command needs to find its engine."""
    return {name: value for name, value in os.environ.items() if name in ("PATH", "HOME") or name.startswith("DOCKER_")}
