"""What a standing instruction is about, how long it holds, and which earlier ones it ends.

Patterns in English, German, Spanish, French, Chinese and Japanese. They are asked only of what a recogniser has found.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from forgetless.text import words

__all__ = ["Terms", "terms"]

_LANGUAGES = "|".join(
    (
        "english|german|spanish|french|italian|portuguese|dutch|chinese|mandarin|japanese|korean|russian|arabic|hindi",
        "englisch|deutsch|spanisch|französisch|italienisch|portugiesisch|niederländisch|chinesisch|japanisch",
        "inglés|alemán|español|francés|italiano|portugués|chino|japonés",
        "anglais|allemand|espagnol|français|italien|portugais|néerlandais|chinois|japonais",
    )
)

# Of each of these a conversation has one at a time: the newest.
_ONE = {
    "language": (
        rf"\b(?:in|into|auf|en|to|using|use|au)\s+(?:plain\s+|simple\s+)?(?:{_LANGUAGES})\b",
        "[用说講讲][中英日法德西韩]文|[中英日法德韓韩]\\S?語?[语語で]",
    ),
    "name": (
        r"\b(?:call|address)\s+(?:me|us)\b",
        r"\bnenn(?:e|t)?\s+mich\b|\b(?:duz|siez)\w*",
        r"\bll[aá]m[ae]me\b|\btut[eé]a?me\b",
        r"\bappelle[zs]?-?\s*moi\b|\b(?:tuto[iy]|vouvo[iy])\w*",
        "叫我|称呼我|と呼んで",
    ),
    "persona": (
        r"\b(?:you are|you're|act as|pretend to be|play the (?:part|role)|stay in character|speak like)\b",
        r"\b(?:du bist|spiel(?:e|st)?|eres|actúa como|tu es|vous êtes|joue[zs]? le rôle)\b",
        "你是|扮演|あなたは",
    ),
}
# Of these there may be several; a later one ends an earlier one only when it says that it takes its place.
_MANY = {
    "length": (
        r"\b(?:words?|sentences?|lines?|paragraphs?|characters?|short|brief|concise|long|longer|length)\b",
        r"\b(?:wörter|sätze|zeilen|kurz|länge|lang|palabras|frases|líneas|corto|breve|largo)\b|\bwort\w*grenze\b",
        r"\b(?:mots|phrases|lignes|court|bref|long|longueur)\b",
        "[字句行]|短く|简短|簡潔|简洁|长",
    ),
    "form": (
        r"\b(?:bullet\w*|lists?|tables?|markdown|json|yaml|headings?|plain text|numbered|prose)\b",
        r"\b(?:stichpunkt\w*|listen?|tabellen?|viñetas?|tablas?|puces?|listes?|tableaux?)\b",
        "列表|表格|箇条書き|マークダウン",
    ),
    "tone": (
        r"\b(?:formal\w*|informal\w*|polite\w*|casual\w*|friendly|humou?r\w*|jok\w+|serious\w*)\b",
        r"\b(?:höflich|locker|formell|educad[oa]|formelle?|poli\w*)\b",
        "敬語|语气|正式|丁寧",
    ),
    "emoji": (r"\b(?:emojis?|smileys?)\b", "表情|絵文字"),
    "code": (r"\b(?:tabs?|spaces|indent\w*|snake.?case|camel.?case|type hints?|docstrings?|comments?|semicolons?)\b",),
    "asking": (
        r"\b(?:ask|confirm|check with) me\b|\bfrag\w*\s+mich\b",
        r"\bpreg[uú]nta\w*me\b|\bdemande[zs]?-?\s*moi\b",
        "问我|聞いて",
    ),
}


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_PATTERNS = {topic: _any(*patterns) for topic, patterns in (_ONE | _MANY).items()}
_WITHDRAWN = _any(
    r"\b(?:forget|ignore|drop|scrap|cancel|lift|disregard|skip)\s+(?:about\s+)?(?:the|that|my|all|what|every)\b",
    r"\b(?:no longer|not any ?more|never ?mind|you can stop)\b",
    r"\bstop (?:doing|using|answering|replying|writing|calling|being)\b",
    r"\b(?:vergiss|ignorier\w*|nicht mehr|hör auf|olvida|ignora|ya no|deja de)\b",
    r"\b(?:oublie[zs]?|ignore[zs]?|ne \w+ plus|arrête[zs]?)\b",
    r"忘掉|忘记|不用再|不再|取消|忘れて|もう\S*(?:ない|いい|不要)|やめて",
)
_REPLACED = _any(
    r"\b(?:instead|from now on|rather than|switch(?:ing)? (?:back )?to|back to|change of plans?|actually|now)\b",
    r"\b(?:from here on|stattdessen|ab jetzt|ab sofort|von nun an|lieber|doch)\b",
    r"\b(?:en vez de|en su lugar|a partir de ahora|mejor|ahora)\b",
    r"\b(?:plutôt|à la place|désormais|dorénavant|à partir de maintenant|maintenant)\b",
    "改为|改成|改用|从现在|换成|今后|代わりに|これから|今後|に変えて",
)
_REPLIES = _any(
    r"\b(?:next|nächsten|próxim[ao]s|prochaines?)\s+(\d+|\w+)\s+(?:\w+\s+)?(?:repl|respon|answer|messag|turn|antwort|"
    r"nachricht|respuest|mensaj|répons)",
    r"\b(\d+|\w+)\s+(?:próxim[ao]s|prochaines?)\s+(?:respuest|mensaj|répons|messag)",
    r"(?:接下来|接下來|之后|下面)\S{0,3}?(\d+|[一二两三四五六七八九十])\S{0,3}(?:回复|回答|条|次|轮)",
    r"(?:次|これから|今後)の?(\d+|[一二三四五六七八九十])(?:回|つ|件)",
)
_COUNTS = {
    word: number
    for line in (
        "one two three four five six seven eight nine ten",
        "eine zwei drei vier fünf sechs sieben acht neun zehn",
        "una dos tres cuatro cinco seis siete ocho nueve diez",
        "une deux trois quatre cinq six sept huit neuf dix",
        "一 二 三 四 五 六 七 八 九 十",
        "1 两",
        "- couple few",
    )
    for number, word in enumerate(line.split(), 1)
}


@dataclass(frozen=True, slots=True)
class Terms:
    """What an instruction is about, and how it stands to others.

    Attributes:
        topics: of `_ONE` and `_MANY`.
        words: its words.
        replies: for how many replies it holds; 0 where it does not say.
        withdraws: whether it takes an earlier one back.
        replaces: whether it says that it takes the place of one.
    """

    topics: frozenset[str]
    words: frozenset[str]
    replies: int = 0
    withdraws: bool = False
    replaces: bool = False

    def ends(self, earlier: Terms) -> bool:
        """Whether an instruction with these terms ends an earlier one."""
        same = self.topics & earlier.topics
        if self.replies:
            return False  # the earlier one holds again when this one is over
        if self.withdraws:
            return bool(same) or (not self.topics and len(self.words & earlier.words) >= 2)
        return bool(same) if self.replaces else bool(same & _ONE.keys())


@lru_cache(maxsize=4_096)
def terms(text: str) -> Terms:
    """The terms of an instruction, from its words."""
    topics = frozenset(topic for topic, pattern in _PATTERNS.items() if pattern.search(text))
    content = frozenset(word for word in words(text) if len(word) > 3 or not word.isascii())
    withdraws, replaces = (bool(pattern.search(text)) for pattern in (_WITHDRAWN, _REPLACED))
    return Terms(topics, content, _replies(text), withdraws, replaces)


def _replies(text: str) -> int:
    found = _REPLIES.search(text)
    if found is None:
        return 0
    given = next(filter(None, found.groups())).lower()
    return int(given) if given.isdecimal() else _COUNTS.get(given, 1)
