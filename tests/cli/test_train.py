"""`forgetless train lre`: a file that works, the same bytes again, errors in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forgetless.cli.train import lre
from forgetless.errors import ConfigError
from forgetless.policies.lre.weights import Weights
from forgetless.registry import load_policy
from made_talks import locomo

pytest.importorskip("sklearn")


def test_a_trained_file_serves_and_comes_out_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "talks.json"
    data.write_text(json.dumps([locomo(seed) for seed in (1, 2, 3)]))
    lre(data=(data,), out=tmp_path / "new" / "a.json")
    lre(data=(data,), out=tmp_path / "b.json")
    assert (tmp_path / "new" / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    weights = Weights.load(tmp_path / "b.json")
    assert weights.label == "best"
    assert weights.training["data"] == "talks.json"
    assert weights.version in capsys.readouterr().out
    assert load_policy("lre", scorer=tmp_path / "b.json").scorer.weights == weights
    assert not list(tmp_path.rglob("*.partial"))


def test_what_cannot_be_learnt_from_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "talk.json"
    data.write_text(json.dumps([{"role": "user", "content": "hi"}]))
    with pytest.raises(ConfigError, match="nothing to learn from"):
        lre(data=(data,), out=tmp_path / "w.json")
    with pytest.raises(ConfigError, match="no file or folder"):
        lre(data=(tmp_path / "none",), out=tmp_path / "w.json")
    assert not (tmp_path / "w.json").exists()
