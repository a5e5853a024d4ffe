"""The reader of each dialect, by the dialect's name; none loads until it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType

from forgetless.errors import ConfigError
from forgetless.replies.base import Reader

__all__ = ["READERS", "reader"]

READERS: Mapping[str, str] = MappingProxyType(
    {
        "anthropic": "forgetless.replies.anthropic:AnthropicReader",
        "chat": "forgetless.replies.chat:ChatReader",
        "responses": "forgetless.replies.responses:ResponsesReader",
    }
)


def reader(dialect: str) -> Reader:
    """A new reader, for one reply.

    Raises:
        ConfigError: unknown dialect.
    """
    if dialect not in READERS:
        raise ConfigError(f"unknown dialect {dialect!r}; known: {', '.join(READERS)}")
    module, _, name = READERS[dialect].partition(":")
    made: Reader = getattr(import_module(module), name)()
    return made
