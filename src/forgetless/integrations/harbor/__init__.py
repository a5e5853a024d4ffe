"""Agents for Harbor that keep what they send small, by import path: `forgetless.integrations.harbor:CCMAgent`.

Harbor itself loads when one of them is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from forgetless.errors import MissingExtra

if TYPE_CHECKING:
    from forgetless.integrations.harbor.agents import CCMAgent, FullHistoryAgent, LREAgent
    from forgetless.integrations.harbor.environment import LocalEnvironment

__all__ = ["CCMAgent", "FullHistoryAgent", "LREAgent", "LocalEnvironment"]


def __getattr__(name: str) -> Any:
    """What is asked for.

    Raises:
        MissingExtra: Harbor is not installed.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    part = "environment" if name == "LocalEnvironment" else "agents"
    try:
        return getattr(import_module(f"{__name__}.{part}"), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "harbor":
            raise
        raise MissingExtra("harbor", "harbor") from error
