"""LRE's conversation scorer as the paper has it, for comparison: TF-IDF of 10,000 words beside six features.

Recipe: TF-IDF without English stop words, six standardised features of a turn's place and looks, logistic regression
with L2, C = 1, both classes weighing the same. Fitted and used in one process; nothing of it is kept in a file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from forgetless.errors import MissingExtra

__all__ = ["Part", "fit_tfidf", "salience", "trajectory"]

Floats = NDArray[np.float64]
Part = Literal["words", "trajectory"]

WORDS = 10_000


def trajectory(texts: Sequence[str]) -> Floats:
    """The six features of each turn: place, recency, length, digits, question mark, capitalised words: [turns, 6]."""
    many = len(texts)
    rows = [
        (
            at / max(1, many),
            1 / (many - at),
            np.log1p(len(text.split())),
            sum(character.isdigit() for character in text),
            "?" in text,
            sum(word[:1].isupper() for word in text.split()),
        )
        for at, text in enumerate(texts)
    ]
    return np.array(rows, np.float64).reshape(many, 6)


def fit_tfidf(
    talks: Sequence[Sequence[str]],
    labels: Sequence[NDArray[np.bool_]],
    parts: Sequence[Part] = ("words", "trajectory"),
    *,
    seed: int = 0,
) -> Callable[[Sequence[str]], Floats]:
    """Fit to conversations, given as the texts of their turns; what comes back scores another one.

    Raises:
        MissingExtra: scikit-learn is not installed.
    """
    try:
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import FeatureUnion, make_pipeline
        from sklearn.preprocessing import FunctionTransformer, StandardScaler
    except ImportError:
        raise MissingExtra("train", "scikit-learn") from None
    blocks = {
        "words": make_pipeline(FunctionTransformer(_texts), _vectorizer()),
        "trajectory": make_pipeline(FunctionTransformer(_numbers), StandardScaler()),
    }
    model = make_pipeline(
        FeatureUnion([(part, blocks[part]) for part in parts]),
        LogisticRegression(C=1.0, class_weight="balanced", max_iter=1_000, random_state=seed),
    )
    model.fit([turn for texts in talks for turn in _turns(texts)], np.concatenate(list(labels)))

    def scores(texts: Sequence[str]) -> Floats:
        odds: Floats = model.decision_function(_turns(texts))
        return odds

    return scores


def _turns(texts: Sequence[str]) -> list[tuple[str, Floats]]:
    return list(zip(texts, trajectory(texts), strict=True))


def _texts(turns: Sequence[tuple[str, Floats]]) -> list[str]:
    return [text for text, _ in turns]


def _numbers(turns: Sequence[tuple[str, Floats]]) -> Floats:
    return np.array([numbers for _, numbers in turns])


def salience(texts: Sequence[str]) -> Floats:
    """The sum of each turn's TF-IDF weights within its conversation.

    Raises:
        MissingExtra: scikit-learn is not installed.
    """
    return np.asarray(_vectorizer().fit_transform(texts).sum(axis=1), np.float64).ravel()


def _vectorizer() -> Any:
    try:
        from sklearn.feature_extraction.text import TfidfVectorizer
    except ImportError:
        raise MissingExtra("train", "scikit-learn") from None
    return TfidfVectorizer(stop_words="english", max_features=WORDS)
