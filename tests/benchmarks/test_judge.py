"""`forgetless bench judge`: ratings as written, what a judge sees, what is counted, and going on after a break."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetless.benchmarks.asked import Asked
from forgetless.benchmarks.judge import RUBRICS, Judge, rating
from forgetless.benchmarks.player import Player
from forgetless.benchmarks.tasks import judge as task
from forgetless.benchmarks.tasks.judge import play, summarise
from forgetless.datasets.judged import Dialogue, Turn
from forgetless.errors import ConfigError, ModelError
from forgetless.models.scripted import Scripted


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("Good. Rating: [[8]]", 8.0),
        ("As in [[5]]: mine is [[ 7.5 ]]", 7.5),
        ("[[Rating: 9/10]]", 9.0),
        ('{"Rationale": "fine", "Score": 6}', 6.0),
        ('Here:\n```json\n{"Rationale": "fine", "score": "6/10"}\n```', 6.0),
        ('{"Rationale": "he said "no"", "Score": 4}', 4.0),
        ("[[0]]", None),
        ("[[11]]", None),
        ("[[85]]", None),
        ("I give it an 8.", None),
        ('{"Rationale": "fine", "Score": "good"}', None),
        ('{"Rationale": "fine"', None),
        ("", None),
    ],
)
def test_a_rating_is_read_as_it_was_written(text: str, score: float | None) -> None:
    assert rating(text, 10) == score


@given(st.text(), st.integers(1, 10), st.booleans())
def test_any_rating_among_any_words_is_read(words: str, score: int, as_json: bool) -> None:
    given = json.dumps({"Rationale": words, "Score": score}) if as_json else f"{words} [[{score}]]"
    assert rating(given, 10) == score or "[[" in words  # brackets among the words of JSON count first


@given(st.text(max_size=200))
def test_no_text_is_an_error(text: str) -> None:
    found = rating(text, 5)
    assert found is None or 1 <= found <= 5


DIALOGUE = Dialogue("d", "g", (Turn("First?"), Turn("Second?", "Told.", judged=False), Turn("Third?", reference="3")))


def judge_of(script: Any, tmp_path: Path, dataset: str = "mt_bench") -> tuple[Judge, Scripted]:
    model = Scripted(script, name="the judge")
    return Judge(Asked(model, tmp_path / "verdicts.jsonl"), RUBRICS[dataset]), model


def test_the_judge_sees_what_came_before_and_the_reference_but_judges_the_last_answer() -> None:
    (message,) = RUBRICS["mt_bench"].ask(DIALOGUE, 2, ["one", "Told.", "three"])
    said = message["content"]
    assert said.index("First?") < said.index("Told.") < said.index("Third?") < said.index("three")
    assert "[Start: Reference answer]\n3\n" in said
    assert "reference" not in RUBRICS["mt_bench"].ask(DIALOGUE, 0, ["one"])[0]["content"].lower()


def test_a_turn_may_hide_the_conversation() -> None:
    hidden = Dialogue("d", "g", (Turn("Before."), Turn("Asked?", sees=())), about="who it is")
    said = RUBRICS["characterbench"].ask(hidden, 1, ["a", "b"])[0]["content"]
    assert "Before." not in said
    assert "who it is" in said


def test_a_broken_verdict_is_asked_for_once_more(tmp_path: Path) -> None:
    judge, model = judge_of(["Well.", "[[4]]"], tmp_path)
    verdict = judge(DIALOGUE, 0, ["one"])
    assert (verdict.score, verdict.asked) == (4.0, 2)
    assert [message["role"] for message in model.requests[1]["messages"]] == ["user", "assistant", "user"]


def test_a_verdict_that_stays_broken_is_none_and_not_zero(tmp_path: Path) -> None:
    judge, _ = judge_of(["Well.", "Hm."], tmp_path)
    verdict = judge(DIALOGUE, 0, ["one"])
    assert (verdict.score, verdict.text, verdict.asked) == (None, "Hm.", 2)


def test_a_refusal_is_kept_and_an_outage_is_not(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    model = Scripted([ModelError("down"), ModelError("too long", status=400)])
    asked = Asked(model, file)
    with pytest.raises(ModelError, match="down"):
        asked({"messages": []})
    for again in (False, True):
        with pytest.raises(ModelError, match="too long") as caught:
            (Asked(Scripted([]), file) if again else asked)({"messages": []})
        assert caught.value.status == 400
    assert len(model.requests) == 2


def test_a_line_that_was_cut_off_is_asked_again(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    bodies = [{"messages": [{"role": "user", "content": text}]} for text in ("One?", "Two?")]
    asked = Asked(Scripted(["one", "two"]), file)
    first, second = map(asked, bodies)
    file.write_text(file.read_text()[:-20])
    again = Asked(Scripted(["three"]), file)
    assert again(bodies[0]) == first
    assert again(bodies[1]) != second
    kept = Asked(Scripted([]), file)
    assert list(map(kept, bodies)) == list(map(again, bodies))
    assert kept.seconds == again.seconds / 2


def player(script: Any, tmp_path: Path, policy: str = "vanilla") -> Player:
    return Player(Asked(Scripted(script, name="the model"), tmp_path / "answers.jsonl"), policy, 2_000, 64)


def test_replies_of_the_model_and_of_the_data_stand_in_the_history(tmp_path: Path) -> None:
    judge, _ = judge_of(["[[3]]", "[[9]]"], tmp_path)
    model = Scripted(["one", "three"])
    asked = Player(Asked(model, tmp_path / "answers.jsonl"), "vanilla", 2_000, 64)
    found = play(DIALOGUE, asked, judge)
    assert [(one.turn, one.answer.text, one.score) for one in found] == [(1, "one", 3.0), (3, "three", 9.0)]
    assert [message["content"] for message in model.requests[1]["messages"]] == [
        "First?",
        "one",
        "Second?",
        "Told.",
        "Third?",
    ]


def test_after_a_turn_without_an_answer_there_are_no_more(tmp_path: Path) -> None:
    judge, model = judge_of([], tmp_path)
    found = play(DIALOGUE, player([ModelError("too long", status=400)], tmp_path), judge)
    assert [one.answer.failed for one in found] == ["too long", "too long"]
    assert not model.requests
    (row,) = summarise(found, 0)
    assert (row["unanswered"], row["unjudged"], row["score"]) == (2, 0, None)


def test_unjudged_turns_are_counted_and_in_no_mean(tmp_path: Path) -> None:
    judge, _ = judge_of(["[[3]]", "?", "?"], tmp_path)
    (row,) = summarise(play(DIALOGUE, player(["one", "three"], tmp_path), judge), 0)
    assert (row["score"], row["turns"], row["unjudged"], row["unanswered"]) == (3.0, 2, 1, 0)
    assert row["by_turn"] == {"1": 3.0}


def test_a_system_prompt_stays_first_under_any_form(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "Be Ann."}]
    for text in ("Always rhyme from now on.", "Where?", "Why?"):
        messages += [{"role": "user", "content": text}, {"role": "assistant", "content": "So."}]
    messages.append({"role": "user", "content": "And?"})
    for form in ("vanilla", "recent-5", "bm25-5", "rea", "rea, system", "lre"):
        model = Scripted(["Here."])
        assert Player(Asked(model, tmp_path / f"{form}.jsonl"), form, 2_000, 64)(messages).text == "Here."
        shown = model.requests[0]["messages"]
        assert [message["role"] for message in shown].count("system") == 1, form
        assert shown[0]["content"].startswith("Be Ann."), form
        assert shown[-1]["content"].startswith("And?"), form


def questions(path: Path) -> Path:
    rows = [{"question_id": n, "category": "writing", "turns": [f"Write {n}.", "Shorter."]} for n in range(3)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_run_goes_on_and_names_its_judge(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, out = questions(tmp_path / "question.jsonl"), tmp_path / "out"
    models: dict[str, Scripted] = {}
    down = True

    def answer(body: Mapping[str, Any]) -> Any:
        asked = body["messages"][-1]["content"]
        return ModelError("down") if down and asked == "Write 2." else f"About {asked}"

    def load(spec: str, model: str | None, *, threads: int | None) -> Scripted:
        models[spec] = Scripted(answer if spec == "model" else lambda _: "[[7]]", name=model or spec)
        return models[spec]

    monkeypatch.setattr(task, "load_model", load)

    def run() -> None:
        task.judge(
            dataset="mt_bench",
            data=data,
            model="model",
            judge="judge",
            judge_name="big-one",
            policy=("vanilla", "recent-5"),
            out=out,
            json=True,
        )

    with pytest.raises(ModelError, match="down"):
        run()
    assert not (out / "summary.json").exists()
    before, down = len(models["judge"].requests), False
    run()
    summary = json.loads(capsys.readouterr().out)
    assert (before, len(models["judge"].requests)) == (4, 2)  # both are shown all of so short a history
    assert summary == json.loads((out / "summary.json").read_text())
    assert summary["judge"] == json.loads((out / "config.json").read_text())["judge"] == "big-one"
    assert [(row["policy"], row["turns"], row["score"]) for row in summary["policies"]] == [
        ("vanilla", 6, 7.0),
        ("recent-5", 6, 7.0),
    ]
    assert len((out / "records.jsonl").read_text().splitlines()) == 12
    assert str(tmp_path) not in (out / "config.json").read_text()


def test_an_unknown_form_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="reaa"):
        player(["x"], tmp_path, "reaa")([{"role": "user", "content": "Hi"}])
