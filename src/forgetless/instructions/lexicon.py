"""Words and phrases of several languages, and the concepts that they stand for.

A concept is a set of words that do the same work in every language, so that what is learned of one language serves
the others. `lexicon.txt` holds them: lines of `concept: entry | entry`, in lower case and without accents; `*` stands
for any ending.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from typing import NamedTuple
from unicodedata import combining, normalize

from forgetless.instructions.marks import QUOTATION

__all__ = ["FORMS", "Lexicon", "Word", "lexicon"]

FORMS = ("quote", "code", "alone", "opens", "closes", "short", "long", "unspaced", "imperative", "after_colon")
"""Concepts of form, which no word stands for."""

_UNSPACED = "\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff。？！，、：；"
_TOKEN = re.compile(
    rf"(?:\b[jnldtmsc]|\bqu)['’](?=\w\w)"  # French and Italian elisions are words of their own
    rf"|[^\W{_UNSPACED}_]+(?:['’][^\W{_UNSPACED}_]+)?|[{_UNSPACED}]+|[{QUOTATION}?!:;,.…()—–]",
    re.IGNORECASE,
)
_IS_UNSPACED = re.compile(f"[{_UNSPACED}]")
_ENCLITIC = re.compile(r"[a-z]{3,}(?:a|e|an|en|i)(?:me|nos|melo|mela|melos|melas)")
_ANY_NUMBER = "two"


class Word(NamedTuple):
    """A word or phrase as it was read.

    Attributes:
        text: in lower case and without accents; "0" for any number in digits.
        concepts: their numbers.
    """

    text: str
    concepts: tuple[int, ...] = ()


class Lexicon:
    """Reads texts as words with their concepts.

    Attributes:
        names: of the concepts; a concept's number is its place here.
        form: the numbers of `FORMS`.
        said: the number of the concept of saying.
        colon: that of the colon.
        version: names its entries.

    Args:
        table: lines of `concept: entry | entry`.
    """

    def __init__(self, table: str) -> None:
        found: dict[str, list[str]] = {}
        for line in table.splitlines():
            name, _, entries = line.partition(":")
            for entry in entries.split(" | "):
                found.setdefault(entry.strip(), []).append(name)
        self.names = (*sorted({name for names in found.values() for name in names}), *FORMS)
        number = {name: at for at, name in enumerate(self.names)}
        self.form = {name: number[name] for name in FORMS}
        self.said, self.colon = number.get("said", -1), number.get("colon", -1)
        self._words: dict[str, tuple[int, ...]] = {}
        self._stems: dict[str, tuple[int, ...]] = {}
        self._phrases: dict[str, list[tuple[Sequence[str], Word]]] = {}
        for entry, names in found.items():
            self._enter(entry, tuple(sorted({number[name] for name in names})))
        for phrases in self._phrases.values():
            phrases.sort(key=lambda phrase: -len(phrase[0]))
        self._stem = _any(self._stems)
        self._unspaced = _any(word for word in self._words if _IS_UNSPACED.match(word))
        self._word = lru_cache(maxsize=50_000)(self._look_up)

    def _enter(self, entry: str, concepts: tuple[int, ...]) -> None:
        pieces = _TOKEN.findall(entry)
        if entry.endswith("*"):
            self._stems[entry[:-1]] = concepts
        elif len(pieces) > 1:
            self._phrases.setdefault(pieces[0], []).append((pieces, Word(" ".join(pieces), concepts)))
        else:
            self._words[entry] = concepts

    def __call__(self, text: str) -> Iterator[Word]:
        """The words of a text in order; the longest phrase that the lexicon knows is one."""
        words: list[Word] = []
        for token in _TOKEN.findall(text):
            if token == QUOTATION:
                words.append(Word(token, (self.form["quote"],)))
            elif token > "\u3000":
                words += self._cut(token)
            else:
                words.append(self._word(token))
        at = 0
        while at < len(words):
            word = words[at]
            phrase = self._phrase(words, at) if word.text in self._phrases else None  # most begin none
            yield phrase[1] if phrase else word
            at += len(phrase[0]) if phrase else 1

    def _phrase(self, words: Sequence[Word], at: int) -> tuple[Sequence[str], Word] | None:
        for pieces, word in self._phrases[words[at].text]:
            if [one.text for one in words[at : at + len(pieces)]] == pieces:
                return pieces, word
        return None

    def _look_up(self, token: str) -> Word:
        word = _folded(token)
        concepts = self._words.get(word, ())
        if not concepts:
            stem = self._stem.match(word)
            concepts = self._stems[stem[0]] if stem else ()
        if not concepts and word.isdecimal():
            return Word("0", self._words.get(_ANY_NUMBER, ()))
        if not concepts and _ENCLITIC.fullmatch(word):
            concepts = (self.form["imperative"],)
        return Word(word, concepts)

    def _cut(self, run: str) -> Iterator[Word]:
        """A run of a script without blanks, cut at the entries that it holds."""
        at = 0
        for known in self._unspaced.finditer(run):
            if known.start() > at:
                yield Word(run[at : known.start()])
            yield Word(known[0], self._words[known[0]])
            at = known.end()
        if at < len(run):
            yield Word(run[at:])


@cache
def lexicon() -> Lexicon:
    """The lexicon that ships."""
    return Lexicon(files("forgetless.instructions").joinpath("lexicon.txt").read_text(encoding="utf-8"))


def _any(entries: Iterable[str]) -> re.Pattern[str]:
    """A pattern of the longest of some entries; of none it finds nothing."""
    ordered = sorted(entries, key=lambda entry: (-len(entry), entry))
    return re.compile("|".join(map(re.escape, ordered)) or r"(?!)")


def _folded(token: str) -> str:
    lower = token.lower()
    if lower.isascii():
        return lower
    return "".join([one for one in normalize("NFKD", lower.replace("’", "'")) if not combining(one)])
