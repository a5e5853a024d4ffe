"""`forgetless bench retention` end to end, on files small enough to work out by hand."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import made_talks
from forgetless.benchmarks.plots import retention_plot
from forgetless.benchmarks.subjects import once
from forgetless.benchmarks.tasks import identifier_availability, retention
from forgetless.cli.main import app
from forgetless.datasets.logs import units_of
from forgetless.datasets.trajectories import load_trajectories
from forgetless.errors import ConfigError
from forgetless.policies.select import Select
from forgetless.tokens import Counter
from forgetless.training import relevance as training
from forgetless.units import Unit

WORDS = Counter(lambda text: len(text.split()))


def locomo() -> list[dict[str, Any]]:
    """Six turns of 9 tokens (the first has 11); each question has 7."""
    turns = [
        {"speaker": "Ann" if i % 2 == 0 else "Bob", "dia_id": f"D1:{i + 1}", "text": f"this is turn {i}"}
        for i in range(6)
    ]
    qa = [
        {"question": "What is last?", "answer": "5", "evidence": ["D1:6"], "category": 4},
        {"question": "What is both?", "answer": "0 and 4", "evidence": ["D1:1", "D1:5"], "category": 1},
        {"question": "What is it?", "evidence": ["D1:3"], "category": 5},
    ]
    return [{"sample_id": "c", "conversation": {"session_1_date_time": "1 May", "session_1": turns}, "qa": qa}]


def step(number: int, command: str, screen: str) -> dict[str, Any]:
    call = {"tool_call_id": f"c{number}", "function_name": "sh", "arguments": {"cmd": command}}
    return {
        "source": "agent",
        "message": "go",
        "tool_calls": [call],
        "observation": {"results": [{"content": screen}]},
    }


def recorded() -> dict[str, Any]:
    """The task has 6 tokens; the steps 15, 13 and 13; the last action needs a word from the first step."""
    steps = [
        {"source": "user", "message": "Fix /a/one.txt"},
        step(1, "cat /a/one.txt", "holds key_alpha"),
        step(2, "ls", "nothing"),
        step(3, "ls", "nothing"),
        step(4, "use key_alpha new_name", "done"),
    ]
    return {
        "task": "t",
        "trial": "1",
        "reward": 1,
        "trajectory": {"schema_version": "ATIF-v1.6", "steps": steps},
    }


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(retention, "_counter", lambda: WORDS)
    monkeypatch.setattr(retention, "draw", lambda plot, summary, path: None)
    folder = tmp_path / "data"
    (folder / "locomo").mkdir(parents=True)
    (folder / "locomo" / "l.json").write_text(json.dumps(locomo()))
    (folder / "endless_terminals").mkdir()
    packed = gzip.compress(json.dumps(recorded()).encode())
    (folder / "endless_terminals" / "runs.jsonl.gz").write_bytes(packed)
    return folder


def rows(summary: dict[str, Any], part: str) -> dict[tuple[str, int | None], dict[str, Any]]:
    return {(row["policy"], row["budget"]): row for row in summary[part]["rows"]}


def run(data: Path, out: Path) -> dict[str, Any]:
    retention.retention(data=data, out=out, dialogue_budgets=(6, 7, 27, 1000), agent_budgets=(18, 33, 35, 99))
    result: dict[str, Any] = json.loads((out / "summary.json").read_text())
    return result


def test_figures_as_worked_out_by_hand(data: Path, tmp_path: Path) -> None:
    summary = run(data, tmp_path / "out")
    assert (summary["dialogue"]["questions"], summary["dialogue"]["adversarial_questions"]) == (2, 1)
    talk = rows(summary, "dialogue")
    assert (talk["full", None]["recall"], talk["full", None]["tokens"]) == (1.0, 63)
    assert (talk["fifo", 6]["recall"], talk["fifo", 6]["failed"]) == (None, 1.0)  # not even the question fits
    for policy in ("fifo", "masking", "recent"):
        assert talk[policy, 7]["recall"] == 0.0  # no room beside the question
        assert talk[policy, 27]["recall"] == 0.75  # the last two turns: all of one question, half of the other
        assert (talk[policy, 27]["recall_low"], talk[policy, 27]["recall_high"]) == (0.75, 0.75)
        assert talk[policy, 27]["adversarial_recall"] == 0.0
        assert talk[policy, 27]["tokens"] == 25
        assert talk[policy, 1000]["recall"] == 1.0
    assert (talk["oracle", 27]["recall"], talk["oracle", 27]["adversarial_recall"]) == (1.0, 1.0)

    agents = rows(summary, "agents")
    assert summary["agents"]["actions"] == 2
    assert summary["agents"]["floor_tokens"]["max"] == 19
    assert summary["agents"]["history_tokens"]["max"] == 47
    assert agents["full", None]["availability"] == 1.0
    fifo = agents["fifo", 35]  # the second step, where the first would have fitted as well
    assert (fifo["availability"], fifo["all"], fifo["pressed_availability"], fifo["pressed"]) == (
        0.5,
        0.5,
        0.0,
        0.5,
    )
    assert (fifo["tokens"], fifo["failed"]) == ((6 + 32) / 2, 0.0)
    assert agents["oracle", 35]["availability"] == 1.0
    assert agents["oracle", 33]["availability"] == 0.5
    assert (agents["fifo", 18]["availability"], agents["fifo", 18]["failed"]) == (1.0, 0.5)
    assert agents["fifo", 99]["pressed_availability"] is None


def test_the_oracle_is_never_beaten(data: Path, tmp_path: Path) -> None:
    summary = run(data, tmp_path / "out")
    for part, figure in (("dialogue", "recall"), ("agents", "availability")):
        found = rows(summary, part)
        for (_, budget), row in found.items():
            if budget is not None and row[figure] is not None:
                assert found["oracle", budget][figure] >= row[figure]


def test_what_is_written(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    app(
        [
            "bench",
            "retention",
            "--data",
            str(data),
            "--out",
            str(out),
            "--policies",
            "fifo",
            "bm25",
            "--json",
        ],
        result_action="return_value",
    )
    printed = capsys.readouterr()
    assert json.loads(printed.out) == json.loads((out / "summary.json").read_text())
    assert "dialogue-recall@2, chosen for each question" in printed.err
    assert "dialogue-recall@2, chosen at evictions" in printed.err
    config = json.loads((out / "config.json").read_text())
    assert config["benchmark"] == "retention@2"
    assert config["tasks"][0] == "dialogue-recall@2"
    assert config["policies"] == ["fifo", "bm25"]
    assert str(tmp_path) not in (out / "config.json").read_text()
    records = [json.loads(line) for line in (out / "records.jsonl").read_text().splitlines()]
    assert len(records) == (1 + 3 * 5) + 2 * 5 + (1 + 3) + 4
    assert {record["part"] for record in records} == {"dialogue", "agents", "steps"}


def test_rea_with_all_replies_and_with_none(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    names = ("rea, preserve", "rea, abandon")
    retention.retention(data=data, dataset="locomo", out=out, policies=names, dialogue_budgets=(1000,))
    found = rows(json.loads((out / "summary.json").read_text()), "dialogue")
    assert found["rea, preserve", 1000]["recall"] == 1.0
    assert found["rea, preserve", 1000]["tokens"] == 63
    assert found["rea, abandon", 1000]["recall"] == 0.5, "of one question the evidence is a reply, of the other none"
    assert found["rea, abandon", 1000]["tokens"] == 63 - 27


def test_at_evictions_a_question_finds_what_was_left(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    retention.retention(data=data, dataset="locomo", out=out, policies=("fifo", "bm25"), dialogue_budgets=(5, 40, 1000))
    summary = json.loads((out / "summary.json").read_text())
    assert "agents" not in summary
    found = {(row["policy"], row["budget"]): row for row in summary["dialogue"]["at_evictions"]}
    assert found["fifo", 5]["failed"] == 1.0
    # With the fifth turn the session is at 47 and evicts down to 9 + 0.6 x 31: turns 3 to 5 stay, and the sixth fits.
    assert (found["fifo", 40]["recall"], found["fifo", 40]["tokens"]) == (0.75, 36)
    assert (found["fifo", 1000]["recall"], found["fifo", 1000]["adversarial_recall"]) == (1.0, 1.0)
    assert found["bm25", 1000]["tokens"] == 56


def test_weights_are_fitted_to_other_conversations(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    talks = tmp_path / "talks.json"
    talks.write_text(json.dumps([made_talks.locomo(seed) for seed in (1, 2, 3)]))
    fitted: list[set[str]] = []
    weights = training.weights

    def watched(found: training.Sheet, chosen: list[int], **options: Any) -> Any:
        fitted.append({found.groups[at] for at in chosen})
        return weights(found, chosen, **options)

    monkeypatch.setattr(training, "weights", watched)
    retention.retention(
        data=talks, dataset="locomo", train_on=talks, out=tmp_path / "out", policies=("lre", "relevance", "fifo"),
        dialogue_budgets=(150,),
    )  # fmt: skip
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["dialogue"]["weights"] == {
        "lre": "as shipped",
        "relevance": "as shipped",
        **{
            f"{name}, {rule}": f"fitted to talks.json by {rule}"
            for name in ("lre", "relevance")
            for rule in ("gold", "best")
        },
    }
    found = rows(summary, "dialogue")
    assert found["relevance, gold", 150]["recall"] > found["lre, gold", 150]["recall"] > 0
    assert found["relevance, best", 150]["recall"] > found["fifo", 150]["recall"]
    groups = {"conv-1", "conv-2", "conv-3"}
    assert sorted(map(sorted, fitted)) == sorted(sorted(groups - {left}) for left in groups for _ in ("gold", "best"))


def test_a_score_is_kept_for_its_units_and_query_only() -> None:
    asked: list[str] = []

    def scorer(units: Sequence[Unit], query: Unit | None = None) -> list[float]:
        asked.append(query.text if query else "")
        return [0.0] * len(units)

    policy = once(Select(scorer))
    units = units_of([{"role": "user", "content": text} for text in ("one", "two", "three", "four")])
    for query in (units[0], units[0], units[1]):
        policy(units, units[-1].tokens, query)
        policy(units, units[-1].tokens + 1, query)
    assert asked == ["one", "two"]


def test_among_steps_lre_is_compared_with_each_other(tmp_path: Path, data: Path) -> None:
    steps = [{"source": "user", "message": "Fix /a/one.txt"}, step(1, "cat /a/one.txt", "holds key_alpha")]
    steps += [step(number, "ls", "nothing " * 60) for number in range(2, 12)]
    steps.append(step(12, "use key_alpha", "done"))
    row = {"task": "t", "trial": "1", "reward": 1, "trajectory": {"schema_version": "ATIF-v1.6", "steps": steps}}
    (tmp_path / "runs.jsonl").write_text(json.dumps(row))
    out = tmp_path / "out"
    retention.retention(
        data=tmp_path / "runs.jsonl", dataset="trajectories", out=out, policies=("fifo", "lre"), agent_budgets=(99,)
    )
    agents = json.loads((out / "summary.json").read_text())["agents"]
    found = {(row["policy"], row["budget"]): row["availability"] for row in agents["steps"]}
    assert (found["fifo", 512], found["lre", 512], found["identifier density", 512]) == (0.0, 1.0, 1.0)
    compared = {(row["beside"], row["budget"]): row for row in agents["compared"]}
    assert (compared["fifo", 512]["policy"], compared["fifo", 512]["more"]) == ("lre", 1.0)
    assert compared["fifo", 512]["closed"] == 1.0
    assert compared["identifier density", 512]["more"] == 0.0


def test_the_plot(data: Path, tmp_path: Path) -> None:
    retention_plot(run(data, tmp_path / "out"), tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_the_same_twice(data: Path, tmp_path: Path) -> None:
    assert run(data, tmp_path / "a") == run(data, tmp_path / "b")
    one, two = (tmp_path / name / "records.jsonl" for name in "ab")
    assert one.read_bytes() == two.read_bytes()


def test_errors_come_before_the_work(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(ConfigError, match="did you mean 'fifo'"):
        retention.retention(data=data, out=out, policies=("fifi",))
    with pytest.raises(ConfigError, match="above 0"):
        retention.retention(data=data, out=out, agent_budgets=(0,))
    with pytest.raises(ConfigError, match="JSON files"):
        retention.retention(data=tmp_path, out=out)
    with pytest.raises(ConfigError, match="logs to train on say of nothing"):
        retention.retention(data=data, dataset="trajectories", train_on=data / "locomo", out=out)
    assert not out.exists()


def test_arguments_are_read_as_the_agent_wrote_them(data: Path) -> None:
    (recording,) = load_trajectories(data / "endless_terminals")
    first, second = identifier_availability.actions(recording, WORDS)
    assert (first.needed, second.needed) == (["/a/one.txt"], ["key_alpha"])  # new_name stood nowhere before
    assert (second.tokens, second.floor) == (47, 19)


def test_texts_of_odd_arguments() -> None:
    from forgetless.registry import load_dialect

    call = {
        "id": "1",
        "type": "function",
        "function": {"name": "f", "arguments": '{"a": ["x\\ny", 3, null], "b": "z"}'},
    }
    bad = {"id": "2", "type": "function", "function": {"name": "f", "arguments": "not json"}}
    wires = [{"role": "assistant", "content": "t", "reasoning_content": "hidden", "tool_calls": [call, bad]}]
    messages = load_dialect("chat").parse(wires).messages
    assert identifier_availability.texts(messages) == ["t", "x\ny", "3", "z", "not json"]
