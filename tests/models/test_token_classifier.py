"""LLMLingua-2's classifier: words and probabilities as the authors' package has them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import checkpoints
from forgetless.errors import ConfigError
from forgetless.models.token_classifier import TokenClassifier

pytest.importorskip("tokenizers")

TEXT = "the harbour of ab-12/x. We met"


@pytest.mark.parametrize(
    ("make", "words", "first"),
    [
        (checkpoints.bert, ["the", "harbour", "of", "ab", "-", "12", "/", "x", ".", "We", "met"], 0.27525),
        (checkpoints.xlm_roberta, ["the", "harbour", "of", "ab", "-12", "/x", ".", "We", "met"], 0.52649),
    ],
)
def test_words_are_the_papers(tmp_path: Path, make: checkpoints.Make, words: list[str], first: float) -> None:
    """BERT splits at every punctuation mark; XLM-RoBERTa begins a word at a blank and at a mark."""
    classifier = TokenClassifier(make(tmp_path, window=100, labels=2))
    (found,) = classifier([TEXT])
    assert [TEXT[word.start : word.end] for word in found] == words
    whole = TEXT + " at the old mill in 1987, near harbour. k"
    # The softmax of transformers' logits, the mean over a word's tokens.
    assert classifier([whole])[0][0].probability == pytest.approx(first, abs=1e-5)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> TokenClassifier:
    return TokenClassifier(checkpoints.xlm_roberta(tmp_path_factory.mktemp("small"), window=12, labels=2))


@given(st.text("ab 1.-/\n", max_size=80))
def test_long_texts_come_in_chunks_and_no_character_is_lost(small: TokenClassifier, text: str) -> None:
    (words,) = small([text])
    assert "".join(text[word.start : word.end] for word in words) == "".join(text.split())
    assert all(0 < word.probability < 1 and word.tokens > 0 for word in words)
    assert all(len(chunk) <= 10 for chunk in small._chunks(text))


def test_chunks_end_behind_a_full_stop(small: TokenClassifier) -> None:
    text = "ab. a1 b2 a3"
    chunks = [text[chunk[0].start : chunk[-1].end].strip() for chunk in small._chunks(text)]
    assert chunks == ["ab.", "a1 b2 a3"]


def test_another_head_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has 3 labels"):
        TokenClassifier(checkpoints.bert(tmp_path / "three", labels=3))
    with pytest.raises(ConfigError, match=r"no weights 'classifier\.weight'"):
        TokenClassifier(checkpoints.bert(tmp_path / "none"))
