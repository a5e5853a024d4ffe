"""Words of all scripts, and BM25 over them: what scorers, recognisers and training share."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from math import log

__all__ = ["bm25", "words"]

# Scripts written without blanks between words: Thai, Lao, Khmer, kana, Han, Hangul syllables (whose words carry
# endings). A run of them is cut into overlapping pairs, which is what search engines do without a dictionary.
_UNSPACED = "\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
# ASCII letters and digits in lower case, blanks for all else: one pass at C speed, and `split` does the rest.
_ASCII = bytes(
    byte + 32 if 65 <= byte <= 90 else byte if chr(byte).isalnum() and byte < 128 else 32 for byte in range(256)
)
_WORD = re.compile(rf"[^\W_{_UNSPACED}]+|[{_UNSPACED}]+")
_IS_UNSPACED = re.compile(rf"[{_UNSPACED}]")


def words(text: str) -> list[str]:
    """Lower-case words in order; identifiers come apart at their punctuation, unspaced scripts as pairs."""
    if text.isascii():
        return text.encode("ascii").translate(_ASCII).decode("ascii").split()
    found: list[str] = []
    for run in _WORD.findall(text.lower()):
        if len(run) > 2 and _IS_UNSPACED.match(run):
            found.extend(run[i : i + 2] for i in range(len(run) - 1))
        else:
            found.append(run)
    return found


def bm25(texts: Sequence[str], query: str, *, k1: float = 1.5, b: float = 0.75) -> list[float]:
    """BM25 of each text for `query`, with an idf that is never negative (Lucene's).

    Args:
        texts: the documents; they are the corpus that idf and the mean length come from.
        query: free text; each distinct word counts once.
        k1: how soon repeating a word stops counting.
        b: how much longer texts are marked down.

    Returns:
        One score per text, 0 where no word of the query occurs.
    """
    documents = dict.fromkeys(words(query), 0)
    hits: list[Counter[str]] = []
    lengths: list[int] = []
    for text in texts:
        found = words(text)
        lengths.append(len(found))
        hit = Counter(filter(documents.__contains__, found))
        for word in hit:
            documents[word] += 1
        hits.append(hit)
    total = len(texts)
    worth = {word: (k1 + 1) * log(1 + (total - n + 0.5) / (n + 0.5)) for word, n in documents.items()}
    mean = (sum(lengths) / total if total else 0.0) or 1.0
    scores: list[float] = []
    for hit, length in zip(hits, lengths, strict=True):
        damp = k1 * (1 - b + b * length / mean)
        scores.append(sum([worth[word] * n / (n + damp) for word, n in hit.items()]))
    return scores
