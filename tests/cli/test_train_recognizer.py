"""`forgetless train recognizer`: a file that works, the same bytes again, errors in one line; the one that ships."""

from __future__ import annotations

from pathlib import Path

import pytest

import labelled_messages
from forgetless.cli.train_recognizer import recognizer
from forgetless.errors import ConfigError
from forgetless.instructions.learned import Learned, RecogniserWeights


def test_a_trained_file_serves_and_comes_out_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = labelled_messages.write(tmp_path / "made.jsonl")
    recognizer(data=(data,), out=tmp_path / "new" / "a.json")
    recognizer(data=(data,), out=tmp_path / "b.json")
    assert (tmp_path / "new" / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    weights = RecogniserWeights.load(tmp_path / "b.json")
    assert weights.training["data"] == "made.jsonl"
    assert weights.training["messages"] == 60
    told = capsys.readouterr().out
    assert weights.version in told
    assert "60 messages, 30 of them with an instruction" in told
    assert Learned(weights)("Never use slang with me, please.")
    assert not list(tmp_path.rglob("*.partial"))


def test_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no file"):
        recognizer(data=(tmp_path / "none.jsonl",), out=tmp_path / "w.json")
    assert not (tmp_path / "w.json").exists()
