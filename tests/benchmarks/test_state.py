"""`forgetless bench state`: what the model is told in each setting, what counts as solved, and what was not run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from forgetless.benchmarks.asked import Asked
from forgetless.benchmarks.evaluators.number import Number
from forgetless.benchmarks.player import Player
from forgetless.benchmarks.tasks import state as task
from forgetless.benchmarks.tasks.state import play, summarise
from forgetless.datasets.lost_in_conversation import Sharded
from forgetless.errors import ConfigError, ModelError
from forgetless.models.scripted import Scripted

SUM = Sharded("s", "math", ("How many?", "Two.", "And five."), "How many are two and five?", {"answer": "#### 7"})


def run(tmp_path: Path, *replies: Any) -> tuple[task.Played, Scripted]:
    model = Scripted(replies)
    player = Player(Asked(model, tmp_path / "answers.jsonl"), "vanilla", 1_000, 64)
    return play(SUM, "sharded", SUM.shards, player, Number()), model


def test_a_shard_a_turn_word_for_word(tmp_path: Path) -> None:
    played, model = run(tmp_path, "Of what?", "Answer: 2", "Answer: 7")
    said = [message["content"] for message in model.requests[-1]["messages"]]
    assert said[1:] == ["How many?", "Of what?", "Two.", "Answer: 2", "And five."]
    assert (played.solved, played.last, played.attempts, played.turns) == (True, True, 2, 3)


def test_a_right_reply_that_was_taken_back_solves_but_is_not_last(tmp_path: Path) -> None:
    played, _ = run(tmp_path, "Answer: 7", "Answer: 2", "Answer: 8")
    assert (played.solved, played.last) == (True, False)


def test_a_refused_prompt_ends_the_run(tmp_path: Path) -> None:
    played, _ = run(tmp_path, "Answer: 1", ModelError("too long", status=400))
    assert (played.solved, played.last, played.turns, played.failed) == (False, False, 1, "too long")
    (row,) = summarise([played], 0)
    assert (row["runs"], row["failed"], row["solved"]) == (1, 1, 0.0)


def records(path: Path) -> Path:
    shards = [{"shard_id": n, "shard": text} for n, text in enumerate(SUM.shards)]
    sums = [
        {"task_id": f"m{n}", "task": "math", "question": SUM.whole, "answer": f"#### {n}", "shards": shards}
        for n in range(6)
    ]
    path.write_text(json.dumps([*sums, {"task_id": "d", "task": "database", "shards": shards}]))
    return path


def test_a_run_in_all_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(body: Mapping[str, Any]) -> str:
        said = body["messages"][-1]["content"]
        return "Answer: 0" if said == SUM.whole else "Answer: 1" if "- And five." in said else "Tell me more."

    models: list[Scripted] = []
    monkeypatch.setattr(task, "load_model", lambda *_, **__: models.append(Scripted(answer)) or models[-1])
    data, out = records(tmp_path / "sharded.json"), tmp_path / "out"
    task.state(data=data, model="any", task=("math",), out=out, json=True)
    summary = json.loads(capsys.readouterr().out)
    assert summary == json.loads((out / "summary.json").read_text())
    rows = {(row["setting"], row["policy"]): row for row in summary["settings"]}
    assert list(rows) == [("full", "vanilla"), ("concat", "vanilla"), ("sharded", "vanilla"), ("sharded", "rea")]
    assert [row["solved"] for row in rows.values()] == [0.1667, 0.1667, 0.0, 0.0]
    assert rows["sharded", "vanilla"]["attempts"] == 0.0
    assert summary["not_run"]["database"]["records"] == 1
    assert (summary["model"], summary["tasks"]) == ("scripted", {"math": 6})
    asked = [body["messages"] for body in models[0].requests]
    task.state(data=data, model="any", task=("math",), out=out)
    assert not models[1].requests
    assert len(asked) < 4 * 6 * 3  # the same question is asked once
    assert str(tmp_path) not in (out / "config.json").read_text()


@pytest.mark.parametrize(
    ("kinds", "says"),
    [(("database",), "'database' can't be run: the databases"), (("maths",), "known: actions"), (("code",), "hold no")],
)
def test_what_cannot_be_run_is_an_error(tmp_path: Path, kinds: tuple[str, ...], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        task.state(data=records(tmp_path / "s.json"), model="embedded", task=kinds, out=tmp_path / "out")


def test_a_sample_is_drawn_by_its_seed(tmp_path: Path) -> None:
    found = [Sharded(str(n), "math", ("?",), "?", {}) for n in range(50)]
    drawn = task._sample(found, ("math",), 5, 1)
    assert drawn == task._sample(found, ("math",), 5, 1) != task._sample(found, ("math",), 5, 2)
    assert drawn == sorted(drawn, key=found.index)
    with pytest.raises(ConfigError, match="sample must be at least 0"):
        task._sample(found, ("math",), -1, 1)
