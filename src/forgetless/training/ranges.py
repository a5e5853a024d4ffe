"""Refusing values out of range, by the names that a user gave them."""

from __future__ import annotations

from math import isfinite

from forgetless.errors import ConfigError

__all__ = ["above_0", "at_least", "seedable"]


def at_least(least: int, **values: float) -> None:
    """Refuse whole numbers that are lower.

    Raises:
        ConfigError: names the first.
    """
    for name, value in values.items():
        if value < least:
            raise ConfigError(f"{name} must be at least {least}, not {value!r}")


def above_0(**values: float) -> None:
    """Refuse numbers that are not above 0, or not finite.

    Raises:
        ConfigError: names the first.
    """
    for name, value in values.items():
        if not (isfinite(value) and value > 0):
            raise ConfigError(f"{name} must be a number above 0, not {value!r}")


def seedable(seed: int) -> None:
    """Refuse a seed that torch does not take.

    Raises:
        ConfigError: it is below 0, or too large.
    """
    at_least(0, seed=seed)
    if seed >= 2**63:
        raise ConfigError(f"seed must be below 2**63, not {seed!r}")
