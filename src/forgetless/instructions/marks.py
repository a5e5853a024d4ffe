"""Quotation marks: what stands between them is nobody's wish, and is hidden from the recognisers."""

from __future__ import annotations

import re

__all__ = ["FILLER", "QUOTATION", "hidden"]

QUOTATION = "\ue000"
"""Stands where a quotation begins that is hidden."""

FILLER = "\ue001"
"""Stands for each further character of it, so that all else keeps its place."""

# Each form begins with its mark and looks back behind it: the engine then skips to the next mark.
_QUOTE = re.compile(
    r"\"[^\"\n]{1,400}\"|“[^”]{1,600}”|„[^“”\"]{1,600}[“”\"]|«[^»]{1,600}»|「[^」]{1,600}」|『[^』]{1,600}』"
    r"|《[^》]{1,200}》|'(?<!\w')[^'\n]{1,300}'(?!\w)|‘(?<!\w‘)[^’\n]{1,300}’(?!\w)"
)


def hidden(text: str) -> str:
    """A text of the same length in which quotations are marks."""
    return _QUOTE.sub(lambda quote: QUOTATION + FILLER * (len(quote[0]) - 1), text)
