"""Whether a reply keeps to a rule of MT-Eval's recollection dialogues: one function per kind of rule.

They decide as the benchmark's own checkers do (which follow IFEval's), but for the language of a reply, which another
library tells, and for sentences, which our splitter counts.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from forgetless.datasets.mt_eval import CLASSIFY, Recollection
from forgetless.errors import ConfigError, MissingExtra
from forgetless.sentences import sentences

__all__ = ["RULES", "follows"]

Rule: TypeAlias = Callable[..., bool]

_BULLET = re.compile(r"^\s*(?:\*[^*]|-).*$", re.MULTILINE)
_FENCED = re.compile(r"\A```(?:json)?|```\Z", re.IGNORECASE)
_EMOJI = re.compile(
    "[\U0001f000-\U0001faff\u2600-\u27bf\u2b00-\u2bff\u2190-\u21ff\u2300-\u23ff\u00a9\u00ae\u3030\u303d]"
)
_TOPIC = str.maketrans(dict.fromkeys(string.punctuation, " "))

LANGUAGES = MappingProxyType(
    {
        "Arabic": "ar", "Bengali": "bn", "Bulgarian": "bg", "English": "en", "Finnish": "fi", "French": "fr",
        "German": "de", "Gujarati": "gu", "Hebrew": "he", "Hindi": "hi", "Italian": "it", "Japanese": "ja",
        "Kannada": "kn", "Korean": "ko", "Malayalam": "ml", "Marathi": "mr", "Nepali": "ne", "Persian": "fa",
        "Polish": "pl", "Portuguese": "pt", "Punjabi": "pa", "Russian": "ru", "Spanish": "es", "Swahili": "sw",
        "Tamil": "ta", "Telugu": "te", "Thai": "th", "Ukrainian": "uk", "Urdu": "ur", "Vietnamese": "vi",
    }
)  # fmt: skip


def follows(dialogue: Recollection, turn: int, reply: str) -> bool:
    """Whether the reply to question `turn` (from 0) keeps to the dialogue's rule.

    Raises:
        ConfigError: there is no checker for the rule.
        MissingExtra: the rule is a language, and what tells languages is not installed.
    """
    if dialogue.rule == CLASSIFY:
        return dialogue.gold[turn].lower() in reply.lower().translate(_TOPIC)
    if dialogue.rule not in RULES:
        raise ConfigError(f"no checker for the rule {dialogue.rule!r}; known: {', '.join(sorted(RULES))}")
    return bool(reply.strip()) and RULES[dialogue.rule](reply, **dialogue.terms)


def _letter(reply: str, letter: str) -> bool:
    return reply.strip().lower().startswith(letter.lower())


def _emoji(reply: str) -> bool:
    return bool(_EMOJI.match(reply.strip()))


def _phrase(reply: str, end_phrase: str) -> bool:
    return reply.strip().strip("'").lower().endswith(end_phrase.lower())


def _language(reply: str, lang: str) -> bool:
    try:
        from py3langid import classify
    except ModuleNotFoundError as error:
        raise MissingExtra("languages", "py3langid") from error
    return bool(classify(reply)[0] == LANGUAGES[lang])


def _json(reply: str) -> bool:
    try:
        json.loads(_FENCED.sub("", reply.strip()).strip())
    except ValueError:
        return False
    return True


def _bullets(reply: str, num_bullets: int) -> bool:
    found = len(_BULLET.findall(reply))
    return found == num_bullets if num_bullets else found > 0


def _sentences(reply: str, num_sentences: int, relation: str) -> bool:
    found = sum(1 for _ in sentences(reply, code=True))
    return found < num_sentences if relation == "less than" else found > num_sentences


def _keywords(reply: str, keywords: list[str]) -> bool:
    return all(word.lower() in reply.lower() for word in keywords)


def _two(reply: str) -> bool:
    first, *others = (piece.strip() for piece in reply.split("******"))
    inner = [piece for piece in others[:-1] if not piece]
    said = [piece for piece in (first, *others) if piece]
    return not inner and len(said) == 2 and said[0] != said[1]


def _options(reply: str, response_options: list[str]) -> bool:
    return any(option in reply for option in response_options)


def _placeholders(reply: str, num_placeholder: int) -> bool:
    return len(re.findall(r"\[.*?\]", reply)) >= num_placeholder


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "startend:start_char": _letter,
        "startend:start_emoji": _emoji,
        "startend:end_phrase": _phrase,
        "language:response_language": _language,
        "format:json_format": _json,
        "format:bullet_list": _bullets,
        "length_constraints:number_sentences": _sentences,
        "keywords:existence": _keywords,
        "change_case:capital_letter": str.isupper,
        "change_case:lowercase": str.islower,
        "punctuation:no_comma": lambda reply: "," not in reply,
        "combination:two_responses": _two,
        "content:placeholder": _placeholders,
        "format:constrained_response": _options,
    }
)
"""MT-Eval's fourteen kinds of rule, by its names."""
