"""`bench relevance`: every scorer has a row, fits never see what they are measured on, figures are right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forgetless.benchmarks.tasks import relevance as module
from forgetless.benchmarks.tasks.relevance import measure, relevance
from forgetless.errors import ConfigError
from forgetless.training.auc import auc
from forgetless.training.labels import cases
from made_talks import locomo, log

pytest.importorskip("sklearn")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "talks.json"
    path.write_text(json.dumps([locomo(seed) for seed in (1, 2, 3)]))
    return path


def test_the_summary_names_every_scorer_and_the_paired_differences(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    relevance(dataset="locomo", data=data, out=tmp_path / "out", json=True)
    summary = json.loads(capsys.readouterr().out)
    assert summary == json.loads((tmp_path / "out" / "summary.json").read_text())
    rows = {(row["scorer"], row["label"]): row for row in summary["rows"]}
    assert {name for name, _ in rows} == {
        "recency", "length", "TF-IDF salience", "ACT-R decay", "MemoryBank decay", "shipped weights",
        "paper, words only", "paper, trajectory only", "paper, words and trajectory", "ours",
    }  # fmt: skip
    assert {label for name, label in rows if name == "ours"} == {"gold", "answers", "best"}
    assert all(row["low"] <= row["auc"] <= row["high"] for row in rows.values())
    assert rows["ours", "gold"]["auc"] > 0.95
    for difference in summary["differences"]:
        name, _, label = difference["scorer"].partition(" (")
        other = "answers" if label.startswith(("answers", "best")) else "gold"
        gap = rows[name, label.rstrip(")")]["auc"] - rows["paper, words and trajectory", other]["auc"]
        assert difference["auc"] == pytest.approx(gap, abs=2e-4)


def test_baselines_are_what_they_say() -> None:
    logs = [log(1), log(2)]
    rows = {row.scorer: row for row in measure(logs, "locomo")}
    for one in logs:
        (case,) = cases(one, "gold")
        lengths = [len(unit.text.split()) for unit in case.units]
        assert rows["recency"].areas[one.name] == auc(case.labels, list(range(len(case.units))))
        assert rows["length"].areas[one.name] == auc(case.labels, lengths)


def test_no_baseline_counts_what_is_measured_by() -> None:
    """Steps are measured by the re-use of their identifiers, which decay counts."""
    rows = {dataset: set(module._unfitted(None, dataset)) for dataset in ("locomo", "longmemeval", "trajectories")}
    assert rows["locomo"] == rows["longmemeval"]
    assert rows["locomo"] - rows["trajectories"] == {"ACT-R decay", "MemoryBank decay"}


def test_a_group_is_never_scored_by_a_fit_that_saw_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[set[str]] = []
    scored: list[str] = []

    def fit(tables: Any, groups: Any) -> Any:
        seen.append(set(groups))

        def scores(test: Any, at: int) -> Any:
            assert test.groups[at] not in seen[-1]
            scored.append(test.groups[at])
            return np.arange(len(test.labels[at]))

        return scores

    monkeypatch.setattr(module, "_ours", lambda *_: fit)
    list(measure([log(1), log(2), log(3)], "locomo"))
    assert sorted(scored) == sorted(["talk1", "talk2", "talk3"] * 3)
    seen.clear()
    scored.clear()
    list(measure([log(1), log(2)], "locomo", others=[log(8), log(9)]))
    assert all(groups == {"talk8", "talk9"} for groups in seen)


def test_other_data_and_a_file_of_weights(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from forgetless.cli.train import lre

    other = tmp_path / "others.json"
    other.write_text(json.dumps([locomo(seed) for seed in (7, 8)]))
    lre(data=(other,), out=tmp_path / "mine.json", label="gold")
    told = capsys.readouterr().out
    assert "AUC" in told
    assert "kept:" in told
    relevance(dataset="locomo", data=data, train_on=other, scorer=tmp_path / "mine.json", out=tmp_path / "o", json=True)
    rows = {(row["scorer"], row["label"]): row["auc"] for row in json.loads(capsys.readouterr().out)["rows"]}
    assert rows["mine.json", ""] == pytest.approx(rows["ours", "gold"], abs=0.01)  # the same fit, to four digits


def test_data_that_says_nothing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    path.write_text(json.dumps([{"role": "user", "content": "hi"}]))
    with pytest.raises(ConfigError, match="is it locomo"):
        relevance(dataset="locomo", data=path, out=tmp_path / "out")
    with pytest.raises(ConfigError, match="no file"):
        relevance(dataset="locomo", data=tmp_path / "none", out=tmp_path / "out")
