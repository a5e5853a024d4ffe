"""`forgetless train rea-latent`: from dialogues to a run's folder with adapters that load, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("transformers", reason="needs transformers")
pytest.importorskip("peft", reason="needs peft")

from forgetless.cli.train_latent import rea_latent
from forgetless.errors import ConfigError
from forgetless.models.local import load_local
from tiny_latent import backbone, tokenizer

pytestmark = pytest.mark.torch


@pytest.fixture
def model(tmp_path: Path) -> str:
    backbone().save_pretrained(tmp_path / "model")
    tokenizer().save_pretrained(tmp_path / "model")
    return str(tmp_path / "model")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    chance = Random(0)
    said = [[" ".join(f"w{chance.randrange(60)}" for _ in range(12)) for _ in range(6)] for _ in range(30)]
    rows = [
        {"messages": [{"role": "assistant" if at % 2 else "user", "content": text} for at, text in enumerate(texts)]}
        for texts in said
    ]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "talks.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    return tmp_path / "data"


def test_a_run_and_its_adapters(model: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    rea_latent(data=data, out=out, backbone=model, steps=8, measured=6, spans=(16,))
    assert "16: full" in capsys.readouterr().err
    made = {"adapters", "answers.jsonl", "checkpoint.pt", "config.json", "latent.png", "metrics.jsonl"}
    assert made | {"records.jsonl", "summary.json"} == {file.name for file in out.iterdir()}
    summary = json.loads((out / "summary.json").read_text("utf-8"))
    assert [line["step"] for line in summary["steps"]] == list(range(1, 9))
    assert summary["rows"][0]["exchanges"] == 6
    held = summary["data"]["data"]
    assert held["licence"] == "of your own data"
    assert held["held_out"] + held["trained_on"] == 30
    assert summary["bytes"] == sum(file.stat().st_size for file in (out / "adapters").rglob("*") if file.is_file())
    assert load_local(model, out / "adapters").encode(["w1 w2"])[0].shape == (8, 32)
    rea_latent(data=data, out=out, backbone=model, steps=8, measured=6, spans=(16,), json=True)  # nothing is left to do
    again = json.loads(capsys.readouterr().out)
    assert (again["steps"], again["rows"]) == (summary["steps"], summary["rows"])


def test_what_cannot_be_is_refused(model: str, data: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no folder"):
        rea_latent(data=tmp_path / "none", out=tmp_path / "run", backbone=model)
    with pytest.raises(ConfigError, match="steps"):
        rea_latent(data=data, out=tmp_path / "run", backbone=model, steps=0)
    with pytest.raises(ConfigError, match="measured must be"):
        rea_latent(data=data, out=tmp_path / "run", backbone=model, steps=1, measured=0)
    with pytest.raises(ConfigError, match="no finished run"):
        rea_latent(data=data, out=tmp_path / "run", backbone=model, steps=1, beside=tmp_path)
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match="threads"):
        rea_latent(data=data, threads=0)
