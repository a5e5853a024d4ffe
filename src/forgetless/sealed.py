"""Weights as JSON with a checksum: what was altered, or belongs to other features, is refused and never served."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from forgetless.errors import ConfigError

__all__ = ["checksum", "read", "unseal"]


def checksum(content: Mapping[str, Any]) -> str:
    """Names a content: the same numbers and names have the same one."""
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return sha256(canonical.encode()).hexdigest()[:16]


def read(path: str | Path) -> str:
    """The text of a weights file.

    Raises:
        ConfigError: it can't be read.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the weights {str(path)!r}: {error}") from None


def unseal(text: str, named: str, *, of: str, form: str, revision: int, again: str) -> dict[str, Any]:
    """The content of a file, without its checksum.

    Args:
        text: of the file.
        named: what errors call it.
        of: whose weights they have to be, for errors.
        form: what `format` has to be.
        revision: what `features_version` has to be.
        again: how to come by a file that fits, for errors.

    Raises:
        ConfigError: it was altered, or does not match.
    """
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"cannot read {named}: {error}") from None
    if not isinstance(content, dict) or content.get("format") != form:
        raise ConfigError(f"{named}: no weights for the {of}: {again}")
    if content.get("features_version") != revision:
        raise ConfigError(
            f"{named} were fitted to version {content.get('features_version')!r} of the features, and this is "
            f"version {revision}: {again}"
        )
    if content.pop("checksum", None) != checksum(content):
        raise ConfigError(f"{named} are damaged or were altered, the checksum does not match: {again}")
    return content
