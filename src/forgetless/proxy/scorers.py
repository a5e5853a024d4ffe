"""The weights of new conversations: those that a file holds by now, as soon as a trainer has put them there.

A conversation keeps those that it began with. A file that is no good is not taken: the last good one is used.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from forgetless.errors import ConfigError
from forgetless.proxy.settings import Settings
from forgetless.registry import load_policy
from forgetless.session import Session
from forgetless.tokens import Counter

__all__ = ["Scorers"]

log = logging.getLogger("forgetless.proxy")


class Scorers:
    """Makes the sessions of new conversations."""

    def __init__(self, settings: Settings) -> None:
        """Begin with what the settings' file, if they name any, holds now.

        Raises:
            ConfigError: it is no good.
        """
        self._settings = settings
        self._seen: tuple[int, ...] = ()
        self._weights: Any = None
        self.options()

    def options(self) -> Mapping[str, Any]:
        """The policy's options for a new conversation."""
        options = self._settings.options
        seen = _stamp(options.get("scorer"))
        if seen and seen != self._seen:
            self._seen = seen
            try:
                policy = load_policy(self._settings.policy, **options)
            except ConfigError as error:
                if self._weights is None:
                    raise
                log.error("the new weights are no good", extra={"data": {"error": str(error)}})
            else:
                self._weights = getattr(policy.scorer, "weights", None)
                log.info("new weights", extra={"data": {"scorer": policy.scorer.version}})
        return options if self._weights is None else {**options, "scorer": self._weights}

    def session(self, budget: int | None, counter: Counter | None, dialect: str) -> Session:
        """A session for a new conversation, as `Settings.session` makes it."""
        return self._settings.session(budget, counter, dialect, self.options())


def _stamp(path: object) -> tuple[int, ...]:
    """What tells whether a file is another one than it was; empty where there is none."""
    try:
        found = os.stat(path) if isinstance(path, str) else None
    except OSError:
        return ()
    return (found.st_mtime_ns, found.st_size, found.st_ino) if found is not None else ()
