"""Compressing replies by a model: asked once for each reply, and never believed blindly.

What comes back empty, no shorter, cut off, or with an identifier or a number that the reply does not have is not used,
nor is a model that fails: whole sentences are taken in its place, and the ledger says why.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass, field, replace

from forgetless.errors import ModelError
from forgetless.identifiers import contains, identifiers
from forgetless.messages import Text
from forgetless.models.base import Model
from forgetless.replies.loose import listed, mapping, string
from forgetless.tokens import Counter
from forgetless.units import Unit

__all__ = ["FAILED", "HEAD", "Rewrites"]

HEAD = "[Shortened by a model:] "
"""What a rewritten reply begins with."""

REASON, FAILED, TOO_LONG = "rewritten", "rewrite_failed", "rewrite_too_long"

LEAST = 48
"""Tokens of a reply below which a model is not asked: there is little to save."""

SHARE = 0.35
"""Of a reply's tokens, what is asked for."""

MOST = 4_096
"""Replies that are remembered."""

_NUMBER = re.compile(r"\d+")

INSTRUCTION = (
    "You shorten a message of an assistant. Keep what a later question may need: names, numbers, dates, decisions and "
    "results, each copied character by character. Leave out greetings, repetition and explanations of the obvious. "
    "Write nothing but the shortened message, at most {words} words."
)


@dataclass(frozen=True)
class Rewrites:
    """Rewrites replies.

    Attributes:
        model: what writes.
        known: what it wrote for the replies so far, or why that was no use, by the key of the unit.
    """

    model: Model
    known: OrderedDict[bytes, tuple[str, str]] = field(default_factory=OrderedDict, compare=False, repr=False)

    def __call__(self, unit: Unit, counter: Counter) -> tuple[Unit | None, str]:
        """A shorter unit in place of a reply, and the reason for the ledger; None where there is no usable one."""
        (message, *more) = unit.messages
        if more or unit.kind != "assistant" or [type(part) for part in message.parts] != [Text] or unit.tokens < LEAST:
            return None, ""
        (part,) = message.parts
        assert type(part) is Text
        text, reason = self._written(unit.key, part.text, counter)
        if reason:
            return None, reason
        short = replace(message, parts=(replace(part, text=HEAD + text),))
        tokens = counter.message(short)
        return (replace(unit, messages=(short,), tokens=tokens), REASON) if tokens < unit.tokens else (None, TOO_LONG)

    def _written(self, key: bytes, text: str, counter: Counter) -> tuple[str, str]:
        """What the model makes of a text, and why that is no use; asked once, unless it fails."""
        if (known := self.known.get(key)) is not None:
            return known
        try:
            made = self._ask(text, counter)
        except ModelError:
            return "", FAILED
        if key:
            self.known[key] = made
            while len(self.known) > MOST:
                self.known.pop(next(iter(self.known)), None)
        return made

    def _ask(self, text: str, counter: Counter) -> tuple[str, str]:
        size = counter.text(text)
        window = self.model.window
        if window is not None and size * 2 > window:
            return "", "rewrite_no_window"
        most = int(size * SHARE)
        body = {
            "messages": [
                {"role": "system", "content": INSTRUCTION.format(words=most * 2 // 3)},
                {"role": "user", "content": text},
            ],
            "max_tokens": most + most // 4,
            "temperature": 0,
            "seed": 0,
        }
        choice = next(iter(listed(self.model(body).get("choices"))), {})
        written = string(mapping(choice.get("message")).get("content")).strip()
        if choice.get("finish_reason") == "length":
            return written, TOO_LONG
        return written, _fault(written, text)


def _fault(written: str, text: str) -> str:
    """Why what a model wrote of a text is no use, empty where it is of use."""
    if not written:
        return "rewrite_empty"
    exact = all(contains(text, name) for name in identifiers(written))
    return "" if exact and set(_NUMBER.findall(written)) <= set(_NUMBER.findall(text)) else "rewrite_altered"
