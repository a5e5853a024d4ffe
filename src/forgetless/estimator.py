"""How many tokens a text is, estimated from its shape: no vocabulary, microseconds, seldom off by a tenth.

A byte-pair tokenizer splits a text where the kind of character changes, then merges within the pieces, so
counts of kinds and of changes of kind nearly tell the tokens. Each character becomes four bits and the text one
large integer, over which a count is a shift, an `&` and a `bit_count`: passes at C speed, none in Python.

The weights are for o200k_base and lean upwards; `tools/fit_estimator.py` fits them and measures their error.
"""

from binascii import unhexlify
from operator import mul

from forgetless.han import COMMON

_CHUNK = 1 << 15  # characters a pass: the masks are this long

_CAPITALS = 3  # their place among the features
_CAPITAL = 0.5  # the least for a capital: shouting, codes and sequences merge far less than names and constants

_WEIGHTS = (
    # Of every text. A gap is a space, tab or capital; a mark a printed sign or capital: both begin pieces.
    0.385,  # characters
    1.184,  # lower-case letters
    0.827,  # gaps
    0.718,  # capitals
    -1.472,  # lower after lower: words get cheaper by the letter as they get longer
    -0.937,  # gap after gap: indents and tables
    -0.615,  # gap after lower: the ends of words
    -1.386,  # mark after lower
    -1.429,  # lower after gap: the starts of words, which take the space along
    -0.545,  # mark after gap
    0.816,  # mark after consonant or digit: numbers, hashes, abbreviations
    -0.224,  # four gaps or four marks in a row: deep indents, rules
    # Of text beyond ASCII only, by script; a character beyond Latin-1 is a mark above.
    1.936,  # accented Latin-1 letters
    0.077,  # Greek, Cyrillic
    0.227,  # Arabic, Indic, Thai
    0.579,  # kana and Hangul
    1.145,  # Han
    1.752,  # emoji and other pairs of surrogates
    -0.664,  # letter after letter, of the alphabets above
    0.781,  # four such letters in a row
    -0.684,  # Han after Han: compounds are cheaper than lone characters
    2.708,  # Han characters that are no token of their own
    0.544,  # Armenian, Hebrew, Tibetan, Georgian, Ethiopic, Khmer and their like
    0.497,  # arrows, formulas, boxes, blocks, braille
)


def _character(byte: int) -> str:
    """The hex digit of a Latin-1 character: 8 lower, 4 consonant or digit, 2 gap, 1 mark."""
    character = chr(byte)
    if character.isalpha() and byte > 127:
        return "9"  # its own, so that it can be counted
    if character.islower():
        return "8" if character in "aeiou" else "c"
    if character.isupper():
        return "3"
    if character.isdigit():
        return "4"
    return "2" if character in " \t" else f"{character.isprintable():d}"


def _script(row: int) -> str:
    """The hex digit of the 256 code points that share a high byte in UTF-16; alphabets have the bit 8."""
    firsts = {
        0x00: "0",
        0x03: "8",
        0x05: "b",
        0x06: "9",
        0x0F: "b",
        0x1E: "9",
        0x20: "0",
        0x21: "1",
        0x30: "a",
        0x34: "4",
    }
    firsts |= {0x34: "4", 0xA4: "a", 0xD8: "2", 0xDC: "0"}
    return firsts[max(first for first in firsts if first <= row)]


_CHARACTERS = "".join(map(_character, range(256))).encode()
_SCRIPTS = "".join(map(_script, range(256))).encode()
_LOWER, _HARD, _GAP, _MARK = (int(bit * _CHUNK, 16) for bit in "8421")
_EDGE = _GAP | _MARK


def _integer(digits: bytes) -> int:
    """The hex digits as one integer, by way of bytes: half the time of `int(digits, 16)`."""
    return int.from_bytes(unhexlify(digits + b"0" if len(digits) & 1 else digits), "big")


def features(text: str) -> tuple[int, ...]:
    """Counts over at most `_CHUNK` characters, in the order of `_WEIGHTS`; for ASCII without the scripts."""
    characters = text.encode("latin-1", "replace").translate(_CHARACTERS)
    x = _integer(characters)
    before = x >> 4  # at each character, the one before it
    pair = x & before
    lower = before & _LOWER
    gap = before & _GAP
    shape = (
        len(characters),
        lower.bit_count(),
        gap.bit_count(),
        (gap >> 1 & before).bit_count(),
        (pair & _LOWER).bit_count(),
        (pair & _GAP).bit_count(),
        (lower >> 2 & x).bit_count(),
        (lower >> 3 & x).bit_count(),
        (gap << 2 & x).bit_count(),
        (gap >> 1 & x).bit_count(),
        ((before & _HARD) >> 2 & x).bit_count(),
        (pair & pair >> 8 & _EDGE).bit_count(),
    )
    if text.isascii():
        return shape
    scripts = text.encode("utf-16-le", "surrogatepass")[1::2].translate(_SCRIPTS)
    x = _integer(scripts)
    pair = x & x >> 4
    joined = pair & _LOWER
    han = scripts.count(b"4")
    return (
        *shape,
        characters.count(b"9"),
        scripts.count(b"8"),
        scripts.count(b"9"),
        scripts.count(b"a"),
        han,
        scripts.count(b"2"),
        joined.bit_count(),
        (joined & joined >> 8).bit_count(),
        (pair & _HARD).bit_count(),
        max(0, han - sum(map(COMMON.__contains__, text))) if han else 0,
        scripts.count(b"b"),
        scripts.count(b"1"),
    )


def estimate(text: str) -> float:
    """The tokens that o200k_base would make of a text, special tokens read as plain text.

    Takes any string, lone surrogates included, in linear time; never negative, and 0 for the empty string.
    """
    if len(text) > _CHUNK:
        return sum(estimate(text[at : at + _CHUNK]) for at in range(0, len(text), _CHUNK))
    counts = features(text)
    tokens: float = sum(map(mul, _WEIGHTS, counts))
    return max(tokens, _CAPITAL * counts[_CAPITALS], 0.0)
