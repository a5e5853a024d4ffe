"""Fitting: what it learns, what it refuses, and that it gives the same bytes again."""

from __future__ import annotations

import numpy as np
import pytest

from forgetless.datasets.logs import Log
from forgetless.errors import ConfigError
from forgetless.policies.lre.scorer import Lre
from forgetless.training.labels import cases
from forgetless.training.lre import CONVERSATION, Table, fit, folds, held_out, table
from made_talks import log

pytest.importorskip("sklearn")


def made(*seeds: int, rule: str = "gold", facts: int = 12) -> Table:
    return table(case for seed in seeds for case in cases(log(seed, facts), rule))


def test_it_tells_facts_from_small_talk() -> None:
    data = made(1, 2, 3)
    weights = fit(data, CONVERSATION, label="gold", about="made")
    assert weights.training == {"data": "made", "groups": 3, "units": sum(map(len, data.labels)), "positive": 36,
                                "auc": weights.training["auc"]}  # fmt: skip
    assert weights.training["auc"] > 0.95
    case = cases(log(9), "gold")[0]
    scores = np.array(Lre(weights)(case.units))
    labels = np.array(case.labels)
    assert scores[labels].min() > np.median(scores[~labels])


def test_the_served_score_is_the_fitted_one() -> None:
    from forgetless.training.lre import regression

    data = made(1, 2)
    weights = fit(data, CONVERSATION, label="gold", about="made")
    odds = regression(data, range(2), CONVERSATION)(data.rows[0])
    served = np.array(Lre(weights)(data.cases[0].units))
    assert np.allclose(served, 1 / (1 + np.exp(-odds)), atol=0.01)  # four digits in the file


@pytest.mark.parametrize("rule", ["answers", "best"])
def test_labels_made_from_the_log_find_what_people_marked(rule: str) -> None:
    weights = fit(made(1, 2, 3, rule=rule), CONVERSATION, label=rule, about="made")
    case = cases(log(9), "gold")[0]
    scores, labels = np.array(Lre(weights)(case.units)), np.array(case.labels)
    assert scores[labels].mean() > scores[~labels].mean() + 0.3


def test_the_same_logs_give_the_same_bytes() -> None:
    first = fit(made(1, 2, 3), CONVERSATION, label="gold", about="made").dump()
    assert fit(made(1, 2, 3), CONVERSATION, label="gold", about="made").dump() == first
    assert fit(made(1, 2), CONVERSATION, label="gold", about="made").dump() != first


def test_too_little_is_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match="no log says"):
        fit(table([]), CONVERSATION, label="gold", about="made")
    with pytest.raises(ConfigError, match=r"3 of .* needed"):
        fit(made(1, facts=3), CONVERSATION, label="gold", about="made")
    data = made(1, 2, 3)
    one_class = Table(data.cases, data.rows, [np.ones(len(labels), bool) for labels in data.labels])
    with pytest.raises(ConfigError, match=r"0 of .* not needed"):
        fit(one_class, CONVERSATION, label="gold", about="made")


def test_one_conversation_has_nothing_to_test_on() -> None:
    data = made(1, facts=30)
    assert held_out(data, CONVERSATION) is None
    assert fit(data, CONVERSATION, label="gold", about="made").training["auc"] is None


def test_each_group_is_left_out_once() -> None:
    names = [f"g{number}" for number in range(47)]
    parts = folds(names * 2)
    assert len(parts) == 20
    assert sorted(name for part in parts for name in part) == sorted(names)
    assert folds(["b", "a", "b"]) == [["a"], ["b"]]


def test_a_groups_cases_share_its_fold() -> None:
    runs = [Log(f"task{number % 2}/{number}", log(number).units, log(number).questions) for number in range(4)]
    assert table(case for run in runs for case in cases(run, "gold")).groups == ["task0", "task1", "task0", "task1"]
