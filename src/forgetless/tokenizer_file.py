"""Exact token counts from tokenizer files that the user has, by the libraries that own the formats."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forgetless.errors import ConfigError, MissingExtra

__all__ = ["load"]

_WORD = r"[^\r\n\p{L}\p{N}]?"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"

# A rank file holds no splitting pattern; these are the published ones of its encodings.
PATTERNS = {
    "o200k_base": "|".join(
        [
            rf"{_WORD}{_UPPER}*{_LOWER}+{_SUFFIX}",
            rf"{_WORD}{_UPPER}+{_LOWER}*{_SUFFIX}",
            r"\p{N}{1,3}",
            r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
            r"\s*[\r\n]+",
            r"\s+(?!\S)",
            r"\s+",
        ]
    ),
    "cl100k_base": "|".join(
        [
            r"'(?i:[sdmt]|ll|ve|re)",
            rf"{_WORD}+\p{{L}}++",
            r"\p{N}{1,3}+",
            r" ?[^\s\p{L}\p{N}]++[\r\n]*+",
            r"\s++$",
            r"\s*[\r\n]",
            r"\s+(?!\S)",
            r"\s",
        ]
    ),
}


def load(path: str) -> Callable[[str], int]:
    """A function text -> tokens from a tokenizer file.

    Args:
        path: a Hugging Face `tokenizer.json`, or a `.tiktoken` rank file named after its encoding
            (`o200k_base.tiktoken`, `cl100k_base.tiktoken`).

    Raises:
        MissingExtra: `tokenizers` or `tiktoken` is not installed.
        ConfigError: the file cannot be read as either.
    """
    file = Path(path)
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"tokenizer file {path!r} cannot be read: {error.strerror}") from error
    try:
        return _tiktoken(file.stem, data) if file.suffix == ".tiktoken" else _tokenizers(path, data)
    except ModuleNotFoundError as error:
        raise MissingExtra("tokens", str(error.name)) from error


def _tokenizers(path: str, data: bytes) -> Callable[[str], int]:
    from tokenizers import Tokenizer

    try:
        if "model" not in json.loads(data):
            raise ValueError("it has no 'model'")
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{path!r} is not a tokenizer.json: {error}") from error
    try:
        tokenizer: Any = Tokenizer.from_file(path)
    except Exception as error:
        raise ConfigError(f"{path!r} is not a tokenizer.json: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True  # a special token that a user wrote is text: it must not count as one
    return lambda text: len(tokenizer.encode(_encodable(text), add_special_tokens=False).ids)


def _tiktoken(name: str, data: bytes) -> Callable[[str], int]:
    import tiktoken

    if name not in PATTERNS:
        raise ConfigError(f"unknown encoding {name!r}: name the rank file after one of {', '.join(PATTERNS)}")
    try:
        lines = (line.split() for line in data.splitlines() if line)
        ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
        if any(bytes([byte]) not in ranks for byte in range(256)):
            raise ValueError("not every byte has a rank")
    except (ValueError, binascii.Error) as error:
        raise ConfigError(f"'{name}.tiktoken' is not a rank file: {error}") from error
    encoding = tiktoken.Encoding(name, pat_str=PATTERNS[name], mergeable_ranks=ranks, special_tokens={})
    return lambda text: len(encoding.encode_ordinary(_encodable(text)))


def _encodable(text: str) -> str:
    """`text` with lone surrogates replaced, which no tokenizer takes."""
    return text.encode("utf-8", "replace").decode("utf-8")
