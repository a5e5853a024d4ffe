"""The recogniser `rules`: phrases that say that something holds from here on, in six languages; precise, and no more.

A sentence counts when it says so and is no question. Quotations and code do not count.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from forgetless.instructions.base import Span
from forgetless.instructions.marks import hidden
from forgetless.sentences import sentences

__all__ = ["Rules"]

_REPLIES = "repl(?:y|ies)|answers?|responses?|messages?"
_LASTING = (
    # English
    r"^(?:please\s+|and\s+|also\s+|but\s+)?(?:from (?:now|here|this point) on(?:wards?)?|going forward|henceforth)\b",
    r"\bfrom (?:now|here) on,? (?:please|pls|i(?:'d| would) like|you|only|no|never|always|use|keep|reply|answer)\b",
    r"\b(?:please|answer|reply|write|speak|use|keep)\b.*\b(?:from (?:now|here) on|always|every time|throughout)\b",
    rf"\b(?:all|every|each|any) (?:of )?(?:your |the |future |following |upcoming )*(?:{_REPLIES})\b",
    rf"\b(?:next|following) (?:\w+ )?(?:{_REPLIES})\b",
    r"\b(?:rest of|in|throughout) (?:this|our|the) (?:whole )?(?:conversation|chat|session)\b|\bas long as we\b",
    r"^(?:please )?(?:always|never) (?!mind\b|been\b)[a-z]+(?! (?:has|had|was|were|is)\b)",
    r"\b(?:stay in character|don't (?:break|leave) character|until i (?:say|tell))\b",
    r"^(?:forget|ignore|disregard|drop) (?:the|my|what i)\b.*\b(?:limit|rule|said|told|instruction)",
    r"\b(?:every|each) time i\b|\bwhenever i (?:send|paste|ask|give|mention|say)\b|\buntil further notice\b",
    # German
    r"^(?:bitte\s+)?(?:ab (?:jetzt|sofort)|von (?:nun|jetzt) an|künftig|in zukunft)\b(?! (?:hält|ist|gibt))",
    r"\b(?:alle[nr]?|jede[rnm]?) (?:deine[rn]?|weiteren|künftigen)? ?(?:antwort|nachricht)\w*",
    r"\b(?:nächsten|kommenden|folgenden) (?:\w+ )?(?:antwort|nachricht)\w*|\bbis ich\b.*\bsage?\b",
    r"^(?:antworte|schreib|sprich|nenn|gib|verwende|benutze?|sag)\w*(?: \w+){0,2} (?:immer|nie|niemals|stets)\b",
    r"^(?:bitte )?(?:immer|nie|niemals|stets) (?:\S+ ){0,4}\S+en\b",
    r"\brest (?:dieses|unseres) gesprächs\b|\bsolange wir\b|\bbis auf weiteres\b|\bjedes mal, wenn ich\b.*,",
    r"\bvergiss (?:das|die|den)\b.*\b(?:wörter|limit|regel|grenze)",
    # Spanish
    r"^(?:a partir de (?:ahora|aquí)|de ahora en adelante|desde ahora|en adelante)\b(?!,? (?:el|la|los) )",
    r"\b(?:todas|cada una de) tus respuestas\b|\bcada respuesta\b|\bhasta que (?:yo )?(?:te )?diga\b",
    r"\b(?:próximas|siguientes) (?:\w+ )?(?:respuestas|mensajes)\b|\b(?:respuestas|mensajes) (?:próxim|siguient)\w+",
    r"^(?:nunca|jamás|siempre) \w+(?:es|as)\b|^(?:respónde|contésta|hábla|escríbe|trát|lláma)\w*\b.*\bsiempre\b",
    r"\b(?:resto|toda) (?:de )?(?:la|esta) (?:conversación|charla)\b|\bmientras dure esta\b|\bcada vez que te\b",
    r"\bolvida (?:lo|el|la)\b.*\b(?:límite|regla|norma)",
    # French
    r"^(?:désormais|dorénavant|à partir (?:de maintenant|d'ici|de là)|à l'avenir)\b(?!,? (?:le|la|les) )",
    r"\btoutes (?:tes|vos) réponses\b|\bchaque réponse\b|\bjusqu'à ce que je\b|\btant que (?:nous|on) parl",
    r"\b(?:prochaines|suivantes) réponses\b|\b(?:prochains|suivants) messages\b|\bréponses suivantes\b",
    r"^(?:réponds|répondez|écris|mets|donne|cite|utilise|parle)\S* (?:\S+ ){0,2}toujours\b|^n(?:e |')\S+ jamais\b",
    r"\btout au long de (?:notre|cet)|\btoute la conversation\b|\bchaque fois que j\W?|\bjusqu'à nouvel ordre\b",
    r"\boublie\w* (?:la|le|les)\b.*\b(?:limite|règle|consigne)",
    # Chinese and Japanese
    r"(?:从现在(?:起|开始)|从今(?:往|以)后|今后|以后|往后)[^，。]{0,12}(?:请|用|别|不要|不许|回答|回复|都|先)",
    r"每(?:次|个|条)(?:回答|回复)|(?:所有|全部)的?(?:回答|回复)|接下来的?.{0,5}(?:回答|回复|消息|次)|直到我(?:说|喊)",
    r"^(?:请)?(?:永远|千万|绝对)(?:别|不要|不许|不能)|(?:取消|作废|忘掉).{0,6}(?:限制|规矩|规则)",
    r"(?:これから|今後|以後|以降)は?.{0,24}(?:ください|お願い|ないで|て。|して$|こと)",
    r"(?:すべて|全部|毎回)の?(?:回答|返事|返信)|(?:回答|返事|返信).{0,6}(?:毎回|必ず|いつも|常に)|次の.{1,4}(?:返事|回答|メッセージ)",
    r"(?:いつも|常に|必ず|絶対に|決して).{0,20}(?:ください|ないで(?:。|$)|こと(?:。|$))",
)
_FOUND = re.compile("|".join(_LASTING), re.IGNORECASE)
_ASKED = re.compile(r"[?？]|(?:ですか|ますか|でしょうか)[。]?$|吗[。]?$")
# Comments in code, and what somebody else is to be told.
_NOT_TO_US = re.compile(
    r"^(?:#|//|;|/\*)|\b(?:prompt|note|email|mail|memo|config|policy|says?|told|tell|remind|she|he|his|her)\b"
    r"|帮我(?:给|写)|写(?:封|份|条)|を書いて|を作って",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Rules:
    """Finds the sentences that say that they hold on."""

    def __call__(self, text: str) -> list[Span]:
        """The sentences that match."""
        plain = hidden(text)
        return [(start, end) for start, end in sentences(plain) if _holds_on(plain[start:end])]


def _holds_on(sentence: str) -> bool:
    return bool(_FOUND.search(sentence)) and not _ASKED.search(sentence) and not _NOT_TO_US.search(sentence)
