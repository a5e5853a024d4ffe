"""Request bodies as bytes: read once, and written so that what was not changed stays byte for byte."""

from __future__ import annotations

import json
from collections.abc import Mapping
from operator import is_
from typing import Any

import msgspec

from forgetless.dialects.base import Dialect

__all__ = ["decode", "encode", "splice"]

_encoder = msgspec.json.Encoder()


def decode(data: bytes) -> Any:
    """The JSON value in a body.

    Raises:
        ValueError: it is none.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        # Python's reader takes what others send all the same: halves of surrogate pairs, numbers without end.
        return json.loads(data, parse_constant=_refuse)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def encode(value: Any) -> bytes:
    """A value as compact JSON."""
    try:
        return _encoder.encode(value)
    except (msgspec.EncodeError, UnicodeEncodeError, OverflowError):
        return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode()


def splice(data: bytes, before: Mapping[str, Any], after: Mapping[str, Any], dialect: Dialect) -> bytes:
    """The body of a changed request: fields and messages that are still the very objects keep their bytes.

    Args:
        data: the body as it came.
        before: what `decode` made of it.
        after: the changed request.
        dialect: says which field holds the messages.
    """
    if _unchanged(before, after, dialect.key):
        return data
    old = before.get(dialect.key)
    try:
        raw = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        listed = msgspec.json.decode(raw[dialect.key], type=list[msgspec.Raw]) if isinstance(old, list) else []
    except (msgspec.DecodeError, KeyError):
        return encode(after)
    came = dict(zip(map(id, old), listed, strict=True)) if isinstance(old, list) else {}

    def written(name: str, value: Any) -> bytes:
        if name == dialect.key and isinstance(value, list):
            return b"[" + b",".join(bytes(came[id(m)]) if id(m) in came else encode(m) for m in value) + b"]"
        return bytes(raw[name]) if name in raw and value is before[name] else encode(value)

    return b"{" + b",".join(encode(name) + b":" + written(name, value) for name, value in after.items()) + b"}"


def _unchanged(before: Mapping[str, Any], after: Mapping[str, Any], key: str) -> bool:
    if before.keys() != after.keys() or any(after[name] is not value for name, value in before.items() if name != key):
        return False
    old, new = before.get(key), after.get(key)
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(is_, old, new))
    return old == new
