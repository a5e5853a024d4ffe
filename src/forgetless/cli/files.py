"""Conversations in files as people have them: a body, a list of messages, JSONL, a recorded trajectory."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

from forgetless.dialects.atif import is_atif, messages_from_atif
from forgetless.errors import ConfigError, RequestError

__all__ = ["Conversation", "dump", "read", "write"]


class Conversation(NamedTuple):
    """A request read from a file; `lines` says that it came as JSONL and goes out as JSONL."""

    request: Any
    lines: bool


def read(path: str) -> Conversation:
    """Read a conversation from a file, or from standard input when `path` is `-`.

    Raises:
        ConfigError: the file cannot be read.
        RequestError: it holds no conversation; broken JSON is named with its line and column.
    """
    if path == "-" and sys.stdin is None:
        raise ConfigError("standard input is closed")
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path!r} cannot be read: {error.strerror}") from error
    path = "standard input" if path == "-" else repr(path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RequestError(f"{path} is not UTF-8: byte {error.start}") from error
    if not text.strip():
        raise RequestError(f"{path} is empty")
    if _looks_like_lines(text):
        return Conversation(_lines(path, text), True)
    return Conversation(_conversation(path, _decoded(path, text)), False)


def _decoded(path: str, text: str, line: int = 1) -> Any:
    """The JSON value in `text`, which begins on line `line` of the file."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        at = f"line {line + error.lineno - 1}, column {error.colno}"
        raise RequestError(f"{path} is not valid JSON: {at}: {error.msg}") from error
    except (ValueError, RecursionError) as error:  # a number of too many digits, lists in lists without end
        raise RequestError(f"{path} cannot be read as JSON: {error}") from error


def _looks_like_lines(text: str) -> bool:
    """Whether the first line is an object of its own and others follow."""
    first, _, rest = text.strip().partition("\n")
    try:
        return bool(rest) and isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return False


def _lines(path: str, text: str) -> list[Any]:
    messages: list[Any] = []
    # Not `splitlines`: it also splits at U+2028 and its like, which may stand in a JSON string.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        messages.append(_decoded(path, line, number))
        if isinstance(messages[-1], dict) and {"messages", "input", "body"} & set(messages[-1]):
            raise RequestError(f"line {number} of {path} is a whole request: give one request at a time")
    return messages


def _conversation(path: str, value: Any) -> Any:
    if isinstance(value, list):
        return value
    if isinstance(value, dict):
        if is_atif(value):
            return messages_from_atif(value)
        if "messages" in value or "input" in value:
            return value
        if "role" in value or "type" in value:
            return [value]
    raise RequestError(
        f"{path} holds neither a list of messages, nor a request with 'messages' or 'input', nor a trajectory"
    )


def dump(value: Any, *, lines: bool = False, indent: int | None = None) -> bytes:
    """JSON as UTF-8 with a newline at its end, a line per item when `lines`.

    A lone surrogate, which UTF-8 can't hold, goes out as the escape that it came in as.
    """
    parts = value if lines else [value]
    try:
        made = [json.dumps(part, ensure_ascii=False, indent=indent, allow_nan=False) for part in parts]
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the request cannot be written as JSON: {error}") from error
    return "".join(f"{text}\n" for text in made).encode("utf-8", "backslashreplace")


def write(data: bytes) -> None:
    """Write to standard output.

    Raises:
        ConfigError: it is closed or full.
    """
    if sys.stdout is None:
        raise ConfigError("standard output is closed")
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        sys.stdout = None  # what is left in its buffer can't be written at exit either
        raise ConfigError(f"standard output cannot be written: {error.strerror}") from error
