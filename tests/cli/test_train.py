"""`forgetless train lre`: a file that works, the same bytes again, errors in one line."""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path

import pytest

from forgetless.cli.train import lre, relevance
from forgetless.errors import ConfigError
from forgetless.policies.lre.weights import Weights
from forgetless.policies.relevance.scorer import RelevanceWeights
from forgetless.registry import load_policy
from forgetless.stores.base import Exchange, Node
from forgetless.stores.sqlite import Sqlite
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


def test_relevance_is_trained_likewise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "talks.json"
    data.write_text(json.dumps([locomo(seed) for seed in (1, 2, 3)]))
    relevance(data=(data,), out=tmp_path / "a.json")
    relevance(data=(data,), out=tmp_path / "b.json", label="best")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert "36 questions in 3 conversations" in capsys.readouterr().out
    weights = RelevanceWeights.load(tmp_path / "a.json")
    assert load_policy("relevance", scorer=tmp_path / "a.json").scorer.weights == weights
    relevance(data=(data,), out=tmp_path / "gold.json", label="gold")
    assert RelevanceWeights.load(tmp_path / "gold.json").label == "gold"


def test_what_cannot_be_learnt_from_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "talk.json"
    data.write_text(json.dumps([{"role": "user", "content": "hi"}]))
    with pytest.raises(ConfigError, match="nothing to learn from"):
        lre(data=(data,), out=tmp_path / "w.json")
    with pytest.raises(ConfigError, match="too little to learn from"):
        relevance(data=(data,), out=tmp_path / "w.json")
    with pytest.raises(ConfigError, match="no file or folder"):
        lre(data=(tmp_path / "none",), out=tmp_path / "w.json")
    assert not (tmp_path / "w.json").exists()


def kept(path: Path, talks: int) -> None:
    """Keep made conversations in a store, as a proxy does."""
    with closing(Sqlite(path)) as store:
        for seed in range(talks):
            wires = [json.dumps({"role": role, "content": text}) for role, text in talk(seed)]
            keys = [f"{seed:08d}{place:08d}".encode() for place in range(len(wires))]
            nodes = tuple(
                Node(key, before, "user", 1, wire.encode())
                for key, before, wire in zip(keys, [b"", *keys], wires, strict=False)
            )
            store.write([Exchange(id=f"r{seed}", caller="c", conversation=f"c{seed}", at=1.0, dialect="chat",
                                  asked=keys[-1], head=keys[-1], nodes=nodes)])  # fmt: skip


def talk(seed: int) -> list[tuple[str, str]]:
    """A conversation that ends with questions about what was said in it."""
    facts = [
        f"The crate {seed * 100 + n} was sent to harbour number {seed * 100 + n + 7} by Ms Abel." for n in range(8)
    ]
    said = [pair for fact in facts for pair in (("user", fact), ("assistant", "Noted, thank you."))]
    for n in (1, 4, 6):
        said += [("user", f"To which harbour was the crate {seed * 100 + n} sent?"), ("assistant", facts[n])]
    return said


def test_without_a_word_it_learns_from_the_proxys_own_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    with pytest.raises(ConfigError, match="there is no store at"):
        lre()
    (tmp_path / "forgetless").mkdir()
    kept(tmp_path / "forgetless" / "forgetless.db", 14)
    lre()
    out = tmp_path / "forgetless" / "lre.json"
    assert load_policy("lre", scorer=out).scorer.weights.training["groups"] == 14
    told = capsys.readouterr().out
    assert "would have stayed, on conversations that were left out" in told
    assert [line.split(":")[0].strip() for line in told.splitlines() if " of the length" in line] == [
        "lre", "fifo", "recent", "bm25", "length",
    ]  # fmt: skip
    lre(store=f"sqlite:{tmp_path / 'forgetless' / 'forgetless.db'}", out=tmp_path / "same.json")
    assert (tmp_path / "same.json").read_bytes() == out.read_bytes()


def test_watching_learns_again_and_outlives_a_log_that_says_too_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "store.db", tmp_path / "w.json"
    kept(path, 1)
    slept: list[float] = []
    versions: list[str] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if out.exists():
            versions.append(Weights.load(out).version)
        if len(slept) == 3:
            raise KeyboardInterrupt
        kept(path, 10 * len(slept))

    monkeypatch.setattr(time, "sleep", sleep)
    lre(store=str(path), out=out, watch=30)
    assert slept == [1800.0] * 3
    assert len(set(versions)) == 2
    assert "too little to learn from" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="minutes above 0"):
        lre(store=str(path), out=out, watch=0)
