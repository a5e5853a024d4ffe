"""Stems of words: what a question and its answer share when one says `painted` and the other `painting`.

Only words of ASCII letters are cut, by the endings of English; all others stand as `forgetless.text.words` gives them.
"""

from __future__ import annotations

from functools import lru_cache

from forgetless.text import words

__all__ = ["FUNCTION", "stem", "stems"]

_FUNCTION = (
    "a an the i you he she it we they me him her us them my your his its our their mine yours this that these those "
    "is am are was were be been being do does did done doing have has had having will would shall should can could may "
    "might must of in on at to for from with by about as into onto over under and or but so if then than because while "
    "when where what which who whom whose why how not no yes there here up down out off just very too also more most "
    "some any all each both s t ve re ll d m don didn doesn isn wasn weren won couldn"
)
FUNCTION = frozenset(_FUNCTION.split())
"""English words that say nothing about a subject: a question is matched without them."""

_ENDINGS = ("ingly", "edly", "ing", "ment", "ness", "er", "or", "ion", "ive", "ful", "ally", "ly", "ed", "al")
_DOUBLING = frozenset(("ing", "ed", "er", "edly", "ingly"))  # `plan`, `planning`
LEAST = 3  # letters that stay


def stems(text: str) -> list[str]:
    """The stem of each word of a text, in order."""
    return list(map(stem, words(text)))


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """A lower-case word without its ending."""
    if len(word) <= LEAST or not (word.isascii() and word.isalpha()):
        return word
    word = _singular(word)
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= LEAST:
            word = word[: -len(ending)]
            if ending in _DOUBLING and len(word) > LEAST and word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    if word.endswith("e") and len(word) > LEAST:
        word = word[:-1]
    return word[:-1] + "i" if word.endswith("y") and len(word) > LEAST else word


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "ses", "xes", "zes", "ches", "shes")) and len(word) > 5:
        return word[:-2]
    return word if not word.endswith("s") or word.endswith(("ss", "us", "is")) else word[:-1]
