"""The policy `relevance`: the weights that ship, what it keeps, and that a new question costs little."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pytest

from forgetless import compact, load_policy
from forgetless.datasets.logs import units_of
from forgetless.errors import ConfigError
from forgetless.policies.lre.scorer import scorer as of_lre
from forgetless.policies.lre.weights import Weight, Weights
from forgetless.policies.relevance import index as module
from forgetless.policies.relevance.scorer import COLUMNS, Relevance, RelevanceWeights, Rows, scorer, shipped
from forgetless.units import Unit
from made_talks import conversation

WEIGHTS = RelevanceWeights({"match": Weight(1.0, 0.5, 2.0), "novel": Weight(2.0, 1.0, 0.5)}, -0.5, "best", {"units": 9})


def talk(*texts: str) -> list[dict[str, Any]]:
    return [{"role": "user" if at % 2 == 0 else "assistant", "content": text} for at, text in enumerate(texts)]


def call(ident: str, result: str) -> list[dict[str, Any]]:
    function = {"name": "sh", "arguments": "{}"}
    calls = [{"id": ident, "type": "function", "function": function}]
    return [
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": ident, "content": result},
    ]


HISTORY = talk("My red kayak is in Porto.", "Noted.", "It rains.", "Indeed.")
ASKED = units_of([*HISTORY, {"role": "user", "content": "Where is my kayak?"}])


def test_what_ships_loads_is_small_and_names_its_training() -> None:
    weights = shipped()
    assert isinstance(weights, RelevanceWeights)
    assert len(weights.dump()) <= 2_048
    assert weights.training["questions"] >= 20
    assert "locomo" not in weights.training["data"].lower()
    assert weights.version in scorer().version


def test_a_file_comes_back_as_it_was_and_is_no_file_of_lre(tmp_path: Path) -> None:
    file = tmp_path / "w.json"
    file.write_text(WEIGHTS.dump())
    assert RelevanceWeights.load(file) == WEIGHTS
    with pytest.raises(ConfigError, match="no weights for the policy 'lre'"):
        Weights.load(file)
    lre = Weights({"novel": Weight(1.5, 0.5, 2.0)}, 0.0, "best", {})
    file.write_text(lre.dump())
    with pytest.raises(ConfigError, match="train relevance"):
        RelevanceWeights.load(file)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"bias": 0.5}, "checksum"),
        ({"features_version": 1}, "version 1"),
        ({"bias": float("nan")}, "checksum"),
    ],
)
def test_a_file_that_does_not_match_is_refused(tmp_path: Path, change: dict[str, Any], told: str) -> None:
    file = tmp_path / "w.json"
    file.write_text(json.dumps({**json.loads(WEIGHTS.dump()), **change}))
    with pytest.raises(ConfigError, match=told):
        load_policy("relevance", scorer=file)


def test_a_score_is_the_logistic_of_the_features_for_one_needed_unit() -> None:
    rows = Rows()(ASKED[:-1], "Where is my kayak?")
    match, novel = rows[:, COLUMNS.index("match")], rows[:, COLUMNS.index("novel")]
    odds = -0.5 + 2.0 * (match - 1.0) / 0.5 + 0.5 * (novel - 2.0)
    found = Relevance(WEIGHTS)(ASKED, ASKED[-1])
    assert np.allclose(found[:-1], 1 / (1 + 4 * np.exp(-odds)))
    assert found[-1] == 0


def test_the_question_decides() -> None:
    facts = conversation(5)["turns"]
    for question, holder in ((q, at) for at, q, _ in conversation(5)["asked"]):
        rivals = [t for t in facts if set(question.strip("?").split()[1:]) - {"did", "buy"} <= set(t.split())]
        if len(rivals) > 1:
            continue
        done = compact([*talk(*facts), {"role": "user", "content": question}], budget=120, policy="relevance")
        assert facts[holder] in [message["content"] for message in done.messages]


def test_the_newest_are_kept_first() -> None:
    units = units_of([*talk(*["The kayak is red."] * 20, "No.", "Well."), *talk("Where is the kayak?")])
    budget = 3 * sum(unit.tokens for unit in units[-3:])

    def reasons(**options: int) -> dict[int, str]:
        ledger = load_policy("relevance", **options)(units, budget).ledger
        return {entry.unit: entry.reason for entry in ledger if entry.reason == "recent"}

    assert reasons() == {20: "recent", 21: "recent"}
    assert reasons(keep=0) == {}


def test_an_agents_newest_step_asks() -> None:
    start = [{"role": "user", "content": "Repair it."}, *call("a", "kayak.py line 3"), *call("b", "nothing here")]
    units = units_of([*start, *call("c", "error in kayak.py")])
    found = Relevance(WEIGHTS)(units, units[0])
    assert found[1] > found[2]
    assert found[-1] == 0


def test_a_history_of_steps_is_scored_by_lres_weights_for_agents() -> None:
    steps = [{"role": "user", "content": "Repair it."}, *call("a", "kayak.py line 3"), *call("b", "see kayak.py")]
    units = units_of(steps)
    assert list(scorer()(units, units[0])) == list(of_lre("agent")(units))
    assert scorer()(ASKED, ASKED[-1]) == Relevance(shipped())(ASKED, ASKED[-1])


def test_a_query_from_elsewhere_scores_every_unit() -> None:
    (query,) = units_of(talk("the kayak in Porto?"))
    query = replace(query, index=99)
    found = Relevance(WEIGHTS)(ASKED, query)
    assert len(found) == len(ASKED)
    assert np.argmax(found) in (0, 4)
    assert Relevance(WEIGHTS)(ASKED[:2], None)[0] > 0
    assert Relevance(WEIGHTS)([], None) == []


def test_a_new_question_reads_no_unit_again(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    extend = module.Index.extend

    def counted(self: module.Index, units: list[Unit]) -> None:
        read.append(len(units))
        extend(self, units)

    monkeypatch.setattr(module.Index, "extend", counted)
    history = talk(*map(str, range(50)))
    score = scorer()
    for question in ("what is 3?", "what is 4?"):
        units = units_of([*history, {"role": "user", "content": question}])
        score(units, units[-1])
    assert read == [50, 0]


def test_a_new_question_over_a_thousand_units_is_quick() -> None:
    turns = [turn for seed in range(40) for turn in conversation(seed)["turns"]][:1_000]
    history = talk(*turns)
    score = scorer()
    best = 1.0
    for question in ("Which kayak did Ines buy?", "Which violin did Omar buy?", "Which loom did Ruth buy?"):
        units = units_of([*history, {"role": "user", "content": question}])
        units[-1].key  # noqa: B018 - made when first asked for, which is no part of scoring
        start = perf_counter()
        score(units, units[-1])
        best = min(best, perf_counter() - start)
    assert best < 0.1  # it takes about 5 ms
