"""Loaders: what comes out of well-formed files, and errors that say where a file is wrong."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from forgetless.datasets.locomo import load_locomo
from forgetless.datasets.trajectories import load_trajectories
from forgetless.errors import ConfigError


def sample() -> dict[str, Any]:
    return {
        "sample_id": "conv-1",
        "conversation": {
            "speaker_a": "Ann",
            "speaker_b": "Bob",
            "session_10_date_time": "2 May",
            "session_10": [{"speaker": "Ann", "dia_id": "D10:1", "text": "Later."}],
            "session_2_date_time": "1 May",
            "session_2": [
                {"speaker": "Bob", "dia_id": "D2:1", "text": "Hi."},
                {"speaker": "Ann", "dia_id": "D2:2", "text": "Hello."},
            ],
        },
        "qa": [
            {
                "question": "Who?",
                "answer": 3,
                "evidence": ["D2:2; D10:1", "D:9:9", "D2:2", "D7:1"],
                "category": 1,
            },
            {"question": "Nobody?", "evidence": ["D99:1"], "category": 2},
            {"question": "Trick?", "evidence": ["D2:1"], "adversarial_answer": "x", "category": 5},
        ],
    }


def run(task: str, reward: float | None = 1.0) -> dict[str, Any]:
    steps = [{"source": "user", "message": "Do it."}, {"source": "agent", "message": "Done."}]
    return {
        "task": task,
        "trial": "t0",
        "reward": reward,
        "trajectory": {"schema_version": "ATIF-v1.6", "steps": steps},
    }


def test_locomo(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    path.write_text(json.dumps([sample()]))
    (conversation,) = load_locomo(tmp_path)
    assert load_locomo(path) == [conversation]
    assert conversation.name == "conv-1"
    assert conversation.turn_ids == ("D2:1", "D2:2", "D10:1")
    assert conversation.messages == (
        {"role": "user", "content": "[1 May]\nBob: Hi."},
        {"role": "assistant", "content": "Ann: Hello."},
        {"role": "assistant", "content": "[2 May]\nAnn: Later."},
    )
    first, trick = conversation.questions
    assert (first.text, first.answer, first.evidence, first.category) == ("Who?", "3", (1, 2), 1)
    assert (trick.answer, trick.evidence, trick.category) == ("", (0,), 5)


def packed(data: bytes) -> bytes:
    """Without the time of day, which would name a test otherwise in every process."""
    return gzip.compress(data, mtime=0)


def test_trajectories_gzipped_or_not(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps(row) for row in (run("a"), run("b", None)))
    plain, file = tmp_path / "runs.jsonl", tmp_path / "packed" / "runs.jsonl.gz"
    plain.write_text(lines)
    file.parent.mkdir()
    file.write_bytes(packed(lines.encode()))
    recordings = load_trajectories(file.parent)
    assert recordings == load_trajectories(plain)
    assert [(r.task, r.trial, r.reward) for r in recordings] == [("a", "t0", 1.0), ("b", "t0", 0.0)]
    assert recordings[0].messages == (
        {"role": "user", "content": "Do it."},
        {"role": "assistant", "content": "Done."},
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "cannot read"),
        ("{", "cannot read"),
        ("{}", "a list of conversations"),
        ("[]", "a list of conversations"),
        ("[3]", "sample 0"),
        ('[{"conversation": {}, "qa": []}]', "sample 0.*no turns"),
        (json.dumps([sample(), {**sample(), "qa": [{"question": "?"}]}]), "sample 1.*KeyError: 'category'"),
    ],
)
def test_locomo_errors(tmp_path: Path, text: str | None, says: str) -> None:
    path = tmp_path / "locomo.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=says):
        load_locomo(path)


def test_two_turns_may_not_share_an_id(tmp_path: Path) -> None:
    broken = sample()
    broken["conversation"]["session_2"][1]["dia_id"] = "D2:1"
    (tmp_path / "l.json").write_text(json.dumps([broken]))
    with pytest.raises(ConfigError, match="share one 'dia_id'"):
        load_locomo(tmp_path)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (None, "cannot read"),
        (b"no gzip", "cannot read"),
        (packed(b"x" * 999)[:-9], "cannot read"),
        (packed(b"\xff"), "cannot read"),
        (packed(b""), "no recorded run"),
        (packed(b"{"), "line 1"),
        (packed(json.dumps(run("a")).encode() + b'\n{"task": "b"}'), "line 2.*'trajectory'"),
        (packed(b'{"task": "b", "trial": "1", "trajectory": {}}'), "line 1.*not an ATIF trajectory"),
    ],
)
def test_trajectory_errors(tmp_path: Path, data: bytes | None, says: str) -> None:
    path = tmp_path / "runs.jsonl.gz"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(ConfigError, match=says):
        load_trajectories(path)


@pytest.mark.parametrize("load", [load_locomo, load_trajectories])
def test_a_folder_must_hold_one_file(tmp_path: Path, load: Any) -> None:
    with pytest.raises(ConfigError, match="holds 0"):
        load(tmp_path)
