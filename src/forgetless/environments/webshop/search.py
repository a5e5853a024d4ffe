"""The shop's search engine: BM25 over an index that is made once, with Lucene's usual settings for passages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import log

from forgetless.text import words

__all__ = ["Index"]

K1, B = 0.9, 0.4


class Index:
    """Texts to search in.

    Args:
        texts: the documents.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._postings: dict[str, list[tuple[int, int]]] = {}
        lengths = []
        for at, text in enumerate(texts):
            found = words(text)
            lengths.append(len(found))
            for word, many in Counter(found).items():
                self._postings.setdefault(word, []).append((at, many))
        mean = sum(lengths) / max(1, len(lengths)) or 1.0
        self._damp = [K1 * (1 - B + B * length / mean) for length in lengths]

    def __call__(self, query: str, most: int) -> list[int]:
        """Places of the documents that share words with a query, the best first, equals in their order.

        Args:
            query: free text; a word that stands in it twice counts twice.
            most: documents to give.
        """
        scores: dict[int, float] = {}
        for word, times in Counter(words(query)).items():
            hits = self._postings.get(word, [])
            worth = times * log(1 + (len(self._damp) - len(hits) + 0.5) / (len(hits) + 0.5))
            for at, many in hits:
                scores[at] = scores.get(at, 0.0) + worth * many / (many + self._damp[at])
        return sorted(scores, key=lambda at: (-scores[at], at))[:most]
