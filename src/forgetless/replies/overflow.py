"""Recognises the errors by which providers say that a request has more tokens than the model's context holds.

There is no standard: most say it in a sentence, some with a code, few with numbers as fields. Limits on tokens a
minute, on the length of the reply and on the size in bytes read alike and are something else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from forgetless.replies.loose import count, mapping

__all__ = ["Overflow", "overflow"]


@dataclass(frozen=True, slots=True)
class Overflow:
    """What a provider said of a request that is too long.

    Attributes:
        limit: most tokens that it takes, None where it did not say.
        tokens: what the request came to by its count, with the room for the reply where the limit is on both.
    """

    limit: int | None
    tokens: int | None


def overflow(status: int, body: Any) -> Overflow | None:
    """What an error says of a request that is too long; None when it is another error.

    Args:
        status: of the HTTP answer; 200 for an error inside an event stream.
        body: the body, decoded or not, or the data of an error event.
    """
    body = _decoded(body)
    text = "\n".join(_told(body))[:_MOST]
    if not _SAID.search(text):
        return None
    if (status in (413, 429) or _RATE.search(text)) and "context" not in text.lower():
        return None
    error = mapping(mapping(body).get("error") or body)
    limit, tokens = count(error.get("n_ctx")), count(error.get("n_prompt_tokens"))
    return Overflow(limit or _sum(_LIMITS, text), tokens or _sum(_TOKENS, text))


_MOST = 20_000
_DEPTH = 6
_KEYS = ("error", "errors", "message", "detail", "msg", "metadata", "raw", "code", "type", "status", "param")
"""Where errors say what they are. What some servers repeat of the request (`input`, say) is not read."""


def _decoded(body: Any) -> Any:
    if not isinstance(body, str | bytes | bytearray):
        return body
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return body.decode("utf-8", "replace") if isinstance(body, bytes | bytearray) else body


def _told(value: Any, depth: int = _DEPTH) -> Iterator[str]:
    """The strings that tell what went wrong."""
    if isinstance(value, str):
        yield value
    elif depth and isinstance(value, list):
        for item in value[:8]:
            yield from _told(item, depth - 1)
    elif depth and isinstance(value, Mapping):
        for key in _KEYS:
            yield from _told(value.get(key), depth - 1)


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE)


def _each(*patterns: str) -> tuple[re.Pattern[str], ...]:
    """Patterns in which `#` is a number, bounded so that no text takes long."""
    return tuple(re.compile(p.replace("#", r"(\d[\d,]{0,14})"), re.IGNORECASE) for p in patterns)


_RATE = _any(
    r"\bper[ -](?:min|minute|hour|day)\b", r"\brate.?limit", r"\bTPM\b", r"\bquota\b", r"throttl", r"please wait"
)

_SAID = _any(
    r"context[ _]?(?:length|window|size|limit)(?: has been)?[ _]?exceed",
    r"\b(?:exceed\w*|(?:longer|greater|larger) than|too large for)\b[^.\n]{0,60}? context (?:length|window|size|limit)",
    r"exceed_context_size",
    r"max_prompt_tokens_exceeded",
    r"maximum context length is",
    r"context length (?:is|of) only",
    r"\b(?:prompt|input)(?: is)? too long",
    r"\b(?:prompt|input)[ _]tokens?\b[^.\n]{0,40}? exceed",
    r"(?:longer than|exceeds?) the maximum (?:model |allowed )?(?:input )?length",
    r"maximum prompt length is",
    r"range of input length should be",
    r"`inputs` (?:tokens \+|must have less than)",
    r"exceeded model token limit",
    r"too many (?:input tokens|tokens: )",
    r"reduce the length of the (?:messages|prompt|input)",
)

_LIMITS = _each(
    r"(?:context|maximum prompt|model) length (?:is|of)(?: only)? #",
    r"(?:context window|configured limit|the limit|allowed(?: input)? length) of #",
    r"(?:context size|context length|allowed length|tokens allowed) \(#",
    r"for model with # maximum context",
    r"(?:> |n_ctx: |token limit: |limit is |this model is |must be <= |less than )#",
    r"length should be \[\d+, ?#",
)

_TOKENS = _each(
    r"total of(?: at least)? # tokens",
    r"resulted in # tokens",
    r"requested(?: about)? # tokens",
    r"is too large: #\.[^\n]{0,120}? has # input tokens",
    r"passed # input tokens and requested # output",
    r"# \+ # >",
    r"# tokens > ",
    r"\(# tokens\) (?:exceed|is longer)",
    r"token count(?: of)? \(?#",
    r"(?:contains|has) # tokens",
    r"given: # `inputs` tokens and # `max_new_tokens`",
    r"given: #",
    r"current length is #",
    r"requested: #",
    r"prompt (?:\(length|length of) #",
    r"requested tokens \(#",
    r"too long: # tokens",
    r"input length #",
    r"n_keep: #",
    r"keep the first # tokens",
)


def _sum(patterns: tuple[re.Pattern[str], ...], text: str) -> int | None:
    """The number that the first fitting pattern finds; the sum where it finds several."""
    found = next(filter(None, (pattern.search(text) for pattern in patterns)), None)
    return sum(int(number.replace(",", "")) for number in found.groups()) if found else None
