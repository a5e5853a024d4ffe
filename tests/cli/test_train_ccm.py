"""`forgetless train ccm-start` and `train ccm`: from nothing to a run's folder, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("transformers", reason="needs transformers")

from forgetless.cli.train_ccm import ccm, ccm_start
from forgetless.errors import ConfigError

pytestmark = pytest.mark.torch


def test_a_start_and_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start, out = tmp_path / "start", tmp_path / "run"
    ccm_start(out=start, option=("codes=1", "pages=2"), reply=30, copies=2, steps=3)
    ccm(start=start, out=out, updates=1, groups=1, episodes=2, held_out=2)
    told = capsys.readouterr().err
    assert "step 3 of 3" in told
    assert "update 1: success" in told
    summary = json.loads((out / "summary.json").read_text("utf-8"))
    assert summary["began_from"]["options"]["pages"] == 2
    assert len(summary["updates"]) == 1
    assert {"checkpoint.pt", "config.json", "metrics.jsonl", "training.png"} <= {file.name for file in out.iterdir()}
    ccm(start=start, out=out, updates=1, groups=1, episodes=2, held_out=2)  # nothing is left to do
    assert json.loads((out / "summary.json").read_text("utf-8")) == summary


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="ccm-start"):
        ccm(start=tmp_path)
    with pytest.raises(ConfigError, match="threads"):
        ccm_start(out=tmp_path / "x", threads=0)
    with pytest.raises(ConfigError, match="codes"):
        ccm_start(out=tmp_path / "x", option=("codes=0",))
    with pytest.raises(ConfigError, match="no expert for 'webshop'"):
        ccm_start(out=tmp_path / "x", environment="webshop", option=("data=nowhere",))
