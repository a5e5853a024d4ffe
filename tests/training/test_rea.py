"""Thresholds: they keep what they promise on what they were made from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from forgetless import ConfigError
from forgetless.cli.train_rea import rea_thresholds
from forgetless.datasets.logs import units_of
from forgetless.training.rea import LOST, WASTED, calibrate
from forgetless.training.relevance import Question


class Given:
    """A similarity that reads its number from the text."""

    name = "given"

    def __call__(self, texts: Sequence[str], question: str) -> list[float]:
        return [float(text) for text in texts]


def asked(seed: int) -> Question:
    rng = Random(seed)
    messages, labels = [], []
    for number in range(8):
        needed = number == seed % 8
        score = rng.uniform(0.4, 0.9) if needed else rng.uniform(0.0, 0.6)
        messages += [{"role": "user", "content": "and?"}, {"role": "assistant", "content": f"{score:.2f}"}]
        labels += [False, needed]
    return Question("g", units_of(messages), "what?", tuple(labels))


def test_few_needed_replies_are_left_out_and_few_others_stay_raw() -> None:
    questions = [asked(seed) for seed in range(100)]
    made = calibrate(questions, Given())
    needed, others = [], []
    for question in questions:
        for unit, label in zip(question.units, question.labels, strict=True):
            if unit.kind == "assistant":
                (needed if label else others).append(float(unit.text))
    assert (made.needed, made.others) == (100, 700)
    assert sum(score < made.low for score in needed) <= LOST * 100
    assert sum(score > made.high for score in others) <= WASTED * 700
    assert 0.4 < made.low < made.high < 0.6
    assert made.left_out > 0.6


def test_too_little_is_refused() -> None:
    with pytest.raises(ConfigError, match="too little to calibrate"):
        calibrate([asked(seed) for seed in range(10)], Given())


def test_the_command_writes_thresholds_that_the_policy_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = []
    for talk in range(30):
        turns = [
            {"user": f"Tell me about item {talk}-{n}.", "sys": f"Item {talk}-{n} is kept in bay {n}."} for n in range(6)
        ]
        turns.append({"user": f"Where is item {talk}-2 kept?", "sys": f"Item {talk}-2 is kept in bay 2."})
        line.append(json.dumps({"id": str(talk), "conv": turns}))
    data, out = tmp_path / "talks.jsonl", tmp_path / "new" / "thresholds.json"
    data.write_text("\n".join(line))
    rea_thresholds(data=(data,), out=out)
    low, high = json.loads(out.read_text())["near"]["bm25"]
    assert 0 <= low <= high <= 1
    assert "bm25: left out below" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="no file or folder"):
        rea_thresholds(data=(tmp_path / "none",), out=out)
