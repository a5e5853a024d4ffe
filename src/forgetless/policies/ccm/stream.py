"""Takes tagged memory blocks out of a text as it streams, wherever it is cut.

A tag inside a code fence, inline code or the thoughts that open a reply (`<think>`) is text. So is a block that is
never closed: its text goes on without its opening tag, since what is memory and what is action can't be told apart
any more, and the memory before it stays. But where the reply was cut off in it, all of it is memory, and dropped.
Blanks around a block go with it. A text without a block goes on byte for byte.

Simplified from Markdown: inline code ends on its line, within `SPAN` characters.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from forgetless.policies.ccm.blocks import Block

__all__ = ["TAGS", "Stream"]

TAGS: Final[dict[str, Literal["whole", "edit"]]] = {"memory": "whole", "memory_edit": "edit"}

SPAN: Final = 400
"""Most characters of inline code and of what stands behind an opening fence; so much is held back at most."""

_THINK, _THOUGHT = "<think>", "</think>"
_OPENS: Final = {f"<{tag}>": tag for tag in TAGS}
_MARKS = re.compile(r"[`<\n]")
_BLANKS = re.compile(r"\s*")
_TICKS = re.compile(r"`+")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_MAYBE_FENCE = re.compile(r" {0,3}(?:`+|~+)?")
_SHUT = re.compile(r" {0,3}(`+|~+)?[ \t\r]*")


class Stream:
    """Takes blocks between `<memory>` or `<memory_edit>` and their closing tags out of a text; see `Taker`."""

    def __init__(self) -> None:
        """Begin a text."""
        self.blocks: list[Block] = []
        self.broken = 0
        self._text = ""  # what is not decided yet, from `_at` on
        self._at = 0
        self._final = False
        self._cut: bool | None = None
        self._tag = ""  # of the block that is open
        self._searched = 0  # how far its end has been looked for
        self._never: set[str] = set()  # tags that are known not to be closed any more
        self._skips = False  # blanks go with the block before them
        self._thinks = False
        self._fence = ""  # that opened the code that is open
        self._line = True  # a line begins here
        self._lead = ""  # blanks with which the text begins, until it is known whether a block follows
        self._begun = False  # more than blanks went on
        self._last = "\n"

    def feed(self, text: str) -> str:
        """Take a piece; what may go on by now."""
        self._text += text
        return self._scan()

    @property
    def open(self) -> bool:
        """Whether a block has begun and not ended."""
        return bool(self._tag)

    def end(self, cut: bool | None = False) -> str:
        """The text is over: the rest of what goes on; see `Taker`."""
        self._final, self._cut = True, cut
        rest = self._scan()
        if not self._tag and not self._begun and not self.blocks and not self.broken:
            rest, self._lead = self._lead + rest, ""
        return rest

    def _scan(self) -> str:
        out = []
        while self._at < len(self._text) or (self._final and self._tag):
            piece = self._step()
            if piece is None:
                break
            out.append(self._hand(piece))
        self._searched = max(0, self._searched - self._at)
        self._text, self._at = self._text[self._at :], 0
        return "".join(out)

    def _step(self) -> str | None:
        """What goes on next, empty where something was taken out; None where more has to come first."""
        modes = ((self._tag, self._block), (self._skips, self._blanks), (self._thinks, self._thought))
        for on, go in (*modes, (self._fence, self._code)):
            if on:
                return go()
        if self._line:
            opens = self._opens_fence()
            if opens is None:
                return None
            self._line = False
            if opens:
                return self._to(self._at + len(opens))
        return self._words()

    def _hand(self, text: str) -> str:
        """What goes on of a piece: blanks at the start wait for what follows them."""
        if not self._begun:
            text, self._lead = self._lead + text, ""
            if not text.strip():
                self._lead = text
                return ""
            self._begun = True
        if text:
            self._last = text[-1]
        return text

    def _to(self, end: int) -> str:
        start, self._at = self._at, end
        return self._text[start:end]

    def _block(self) -> str | None:
        """Go to the end of the block that is open."""
        tag = self._tag
        close = f"</{tag}>"
        end = self._text.find(close, max(self._at, self._searched))
        if end < 0 and self._cut is None:
            self._searched = max(self._at, len(self._text) - len(close) + 1)
            return None
        self._tag, self._searched = "", 0
        if end < 0:
            self.broken += 1
            self._never.add(tag)
            self._at = len(self._text) if self._cut else self._at
            return ""
        self.blocks.append(Block(TAGS[tag], self._text[self._at : end]))
        self._at = end + len(close)
        self._lead = ""
        self._skips = self._last.isspace()
        return ""

    def _blanks(self) -> str | None:
        """Leave out the blanks behind a block, but for the indentation of the line that follows."""
        found = _BLANKS.match(self._text, self._at)
        end = found.end() if found else self._at
        if end == len(self._text) and not self._final:
            return None
        newline = self._text.rfind("\n", self._at, end)
        if newline >= 0:
            self._line = True
        self._at = newline + 1 if newline >= 0 and end < len(self._text) else end
        self._skips = False
        return ""

    def _thought(self) -> str | None:
        end = self._text.find(_THOUGHT, self._at)
        if end >= 0:
            self._thinks = False
            return self._to(end + len(_THOUGHT))
        keep = 0 if self._final else _partial(self._text, self._at, _THOUGHT)
        return self._to(len(self._text) - keep) or None

    def _code(self) -> str | None:
        """Go on in a code fence, line by line."""
        newline = self._text.find("\n", self._at)
        whole = newline >= 0 or self._final
        end = newline if newline >= 0 else len(self._text)
        if self._line:
            shut = _SHUT.fullmatch(self._text, self._at, end)
            if shut and not whole:
                return None
            if shut and (shut[1] or "").startswith(self._fence):
                self._fence = ""
        self._line = newline >= 0
        return self._to(end + 1 if newline >= 0 else end)

    def _opens_fence(self) -> str | None:
        """The fence that opens a code block here, or nothing; None where more has to come."""
        text, at = self._text, self._at
        found = _FENCE.match(text, at)
        if found is None:
            maybe = _MAYBE_FENCE.match(text, at)
            return "" if self._final or maybe is None or maybe.end() < len(text) else None
        if found.end() == len(text) and not self._final:
            return None
        if found[1][0] == "`":
            stop = _first(text, "`\n", found.end())
            if stop < 0 and len(text) < found.end() + SPAN and not self._final:
                return None
            if 0 <= stop < found.end() + SPAN and text[stop] == "`":
                return ""  # inline code with many ticks
        self._fence = found[1]
        return found[0]

    def _words(self) -> str | None:
        """Go on outside code to the next mark, or over it."""
        found = _MARKS.search(self._text, self._at)
        if found is None:
            return self._to(len(self._text))
        if found.start() > self._at:
            return self._to(found.start())
        if found[0] == "\n":
            self._line = True
            return self._to(found.end())
        return self._inline() if found[0] == "`" else self._angle()

    def _inline(self) -> str | None:
        """Inline code as a whole; ticks that nothing closes alone."""
        text = self._text
        ticks = _TICKS.match(text, self._at)
        assert ticks is not None
        start, most = ticks.end(), ticks.end() + SPAN
        if start == len(text) and not self._final:
            return None
        newline = text.find("\n", start, most)
        stop = newline if newline >= 0 else min(len(text), most)
        for run in _TICKS.finditer(text, start, stop):
            ends = run.end() < stop or stop < len(text) or self._final
            if not ends:
                return None  # it may become longer
            if len(run[0]) == len(ticks[0]) and text[run.end() : run.end() + 1] != "`":
                return self._to(run.end())
        if newline < 0 and len(text) < most and not self._final:
            return None
        return self._to(start)

    def _angle(self) -> str | None:
        """What an angle bracket begins."""
        text, at = self._text, self._at
        for opening, tag in _OPENS.items():
            if text.startswith(opening, at):
                self._at = at + len(opening)
                if tag in self._never:
                    self.broken += 1
                else:
                    self._tag, self._searched = tag, self._at
                return ""
        if text.startswith(_THINK, at) and not self._begun:
            self._thinks = True
            return self._to(at + len(_THINK))
        rest = text[at : at + 16]
        if not self._final and any(opening.startswith(rest) for opening in (*_OPENS, _THINK)):
            return None
        return self._to(at + 1)


def _first(text: str, marks: str, at: int) -> int:
    """Where the first of some characters stands from a place on; -1 where none does."""
    return min((place for mark in marks if (place := text.find(mark, at, at + SPAN)) >= 0), default=-1)


def _partial(text: str, at: int, mark: str) -> int:
    """How many characters at the end may be the beginning of a mark."""
    return next((n for n in range(min(len(mark) - 1, len(text) - at), 0, -1) if text.endswith(mark[:n])), 0)
