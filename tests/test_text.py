"""Words of all scripts, and BM25 against a plain reading of its formula."""

from __future__ import annotations

from math import isclose, log

from hypothesis import given
from hypothesis import strategies as st

from forgetless.text import bm25, words


def test_words_of_many_scripts() -> None:
    assert words("The RUN-7f3c of ledger_v3.parquet") == [
        "the",
        "run",
        "7f3c",
        "of",
        "ledger",
        "v3",
        "parquet",
    ]
    assert words("合同编号在哪") == ["合同", "同编", "编号", "号在", "在哪"]
    assert words("価格は？") == ["価格", "格は"]
    assert words("Straße и Цена, قيمة") == ["straße", "и", "цена", "قيمة"]
    assert words("漢 text") == ["漢", "text"]
    assert words("") == words("... !?") == []


@given(st.text())
def test_words_never_raises_and_gives_no_empty_words(text: str) -> None:
    assert all(words(text))


@given(
    st.lists(st.lists(st.sampled_from("abcde"), max_size=8).map(" ".join), max_size=8),
    st.sampled_from(["a", "a b", "e e d", ""]),
)
def test_bm25_is_its_formula(texts: list[str], query: str) -> None:
    docs = [text.split() for text in texts]
    mean = sum(map(len, docs)) / len(docs) if any(docs) else 1.0
    for doc, got in zip(docs, bm25(texts, query), strict=True):
        want = 0.0
        for term in set(query.split()):
            n = sum(term in d for d in docs)
            idf = log(1 + (len(docs) - n + 0.5) / (n + 0.5))
            tf = doc.count(term)
            want += idf * tf * 2.5 / (tf + 1.5 * (0.25 + 0.75 * len(doc) / mean))
        assert isclose(got, want, rel_tol=1e-9, abs_tol=1e-12)
