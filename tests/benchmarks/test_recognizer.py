"""`forgetless bench recognizer`: figures as counted by hand, both layouts of data, learning curve, summary."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import labelled_messages
from forgetless.benchmarks.tasks import recognizer as task
from forgetless.benchmarks.tasks.recognizer import Item, Outcome, figures, judge, read, recognizer
from forgetless.errors import ConfigError
from forgetless.models.scripted import Scripted


def test_figures_are_those_counted_by_hand() -> None:
    items = [
        Item("one", True, ((0, 2),), "en", "a"),
        Item("two", True, ((0, 1), (2, 3)), "de", "a"),
        Item("three", False, (), "en", "b"),
        Item("four", False, (), "en", "b"),
    ]
    spans: list[list[tuple[int, int]]] = [[(1, 3)], [], [(0, 5)], []]
    found = figures(items, [Outcome(one, 2.0) for one in spans])
    assert (found["accuracy"], found["precision"], found["recall"]) == (0.5, 0.5, 0.5)
    counts = ("true_positives", "false_positives", "false_negatives", "true_negatives")
    assert [found[name] for name in counts] == [1, 1, 1, 1]
    assert found["pieces_found"] == 0.3333
    assert found["micros"] == 2.0
    assert found["languages"]["de"] == {"messages": 1, "accuracy": 0.0, "precision": None, "recall": 0.0}
    assert found["kinds"]["b"] == {"messages": 2, "accuracy": 0.5, "precision": 0.0, "recall": None}


def test_each_message_is_judged_and_timed() -> None:
    judged = judge([Item("a", True), Item("bb", False)], lambda text: [(0, len(text))])
    assert [one.spans for one in judged] == [[(0, 1)], [(0, 2)]]
    assert all(one.micros > 0 for one in judged)


def test_mt_evals_first_turn_holds_one_and_the_later_ones_none(tmp_path: Path) -> None:
    file = tmp_path / "recollection.jsonl"
    turns = [{"user": "Always rhyme.", "sys": "ok", "id": "instruction"}, {"user": "Why?", "sys": "", "id": "1-2"}]
    file.write_text(json.dumps({"conv": turns}) + "\n")
    assert [(item.text, item.label, item.kind) for item in read(file)] == [
        ("Always rhyme.", True, ""),
        ("Why?", False, ""),
    ]


def test_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    data = labelled_messages.write(tmp_path / "made.jsonl")
    monkeypatch.setattr(task, "SHARES", (1,))
    recognizer(data=(data,), train=(data, data), out=tmp_path / "out", json=True)
    summary = json.loads(capsys.readouterr().out)
    assert summary == json.loads((tmp_path / "out" / "summary.json").read_text())
    assert list(summary["recognizers"]) == [
        "rules",
        "learned",
        "learned, fitted to 60",
    ]
    assert summary["recognizers"]["learned, fitted to 60"]["accuracy"] == 1.0
    assert summary["items"] == 60
    records = (tmp_path / "out" / "records.jsonl").read_text().splitlines()
    assert len(records) == 3 * 60
    assert "French" not in records[0]
    assert str(tmp_path) not in (tmp_path / "out" / "config.json").read_text()


def test_a_model_is_asked_and_calibrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Telling(Scripted):
        def __call__(self, body):  # type: ignore[no-untyped-def]
            asked = body["messages"][0]["content"].rpartition("Input: ")[2]
            sure = 0.0 if any(word in asked for word in ("Always", "From now on", "Never")) else -9.0
            top = [{"token": "YES", "logprob": sure}, {"token": "NO", "logprob": -1.0}]
            reply = super().__call__(body)
            reply["choices"][0]["logprobs"] = {"content": [{"token": "NO", "logprob": -1.0, "top_logprobs": top}]}
            return reply

    monkeypatch.setattr(task, "load_model", lambda spec: Telling(lambda _: "NO", name=spec))
    monkeypatch.setattr(task, "SHARES", ())
    data = labelled_messages.write(tmp_path / "made.jsonl")
    recognizer(data=(data,), model=("tiny",), train=(data,), sample=20, out=tmp_path / "out")
    rows = json.loads((tmp_path / "out" / "summary.json").read_text())["recognizers"]
    assert rows["llm tiny"]["recall"] == 0.0
    assert rows["llm tiny, calibrated"]["accuracy"] == 1.0
    assert rows["rules"]["true_positives"] + rows["rules"]["false_negatives"] < 20


@pytest.mark.parametrize("text", ["", "{", '{"text": "x"}'])
def test_faulty_data_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text(text)
    with pytest.raises(ConfigError):
        recognizer(data=(tmp_path / "bad.jsonl",), out=tmp_path / "out")
    with pytest.raises(ConfigError, match="cannot read"):
        recognizer(data=(tmp_path / "none.jsonl",), out=tmp_path / "out")
