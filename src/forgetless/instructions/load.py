"""From what a caller names to a recogniser that judges each text once."""

from __future__ import annotations

from functools import cache

from forgetless.errors import ConfigError
from forgetless.instructions.base import Recogniser, Remembering
from forgetless.registry import load_recogniser

__all__ = ["recogniser"]


def recogniser(named: str | Recogniser | None) -> Remembering | None:
    """A recogniser by name, made once for all that name it; or the one that is given; None for `none`.

    Raises:
        ConfigError: unknown name, or no recogniser.
    """
    if named is None or isinstance(named, Remembering):
        return named
    if named == "none":
        return None
    if isinstance(named, str):
        return _shared(named)
    if not callable(named):
        raise ConfigError(f"{named!r} is no recogniser: it must take a text and give spans of it")
    return Remembering(named)


@cache
def _shared(name: str) -> Remembering:
    return Remembering(load_recogniser(name))
