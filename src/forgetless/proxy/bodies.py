"""Request bodies as bytes: read once, and written so that what was not changed stays byte for byte."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from operator import is_
from typing import Any

import msgspec

from forgetless.dialects.base import Dialect

__all__ = ["decode", "encode", "splice"]

_encoder = msgspec.json.Encoder()
_decoder = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")


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
    raw = dict(_fields(data))
    listed = list(_items(raw[dialect.key])) if isinstance(old, list) else []
    came = dict(zip(map(id, old), listed, strict=True)) if isinstance(old, list) else {}

    def written(name: str, value: Any) -> bytes:
        if name == dialect.key and isinstance(value, list):
            return b"[" + b",".join(came[id(m)] if id(m) in came else encode(m) for m in value) + b"]"
        return raw[name] if name in raw and value is before[name] else encode(value)

    return b"{" + b",".join(encode(name) + b":" + written(name, value) for name, value in after.items()) + b"}"


def _fields(data: bytes) -> Iterable[tuple[str, bytes]]:
    """The fields of an object as they are spelt."""
    try:
        return [(name, bytes(raw)) for name, raw in msgspec.json.decode(data, type=dict[str, msgspec.Raw]).items()]
    except (msgspec.DecodeError, RecursionError):
        return _spelt(data)


def _items(data: bytes) -> Iterable[bytes]:
    """The items of a list as they are spelt."""
    try:
        return list(map(bytes, msgspec.json.decode(data, type=list[msgspec.Raw])))
    except (msgspec.DecodeError, RecursionError):
        return [raw for _, raw in _spelt(data)]


def _spelt(data: bytes) -> Iterator[tuple[str, bytes]]:
    """What is in an object or a list, with its name in the object: for JSON that Python's reader alone takes."""
    text = data.decode(json.detect_encoding(data), "surrogatepass")
    start = _next(text, 0)
    at = _next(text, start + 1)
    while text[at] not in "]}":
        name = ""
        if text[start] == "{":
            name, end = _decoder.raw_decode(text, at)
            at = _next(text, _next(text, end) + 1)  # behind the colon
        _, end = _decoder.raw_decode(text, at)
        yield name, text[at:end].encode("utf-8", "surrogatepass")
        at = _next(text, end)
        if text[at] == ",":
            at = _next(text, at + 1)


def _next(text: str, at: int) -> int:
    """Where something stands again, from a place on."""
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _unchanged(before: Mapping[str, Any], after: Mapping[str, Any], key: str) -> bool:
    if before.keys() != after.keys() or any(after[name] is not value for name, value in before.items() if name != key):
        return False
    old, new = before.get(key), after.get(key)
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(is_, old, new))
    return old == new
