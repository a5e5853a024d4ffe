"""`forgetless bench training`: arms side by side from one start, and a killed run that goes on to the same numbers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("transformers", reason="needs transformers")

from forgetless.benchmarks.tasks.training import training
from forgetless.cli.train_ccm import ccm, ccm_start
from forgetless.errors import ConfigError

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("start")
    ccm_start(out=folder, option=("codes=1", "pages=2"), turns=5, reply=20, copies=2, steps=2)
    return folder


def test_every_arm_begins_from_the_same_start(start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training(start=start, out=tmp_path, seeds=1, updates=1, groups=1, episodes=2, held_out=2)
    assert "updates to 80 %" in capsys.readouterr().out
    summary = json.loads((tmp_path / "summary.json").read_text("utf-8"))
    assert [row["arm"] for row in summary["rows"]] == ["both", "grpo", "distill"]
    assert len({(row["start"], row["start_sampled"]) for row in summary["rows"]}) == 1
    records = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text("utf-8").splitlines()]
    assert [(record["arm"], record["update"]) for record in records[:2]] == [("both", 0), ("both", 1)]
    assert (tmp_path / "training.png").stat().st_size > 10_000
    with pytest.raises(ConfigError, match="no arm 'sft'"):
        training(start=start, out=tmp_path, arms=("sft",))
    with pytest.raises(ConfigError, match="at least one arm"):
        training(start=start, out=tmp_path, arms=())
    with pytest.raises(ConfigError, match="updates must be at least 1"):
        training(start=start, out=tmp_path, updates=0)
    assert json.loads((tmp_path / "summary.json").read_text("utf-8")) == summary  # nothing is lost by it


def figures(out: Path) -> list[dict[str, Any]]:
    lines = map(json.loads, (out / "metrics.jsonl").read_text("utf-8").splitlines())
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def test_a_killed_run_goes_on_to_the_same_numbers(start: Path, tmp_path: Path) -> None:
    sizes = {"updates": 7, "groups": 1, "episodes": 2, "held_out": 2}
    options = [part for key, value in sizes.items() for part in (f"--{key.replace('_', '-')}", str(value))]
    command = [Path(sys.executable).with_name("forgetless"), "train", "ccm", "--start", str(start)]
    killed = subprocess.Popen(
        [*command, "--out", str(tmp_path / "killed"), *options],
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    log, until = tmp_path / "killed" / "metrics.jsonl", monotonic() + 60
    while not (log.exists() and log.read_text("utf-8").count("\n") >= 6):  # behind the first checkpoint
        assert killed.poll() is None
        assert monotonic() < until
        sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert not (tmp_path / "killed" / "summary.json").exists()
    ccm(start=start, out=tmp_path / "whole", **sizes)
    ccm(start=start, out=tmp_path / "killed", **sizes)
    assert figures(tmp_path / "killed") == figures(tmp_path / "whole")
