"""The sandbox that this machine can have."""

from __future__ import annotations

from pathlib import Path

from forgetless.environments.sandbox.base import Limits, Sandbox
from forgetless.environments.sandbox.docker import Docker, engine
from forgetless.errors import ConfigError

__all__ = ["kind_of", "open_sandbox"]


def kind_of(kind: str) -> str:
    """The kind that `auto` stands for here: Docker where an engine answers, else namespaces; any other is itself.

    Raises:
        ConfigError: there is no such kind.
    """
    if kind not in ("docker", "namespaces", "auto"):
        raise ConfigError(f"a sandbox is 'docker', 'namespaces' or 'auto', not {kind!r}")
    if kind != "auto":
        return kind
    return "docker" if engine() else "namespaces"


def open_sandbox(folder: Path, limits: Limits, kind: str = "auto") -> Sandbox:
    """Make a sandbox with the environment that a Dockerfile describes.

    Args:
        folder: holds the Dockerfile and what it copies.
        limits: of the sandbox.
        kind: `docker`, `namespaces` or `auto`.

    Raises:
        ConfigError: the machine can have neither, or the Dockerfile can't be followed.
    """
    if kind_of(kind) == "docker":
        return Docker(folder, limits)
    from forgetless.environments.sandbox.namespaces import Namespaces  # which loads on Unix alone

    return Namespaces(folder, limits)
