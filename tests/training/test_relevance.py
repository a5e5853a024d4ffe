"""Fitting `relevance`: which questions a log asks, what is learnt from them, and that it comes out the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from forgetless.datasets.logs import Asked, Log, units_of
from forgetless.errors import ConfigError
from forgetless.policies.relevance.scorer import COLUMNS, Relevance, RelevanceWeights
from forgetless.training import relevance as module
from forgetless.training.relevance import NAMES, OTHERS, Sheet, fit, questions, sheet
from made_talks import log

pytest.importorskip("sklearn")


def talk(*texts: str) -> list[dict[str, Any]]:
    return [{"role": "user" if at % 2 == 0 else "assistant", "content": text} for at, text in enumerate(texts)]


def made(*seeds: int, rule: str = "gold") -> Sheet:
    return sheet(question for seed in seeds for question in questions(log(seed), rule))


def test_each_question_of_a_log_has_its_own_labels() -> None:
    units = units_of(talk("My dog is Rex.", "Nice.", "My cat is Tom.", "Good."))
    asked = (Asked("The dog?", "Rex", (0,)), Asked("The cat?", "Tom", (2,)), Asked("The cow?", "", ()))
    found = list(questions(Log("a/1", units, asked), "gold", 4))
    assert [(q.group, q.text, q.labels.index(True), len(q.units)) for q in found] == [
        ("a", "The dog?", 0, 4),
        ("a", "The cat?", 2, 4),
    ]
    assert [q.labels.index(True) for q in questions(Log("a/1", units, asked[:2]), "best", 4)] == [0, 2]


def test_a_log_without_questions_serves_with_its_own() -> None:
    units = units_of(talk("My dog is Rex.", "Nice.", "My cat is Tom.", "Good.", "Who is my dog?", "Rex.", "Bye."))
    (question,) = questions(Log("a", units), "best", 4)
    assert (question.text, len(question.units), question.labels) == ("Who is my dog?", 4, (True, False, False, False))


def test_a_short_history_teaches_nothing() -> None:
    texts = [*("My dog is Rex.", "Nice.") * 15, "Who is my dog?", "Rex."]
    assert [len(q.units) for q in questions(Log("a", units_of(talk(*texts))), "best")] == [30]
    asked = (Asked("Who is my dog?", "Rex", (0,)),)
    assert not list(questions(Log("a", units_of(talk(*texts[:29])), asked), "gold"))


def test_of_many_questions_of_its_own_some_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OWN", 3)
    units = units_of(talk(*("Who is my dog Rex?", "Rex.") * 21))
    assert [len(q.units) for q in questions(Log("a", units), "best")] == [30, 34, 38]


def test_it_learns_what_a_question_needs() -> None:
    data = made(1, 2, 3)
    weights = fit(data, label="gold", about="made")
    assert weights.training == {
        "data": "made", "groups": 3, "questions": 36, "units": sum(map(len, data.labels)), "positive": 36,
        "auc": weights.training["auc"],
    }  # fmt: skip
    assert weights.training["auc"] > 0.95
    found = list(questions(log(9), "gold"))
    score = Relevance(weights)
    (query, *_) = units_of(talk(found[0].text))
    scores = np.array(score(found[0].units, query))
    assert scores[found[0].labels.index(True)] == max(scores)


def test_the_served_score_is_the_fitted_one() -> None:
    weights = fit(made(1, 2), label="gold", about="made")
    question = next(questions(log(3), "gold"))
    (query, *_) = units_of(talk(question.text))
    odds = module.odds(weights, module.Rows()(question.units, question.text))
    served = Relevance(weights)(question.units, query)
    assert np.allclose(served, 1 / (1 + len(question.units) * np.exp(-odds)))


def test_the_same_bytes_again() -> None:
    assert fit(made(1, 2), label="gold", about="x").dump() == fit(made(1, 2), label="gold", about="x").dump()


def test_a_file_of_all_features_is_small() -> None:
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(30, len(COLUMNS))) * 100 for _ in range(20)]
    labels = [np.arange(30) % 7 == 0 for _ in range(20)]
    data = Sheet(["g"] * 20, rows, labels)
    weights = fit(data, label="answers", about="x" * 120)
    assert len(weights.features) == len(NAMES)
    assert len(weights.dump()) <= 2_048


def test_of_a_long_history_some_units_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OTHERS", 5)
    data = made(1)
    assert {len(labels) for labels in data.labels} == {6}
    assert all(labels.sum() == 1 for labels in data.labels)
    assert OTHERS > 5


def test_what_never_changes_is_no_feature() -> None:
    weights = fit(made(1, 2), label="gold", about="x")
    assert "month" not in weights.features
    assert isinstance(weights, RelevanceWeights)


def test_too_little_is_refused() -> None:
    with pytest.raises(ConfigError, match="12 questions"):
        fit(made(1), label="gold", about="x")
    with pytest.raises(ConfigError, match="no rule 'charm'"):
        made(1, rule="charm")
