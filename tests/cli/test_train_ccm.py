"""`forgetless train ccm-start` and `train ccm`: from nothing to a run's folder, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("transformers", reason="needs transformers")

from forgetless.cli.train_ccm import ccm, ccm_start
from forgetless.errors import ConfigError
from tiny_latent import backbone, tokenizer

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
    assert (out / "model" / "words.json").exists()  # it can be a start itself
    ccm(start=out / "model", out=tmp_path / "on", updates=1, groups=1, episodes=2, held_out=2)
    start.rename(out / "start")  # where it is looked for, and would be made
    ccm(environment="recall", out=out, updates=1, groups=1, episodes=2, held_out=2)  # nothing is left to do
    assert json.loads((out / "summary.json").read_text("utf-8")) == summary
    with pytest.raises(ConfigError, match="made for 'recall', not for 'webshop'"):
        ccm(environment="webshop", out=out)


def test_a_pretrained_model_learns_through_an_adapter(tmp_path: Path) -> None:
    import torch

    held, start, out = tmp_path / "held", tmp_path / "start", tmp_path / "run"
    backbone(layers=1).save_pretrained(held)
    tokenizer().save_pretrained(held)
    ccm_start(out=start, backbone=str(held), rank=2, option=("codes=1", "pages=2"), turns=2, reply=4, steps=1, rows=2)
    ccm(start=start, out=out, rank=2, updates=1, groups=1, episodes=2, held_out=2)
    assert (out / "model" / "adapter_config.json").exists()
    learnt = torch.load(out / "checkpoint.pt", weights_only=True)["model"]
    assert learnt
    assert all("lora_" in name for name in learnt)
    told = json.loads((start / "start.json").read_text("utf-8"))
    assert told["environment"] == "recall"
    assert str(tmp_path) not in told["backbone"]


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="ccm-start"):
        ccm(start=tmp_path)
    with pytest.raises(ConfigError, match="no expert for 'terminal'"):
        ccm(environment="terminal", out=tmp_path)
    with pytest.raises(ConfigError, match="threads"):
        ccm_start(out=tmp_path / "x", threads=0)
    with pytest.raises(ConfigError, match="every must be at least 0"):
        ccm(out=tmp_path / "x", every=-1)  # before a start is made
    with pytest.raises(ConfigError, match="rank must be at least 1"):
        ccm(out=tmp_path / "x", rank=0)
    for wrong in ({"rows": 0}, {"steps": -1}, {"rate": float("nan")}, {"forgets": 7.0}):
        with pytest.raises(ConfigError, match=f"{next(iter(wrong))} must be"):
            ccm_start(out=tmp_path / "x", **wrong)  # type: ignore[arg-type]
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="can't be written to"):
        ccm_start(out=tmp_path / "file", option=("codes=1",))
    with pytest.raises(ConfigError, match="codes"):
        ccm_start(out=tmp_path / "x", option=("codes=0",))
    with pytest.raises(ConfigError, match="no expert for 'webshop'"):
        ccm_start(out=tmp_path / "x", environment="webshop", option=("data=nowhere",))
