"""What a question points back to without naming it: "list them", "the second one".

REA keys a reply by its own words alone, so such a question is near to nothing (REA, Table 14). Words of the question
that say which reply is meant may be the user's own: a list of hotels need not have the word.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from forgetless.policies.rea.similarity import Similarity
from forgetless.text import words
from forgetless.units import Unit

__all__ = ["pointed"]

FEW = 12
"""Words of a question that may be all about what was said last."""

_BACK = re.compile(
    r"\b(?:it|them|they|these|those|that|this|the (?:first|second|third|last|other|next|previous|above)|one|ones|again|"
    r"continue|more|sie|diese[rsn]?|davon|nochmal|weiter|eso|esos|esas|ellos|lo|los|las|anterior|cela|ceux|celles|"
    r"ça|encore|précédent\w*)\b|那|这|這|它|上面|刚才|それ|これ|その|上の|続け",
    re.IGNORECASE,
)

_ORDINALS: Mapping[str, int] = {
    word: place
    for line in (
        "first second third fourth fifth sixth seventh eighth ninth tenth",
        "1st 2nd 3rd 4th 5th 6th 7th 8th 9th 10th",
        "erste zweite dritte vierte fünfte sechste siebte achte neunte zehnte",
        "ersten zweiten dritten vierten fünften sechsten siebten achten neunten zehnten",
        "primero segundo tercero cuarto quinto sexto séptimo octavo noveno décimo",
        "primera segunda tercera cuarta quinta sexta séptima octava novena décima",
        "premier deuxième troisième quatrième cinquième sixième septième huitième neuvième dixième",
    )
    for place, word in enumerate(line.split(), 1)
}
_DIGITS = {digit: place for place, digit in enumerate("一二三四五六七八九十", 1)}
# "the second", not "a second" of time; "number 2", "#2", "2."; 第二个, 2番目.
_NTH = re.compile(
    rf"\b(?:the|der|die|das|den|dem|el|la|le)\s+(?P<word>{'|'.join(sorted(_ORDINALS, key=len, reverse=True))})\b"
    r"|(?:#|\b(?:number|no\.|item|option|point|nummer|punkt|número|opción|numéro|option)\s+)(?P<number>\d{1,2})\b"
    r"|第(?P<han>[一二三四五六七八九十]|\d{1,2})(?:个|個|项|項|条|種|种|つ)?|(?P<me>\d{1,2})[番つ]目",
    re.IGNORECASE,
)
_ITEM = re.compile(r"^[ \t]*(?:[-*•–]|\d{1,2}[.)]|[a-z][.)])[ \t]+\S", re.MULTILINE)


def pointed(units: Sequence[Unit], asked: Unit, near: Similarity) -> frozenset[int]:
    """The replies that a question points to: indices of units.

    A question about the n-th of something means the list that is nearest to it, by the words of the reply and of
    what it answers; a short one where no list is near, the newest list. Another short question that points back means
    the turn before it.
    """
    short = len(words(asked.text)) <= FEW
    nth = _nth(asked.text)
    lists = [unit for unit in units[: asked.index] if unit.kind == "assistant" and _has(unit.text, nth)] if nth else []
    if lists:
        named = " ".join(word for word in words(asked.text) if len(word) > 3 or not word.isascii())
        said = near([f"{_before(units, unit)}\n{unit.text}" for unit in lists], named)
        best, index = max(zip(said, (unit.index for unit in lists), strict=True))
        return frozenset((index,)) if best > 0 or short else frozenset()
    if not short or not _BACK.search(asked.text):
        return frozenset()
    before = next((unit.index for unit in reversed(units[: asked.index]) if unit.kind == "user"), -1)
    return frozenset(unit.index for unit in units[before + 1 : asked.index] if unit.kind in ("assistant", "step"))


def _nth(question: str) -> int:
    """Which item of a list a question is about; 0 where it is about none."""
    found = _NTH.search(question)
    if found is None:
        return 0
    if word := found["word"]:
        return _ORDINALS[word.lower()]
    number = found["number"] or found["han"] or found["me"]
    return _DIGITS.get(number) or int(number)


def _has(text: str, nth: int) -> bool:
    """Whether a text has a list with that many items."""
    return len(_ITEM.findall(text)) >= max(nth, 2)


def _before(units: Sequence[Unit], reply: Unit) -> str:
    return next((unit.text for unit in reversed(units[: reply.index]) if unit.kind == "user"), "")
