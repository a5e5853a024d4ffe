"""`bench speed`: what it writes, and that it times what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forgetless.benchmarks.tasks import speed as module
from forgetless.benchmarks.tasks.speed import speed
from forgetless.errors import ConfigError
from made_runs import run
from made_talks import locomo


@pytest.fixture
def data(tmp_path: Path) -> Path:
    talks, runs = tmp_path / "data" / "locomo", tmp_path / "data" / "endless_terminals"
    talks.mkdir(parents=True)
    runs.mkdir()
    (talks / "talks.json").write_text(json.dumps([locomo(seed) for seed in range(3)]))
    steps = {"task": "t", "trial": "a"}
    (runs / "runs.jsonl").write_text("".join(json.dumps({"messages": run(seed), **steps}) + "\n" for seed in range(3)))
    return tmp_path / "data"


def test_what_is_written(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    speed(data=data, out=tmp_path / "out", repeats=1, units=200, json=True)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert json.loads(capsys.readouterr().out) == summary
    assert [row["data"] for row in summary["scoring"]] == ["locomo", "endless_terminals"]
    assert all(row["passes"] > 0 and row["units_a_second"] > 0 for row in summary["scoring"])
    assert [(row["session"], row["evictions"]) for row in summary["sessions"]] == [
        ("chat", 0), ("chat", 20), ("steps", 0), ("steps", 20),
    ]  # fmt: skip
    assert all(200 < row["units"] < 250 and row["turns"] == 20 for row in summary["sessions"])
    assert [row["name"] for row in summary["targets"]] == list(module.TARGETS)
    for row in summary["targets"]:
        more = row["figure"] >= row["target"]
        assert row["reached"] == (more if row["name"].startswith("least") else not more)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert str(tmp_path) not in json.dumps(config)


def test_wrong_arguments_are_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="neither the folder"):
        speed(data=tmp_path, out=tmp_path / "out")
    with pytest.raises(ConfigError, match="at least 1"):
        speed(data=data, out=tmp_path / "out", repeats=0)
    assert not (tmp_path / "out").exists()
