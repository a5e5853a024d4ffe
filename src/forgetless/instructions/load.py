"""From what a caller names to the recogniser of a conversation, which judges each text once."""

from __future__ import annotations

from functools import cache

from forgetless.errors import ConfigError
from forgetless.instructions.base import Recogniser, Remembering
from forgetless.instructions.dropping import Dropping
from forgetless.registry import load_recogniser

__all__ = ["UNKNOWN", "recogniser"]

UNKNOWN = "remind says standing instructions again, and nothing recognises any: give instructions='learned' as well"
"""What is said to who wants a reminder and no recogniser."""


def recogniser(named: str | Recogniser | None) -> Dropping | None:
    """A recogniser by name, whose judgements are shared by all that name it; or the one given; None for `none`.

    Raises:
        ConfigError: unknown name, or no recogniser.
    """
    if named is None or isinstance(named, Dropping):
        return named
    if named == "none":
        return None
    if isinstance(named, str):
        return Dropping(_shared(named))
    if not callable(named):
        raise ConfigError(f"{named!r} is no recogniser: it must take a text and give spans of it")
    return Dropping(named if isinstance(named, Remembering) else Remembering(named))


@cache
def _shared(name: str) -> Remembering:
    return Remembering(load_recogniser(name))
