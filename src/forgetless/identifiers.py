"""Identifiers: the strings an agent must have byte for byte, such as paths, hashes and addresses.

Plain words are none of them, nor are short numbers and decimals: a model can say those without having read
them.
"""

from __future__ import annotations

import re

__all__ = ["contains", "identifiers"]

# The first pattern that matches at a place wins, so the longer shapes come first.
_SHAPES = re.compile(
    r"""
      (?P<url> (?<!\w) [A-Za-z][A-Za-z0-9+.-]*://[^\s"'`<>()\[\]{}|\\^]+ )
    | (?P<windows> (?<!\w) [A-Za-z]:\\(?:[\w.\- ]+\\)*[\w.\-]+ )
    | (?P<escape> \\[A-Za-z] )              # \n in a quoted script is no part of the next word
    | (?P<email> [\w.+-]+@[\w-]+(?:\.[\w-]+)+ )
    | (?P<uuid> (?<!\w) [0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12} (?!\w) )
    | (?P<address> (?<![\w.]) \d{1,3}(?:\.\d{1,3}){3}(?:[:/]\d+)? (?![\w]) )
    | (?P<date> (?<!\w) \d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?Z?)? (?!\w) )
    | (?P<path> (?<![\w/]) (?:~|\.{1,2})?(?:/[\w.+@%~-]+)+/? )
    | (?P<relative> (?<![\w/]) [\w.+@-]+(?:/[\w.+@-]+)+/? )
    | (?P<flag> (?<![\w-]) --[A-Za-z][\w-]+ )
    | (?P<version> (?<![\w.]) v?\d+(?:\.\d+){2,}(?:[-+][\w.]+)? | (?<![\w.]) v\d+(?:\.\d+)+ )
    | (?P<dotted> (?<![\w.]) \.?[\w-]+(?:\.[\w-]+)*\.[A-Za-z]\w* )
    | (?P<dashed> (?<!\w) [A-Za-z]\w*(?:-\w+)+ )
    | (?P<name> \w+ )
    """,
    re.VERBOSE,
)

_DIGIT = re.compile(r"\d")
_LETTER = re.compile(r"[^\W\d_]")
_HUMPS = re.compile(r"[a-z0-9][A-Z]")
_HEX = re.compile(r"(?:0x)?[0-9a-fA-F]{6,}")
_AMOUNT = re.compile(r"\d+[A-Za-z]{1,3}")
_ENDS = ".,;:!?-+"


def identifiers(text: str) -> list[str]:
    """The identifiers in a text, each once, in the order in which they first stand there.

    URLs, paths, file names and other dotted names, e-mail and IP addresses, UUIDs, hashes, dates, versions,
    numbers of five digits or more, long flags, and names that have a digit, an inner underscore or an inner
    capital.
    """
    found: dict[str, None] = {}
    for match in _SHAPES.finditer(text):
        kind, value = match.lastgroup or "", match.group().rstrip(_ENDS)
        if kind in ("path", "relative"):
            value = value.rstrip("/")  # a folder is the same with and without
        if kind != "escape" and _counts(kind, value):
            found[value] = None
    return list(found)


def _counts(kind: str, value: str) -> bool:
    """Whether a string of this shape is an identifier and not prose."""
    match kind:
        case "relative":  # "and/or", "1/2" are prose
            return bool(_LETTER.search(value)) and (value.count("/") > 1 or any(c in "._-0123456789" for c in value))
        case "dotted":  # "e.g", "1.5x"
            return any(len(part) > 1 and not part.isdigit() for part in value.split(".")[:-1])
        case "dashed":  # "state-of-the-art"
            return bool(_DIGIT.search(value))
        case "name":
            return _is_name(value)
        case "path":  # "/24"
            return bool(_LETTER.search(value))
        case _:
            return len(value) > 1


def _is_name(value: str) -> bool:
    if value.isdigit():
        return len(value) >= 5
    if value.startswith("__") and value.endswith("__") and len(value) > 4:
        return True
    inner = value.strip("_")
    if not _LETTER.search(inner) or _AMOUNT.fullmatch(inner):  # "10kB", "3rd"
        return False
    if "_" in inner or _HUMPS.search(inner):
        return len(inner) > 2
    if not _DIGIT.search(inner):
        return False
    # A name begins with a letter, unless it is long enough to be a hash.
    return (not inner[0].isdigit() and len(inner) > 2) or bool(_HEX.fullmatch(inner))


def contains(text: str, identifier: str) -> bool:
    """Whether a text holds an identifier byte for byte, with no letter, digit or underscore beside it."""
    start = text.find(identifier)
    while start >= 0:
        end = start + len(identifier)
        if _bounded(text, start) and (end == len(text) or not _is_word(text[end])):
            return True
        start = text.find(identifier, start + 1)
    return False


def _bounded(text: str, start: int) -> bool:
    if start == 0 or not _is_word(text[start - 1]):
        return True
    return start > 1 and text[start - 2] == "\\" and text[start - 1].isalpha()


def _is_word(character: str) -> bool:
    return character == "_" or character.isalnum()
