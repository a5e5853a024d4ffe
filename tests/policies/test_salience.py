"""TF-IDF salience: scikit-learn's weights, without scikit-learn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetless import compact
from forgetless.policies.salience import weights
from forgetless.text import words

TEXTS = st.lists(st.lists(st.sampled_from(["ship", "Mill", "the", "合同编号", "x-1", "\n"]), max_size=12).map(" ".join))


@given(TEXTS)
def test_weights_are_those_of_scikit_learn(texts: list[str]) -> None:
    text = pytest.importorskip("sklearn.feature_extraction.text")
    if not any(map(words, texts)):
        assert weights(texts) == [0.0] * len(texts)
        return
    theirs = text.TfidfVectorizer(analyzer=words).fit_transform(texts).sum(axis=1)
    assert weights(texts) == pytest.approx(theirs.ravel().tolist()[0])


def test_what_few_others_say_weighs_more() -> None:
    said = ["how are you today", "the violin of Ines", "how are you now", "how are you then"]
    assert max(weights(said)) == weights(said)[1]


def test_many_short_units_do_not_push_out_the_one_with_the_most() -> None:
    rare = "Ines left the old violin at the mill beyond the harbour on Tuesday"
    said = ["Begin.", rare, *["Fine."] * 6, "End."]
    messages = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(said)]
    budget = sum(4 + len(text) for text in (said[0], rare, said[-1]))
    done = compact(messages, budget=budget, policy="salience", counter=len)
    assert [entry.unit for entry in done.ledger if entry.form == "raw"] == [0, 1, 8]
