"""`forgetless bench adherence`: what each form shows the model, and a run that goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from forgetless.benchmarks.forms import FORMS, Scene, form
from forgetless.benchmarks.tasks import adherence as task
from forgetless.errors import ConfigError
from forgetless.models.scripted import Scripted

RULE = "Begin all your responses in the upcoming conversation with the letter q."
OTHER = "All your responses in this conversation must be free of commas."
QUESTIONS = ["What is a harbour?", "Which fruit is sweet?", "Why is the sky blue?", "What is a pear?",
             "Who wrote Hamlet?", "What is a window?", "Is a harbour deep?"]  # fmt: skip


@pytest.fixture
def data(tmp_path: Path) -> Path:
    turns = [{"user": text, "sys": "", "id": str(n), "do_inference": True} for n, text in enumerate(QUESTIONS)]
    first = {"user": RULE, "sys": "ok.", "id": "instruction", "do_inference": False}
    rows = [
        {"id": "1", "inst_name": "startend:start_char", "inst_args": {"letter": "q"}, "conv": [first, *turns]},
        {"id": "2", "inst_name": "punctuation:no_comma", "inst_args": {}, "conv": [{**first, "user": OTHER}, *turns]},
    ]  # fmt: skip
    file = tmp_path / "recollection_multi_global-inst.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    return tmp_path


def obedient(body: Mapping[str, Any]) -> str:
    """Keeps to the rule as long as it stands in the system message or the last one."""
    near = [m["content"] for m in body["messages"] if m["role"] == "system"] + [body["messages"][-1]["content"]]
    said = "quite so" if any("letter q" in text or "of commas" in text for text in near) else "Well, yes"
    return f"{said} and the harbour is deep. It has a window."


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    found = Scripted(obedient)
    monkeypatch.setattr(task, "load_model", lambda *_, **__: found)
    return found


def rows(out: Path) -> dict[str, dict[str, Any]]:
    return {row["policy"]: row for row in json.loads((out / "summary.json").read_text())["rows"]}


def test_every_form_is_played_and_scored(data: Path, model: Scripted, tmp_path: Path) -> None:
    out = tmp_path / "out"
    task.adherence(data=data, out=out, policy=(*FORMS, "fifo", "fifo, kept", "fifo, reminded"), budget=80)
    found = rows(out)
    assert set(found) == {*FORMS, "fifo", "fifo, kept", "fifo, reminded"}
    for name in ("vanilla, reminded", "rea", "rea, system", "rea, paper", "rea, oracle", "abandon", "fifo, reminded"):
        assert found[name]["iar"] == 10.0, name
    for name in ("vanilla", "recent-5", "em", "em + hcr", "fifo", "fifo, kept"):
        assert found[name]["iar"] == 0.0, name
    sizes = found["vanilla"]["prompt_tokens_by_turn"]
    assert sizes == sorted(sizes)
    assert found["abandon"]["prompt_tokens_by_turn"][-1] < sizes[-1]
    shares = {name: row["prefix_share"] for name, row in found.items()}
    assert shares["vanilla"] > shares["recent-5"]
    assert shares["vanilla"] > shares["vanilla, reminded"] > 0.5
    assert shares["summary, fresh"] is None
    assert (out / "adherence.png").stat().st_size > 10_000


def test_a_broken_run_goes_on_and_a_whole_one_can_be_added_to(data: Path, model: Scripted, tmp_path: Path) -> None:
    out = tmp_path / "out"
    task.adherence(data=data, out=out, policy=("vanilla",))
    whole = (out / "records.jsonl").read_text().splitlines()
    asked = len(model.requests)
    assert asked == len(whole) == 14
    (out / "records.jsonl").write_text("\n".join(whole[:9]) + '\n{"policy": "van', encoding="utf-8")
    task.adherence(data=data, out=out, policy=("vanilla",))
    again = [json.loads(line) for line in (out / "records.jsonl").read_text().splitlines()]
    assert len(model.requests) == asked + 5
    assert [(r["dialogue"], r["turn"], r["reply"]) for r in again] == [
        (r["dialogue"], r["turn"], r["reply"]) for r in map(json.loads, whole)
    ]
    task.adherence(data=data, out=out, policy=("rea",))
    assert len(model.requests) == asked + 5 + 14
    assert set(rows(out)) == {"vanilla", "rea"}
    task.adherence(data=data, out=out, policy=("rea",), new_tokens=20)  # another run altogether
    assert set(rows(out)) == {"rea"}


def test_dialogues_can_be_chosen(data: Path, model: Scripted, tmp_path: Path) -> None:
    task.adherence(data=data, out=tmp_path / "out", policy=("vanilla",), rule=("punctuation:no_comma",))
    assert len(model.requests) == 7
    with pytest.raises(ConfigError, match="'startend:rhyme'"):
        task.adherence(data=data, out=tmp_path / "out", policy=("vanilla",), rule=("startend:rhyme",))


def test_forms_show_what_their_names_say() -> None:
    scene = Scene(Scripted(lambda _: "They spoke of harbours."), [RULE], 10_000)
    said = [{"role": "user", "content": RULE}, {"role": "assistant", "content": "ok."}]
    for number, question in enumerate(QUESTIONS):
        said += [{"role": "user", "content": question}, {"role": "assistant", "content": f"Answer {number}. It is so."}]
    said.append({"role": "user", "content": "Is the harbour deep?"})

    def shown(name: str) -> list[dict[str, Any]]:
        return form(name, scene)(list(said))

    assert shown("vanilla") == said
    assert shown("recent-5") == said[-9:]
    assert [m["content"] for m in shown("bm25-5")][-1] == said[-1]["content"]
    assert len(shown("bm25-5")) == 11
    assert shown("rea, system")[0] == {"role": "system", "content": RULE}
    (paper,) = shown("rea, paper")
    assert paper["content"].startswith(f"Instruction: {RULE}\nBackground: ")
    assert paper["content"].endswith("\nQuestion: Is the harbour deep?")
    assert paper["content"].count(RULE) == 1
    assert RULE in shown("rea")[-1]["content"]
    assert RULE in shown("rea, kept in place")[0]["content"]
    for name in ("summary, rolling", "summary, fresh"):
        (one,) = shown(name)
        assert "They spoke of harbours." in one["content"]
        assert one["content"].endswith("Is the harbour deep?")
    assert not [m for m in shown("abandon") if m["role"] == "assistant"]
    assert [m for m in shown("preserve") if m["role"] == "assistant"] == [m for m in said if m["role"] == "assistant"]
    whole = shown("em + hcr, whole turns")
    assert [m["role"] for m in whole[:-1]] == ["user", "assistant"] * (len(whole) // 2)
    assert {m["content"] for m in whole} <= {m["content"] for m in shown("em + hcr")}


def test_unknown_forms_are_named() -> None:
    scene = Scene(Scripted(["x"]), [RULE], 100)
    with pytest.raises(ConfigError, match="'rea, loud'"):
        form("rea, loud", scene)
    with pytest.raises(ConfigError, match="fifo"):
        form("fifa", scene)
