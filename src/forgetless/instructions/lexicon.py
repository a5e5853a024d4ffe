"""Words and phrases of several languages, and the concepts that they stand for.

A concept is a set of words that do the same work in every language, so that what is learned of one language serves
the others. `lexicon.txt` holds them: lines of `concept: entry | entry`, in lower case and without accents; `*` stands
for any ending.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, NamedTuple
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
_PLAIN = re.compile(r"[A-Za-z0-9]+|[?!:;,.()]")
"""The same for ASCII without apostrophes, at twice the speed."""

_IS_UNSPACED = re.compile(f"[{_UNSPACED}]")
_ENCLITIC = re.compile(r"[a-z]{3,}(?:a|e|an|en|i)(?:me|nos|melo|mela|melos|melas)")
_ANY_NUMBER = "two"

MOST = 50_000
"""Words whose meaning is kept."""

_NONE: Mapping[str, Any] = MappingProxyType({})


class Word(NamedTuple):
    """A word or phrase as it was read.

    Attributes:
        text: in lower case and without accents; "0" for any number in digits.
        concepts: their numbers.
        phrases: those that begin with it, by their second word, the longest first: their words, what they stand for.
    """

    text: str
    concepts: tuple[int, ...] = ()
    phrases: Mapping[str, Sequence[tuple[Sequence[str], Word]]] = _NONE


class _Read(dict[str, Word]):
    """Words that were looked up: what a dict finds costs a tenth of a call."""

    def __init__(self, look_up: Callable[[str], Word]) -> None:
        super().__init__()
        self._look_up = look_up

    def __missing__(self, token: str) -> Word:
        if len(self) >= MOST:
            self.clear()
        found = self[token] = self._look_up(token)
        return found


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
        self._phrases: dict[str, dict[str, list[tuple[Sequence[str], Word]]]] = {}
        for entry, names in found.items():
            self._enter(entry, tuple(sorted({number[name] for name in names})))
        for phrases in self._phrases.values():
            for same in phrases.values():
                same.sort(key=lambda phrase: -len(phrase[0]))
        self._stem = _any(self._stems)
        runs = [word for word in self._words if _IS_UNSPACED.match(word)]
        self._unspaced = _any(runs)
        self._runs = {word: self._plain(word, self._words[word]) for word in runs}
        self._read = _Read(self._look_up)

    def _enter(self, entry: str, concepts: tuple[int, ...]) -> None:
        pieces = _TOKEN.findall(entry)
        if entry.endswith("*"):
            self._stems[entry[:-1]] = concepts
        elif len(pieces) > 1:
            same = self._phrases.setdefault(pieces[0], {}).setdefault(pieces[1], [])
            same.append((pieces, Word(" ".join(pieces), concepts)))
        else:
            self._words[entry] = concepts

    def __call__(self, text: str) -> list[Word]:
        """The words of a text in order; the longest phrase that the lexicon knows is one."""
        ascii_only = text.isascii()
        tokens = (_PLAIN if ascii_only and "'" not in text else _TOKEN).findall(text)
        if ascii_only or max(tokens, default="") < "\u3000":
            words = list(map(self._read.__getitem__, tokens))
        else:
            words = [word for token in tokens for word in self._of(token)]
        joined: list[Word] = []
        done = 0
        for at in [at for at, word in enumerate(words) if word.phrases]:
            found = self._phrase(words, at) if at >= done else None
            if found is not None:
                joined += words[done:at]
                joined.append(found[1])
                done = at + len(found[0])
        return joined + words[done:] if done else words

    def _phrase(self, words: Sequence[Word], at: int) -> tuple[Sequence[str], Word] | None:
        following = words[at + 1].text if at + 1 < len(words) else ""
        for phrase in words[at].phrases.get(following, ()):
            if [one.text for one in words[at : at + len(phrase[0])]] == phrase[0]:
                return phrase
        return None

    def _of(self, token: str) -> Iterator[Word]:
        if token == QUOTATION:
            yield Word(token, (self.form["quote"],))
        elif token > "\u3000":
            yield from self._cut(token)
        else:
            yield self._read[token]

    def _look_up(self, token: str) -> Word:
        word = _folded(token)
        phrases = self._phrases.get(word, _NONE)
        concepts = self._words.get(word, ())
        if not concepts:
            stem = self._stem.match(word)
            concepts = self._stems[stem[0]] if stem else ()
        if not concepts and word.isdecimal():
            return Word("0", self._words.get(_ANY_NUMBER, ()), self._phrases.get("0", _NONE))
        if not concepts and _ENCLITIC.fullmatch(word):
            concepts = (self.form["imperative"],)
        return Word(word, concepts, phrases)

    def _cut(self, run: str) -> Iterator[Word]:
        """A run of a script without blanks, cut at the entries that it holds."""
        at = 0
        for known in self._unspaced.finditer(run):
            if known.start() > at:
                yield self._plain(run[at : known.start()])
            yield self._runs[known[0]]
            at = known.end()
        if at < len(run):
            yield self._plain(run[at:])

    def _plain(self, text: str, concepts: tuple[int, ...] = ()) -> Word:
        return Word(text, concepts, self._phrases.get(text, _NONE))


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
