"""Readers of judged dialogues: what comes out of small files of each layout, and errors that say where one is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forgetless.datasets.characterbench import read_characterbench
from forgetless.datasets.judged import Dialogue, Turn
from forgetless.datasets.long_mt_bench_plus import read_long_mt_bench_plus
from forgetless.datasets.lost_in_conversation import read_sharded
from forgetless.datasets.mt_bench import read_mt_bench, read_mt_bench_plus
from forgetless.datasets.mt_eval_judged import read_mt_eval
from forgetless.errors import ConfigError


def lines(path: Path, *values: Any) -> Path:
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def listed(path: Path, *values: Any) -> Path:
    path.write_text(json.dumps(values))
    return path


def test_mt_bench_gives_references_where_fastchat_does(tmp_path: Path) -> None:
    sums = {"question_id": 7, "category": "math", "turns": ["2+2?", "And 3 more?"], "reference": ["4", "7"]}
    role = {"question_id": 8, "category": "roleplay", "turns": ["Be Bob."], "reference": ["Bob"]}
    lines(tmp_path / "question.jsonl", sums, role)
    assert read_mt_bench(tmp_path) == [
        Dialogue("7", "math", (Turn("2+2?", reference="4"), Turn("And 3 more?", reference="7"))),
        Dialogue("8", "roleplay", (Turn("Be Bob."),)),
    ]


def test_mt_bench_plus_judges_the_question_on_its_own_topics(tmp_path: Path) -> None:
    marks = ("stem-14-0", "math-1-0", "stem-14-1", "math-14-0", "math-1-stem-14-Q")
    said = [[{"from": "human", "value": m, "turn-info": m}, {"from": "chatbot", "value": ""}] for m in marks]
    value = {"id": "one", "type": "conjunction", "conversations": [turn for pair in said for turn in pair]}
    (dialogue,) = read_mt_bench_plus(listed(tmp_path / "mtbenchplus.json", value))
    assert [turn.judged for turn in dialogue.turns] == [False] * 4 + [True]
    assert dialogue.turns[-1].sees == (0, 1, 2)
    assert all(turn.reply is None for turn in dialogue.turns)


def test_mt_eval_keeps_the_replies_that_are_not_asked_for(tmp_path: Path) -> None:
    turns = [
        {"user": "Write.", "sys": "Written.", "do_inference": False},
        {"user": "Again.", "sys": "GPT-4's.", "do_inference": True},
    ]
    lines(tmp_path / "follow-up_multi.jsonl", {"id": "3", "conv": turns})
    lines(tmp_path / "recollection_multi_cls.jsonl", {"id": "9", "conv": turns})
    assert read_mt_eval(tmp_path) == [
        Dialogue("follow-up 3", "follow-up", (Turn("Write.", "Written.", judged=False), Turn("Again.")))
    ]


def test_long_mt_bench_plus_asks_each_question_after_the_whole(tmp_path: Path) -> None:
    sessions = [["<Turn 0>: [human]: Hi.\nYou?\n[bot]: Fine.\n\nYou?"], ["[human]: Bye.\n[bot]: Bye."]]
    path = lines(tmp_path / "l.jsonl", {"sessions": sessions, "questions": ["Who?", "Why?"], "answers": ["Me", "So"]})
    first, second = read_long_mt_bench_plus(path)
    before = (Turn("Hi.\nYou?", "Fine.\n\nYou?", judged=False), Turn("Bye.", "Bye.", judged=False))
    assert first.turns == (*before, Turn("Who?", reference="Me", sees=()))
    assert second.turns[-1] == Turn("Why?", reference="So", sees=())
    assert (first.name, first.group) == ("0 0", "0")


def test_characterbench_in_both_languages(tmp_path: Path) -> None:
    said = [("user", "Hi"), ("character", "Ho"), ("user", "Where?")]
    english = {
        "character_name": "Ann",
        "character_profile": "A sailor.",
        "dialogue": [{"speaker": who, "utterance": text} for who, text in said],
        "messages": {"output": {"dialogue_segments": ["Ann: At sea."]}},
    }
    value = {**english, "character_name": "安", "messages": {"output": {"answer": "海"}}, "translation_en": english}
    begun = {**english, "dialogue": [{"utterance": "Well met."}, *english["dialogue"]]}
    listed(tmp_path / "memory_consistency_test.json", value, begun)
    chinese, dialogue, opened = read_characterbench(tmp_path)
    assert opened.turns == dialogue.turns
    assert "Well met." in opened.system
    assert (chinese.group, chinese.turns[-1].reference) == ("zh memory", "海")
    assert dialogue.turns == (Turn("Hi", "Ho", judged=False), Turn("Where?", reference="Ann: At sea."))
    assert "A sailor." in dialogue.system
    assert "memory consistency" in dialogue.about


def test_sharded_instructions(tmp_path: Path) -> None:
    shards = [{"shard_id": 1, "shard": "How many?"}, {"shard_id": 2, "shard": "Two."}]
    sums = {"task_id": "m", "task": "math", "question": "How many of two?", "answer": "#### 2", "shards": shards}
    table = {"task_id": "d", "task": "database", "shards": shards}
    asked = [[{"role": "user", "content": "Call it."}]]
    call = {"task_id": "a", "task": "actions", "fully_specified_question": asked, "shards": shards}
    code = {"task_id": "c", "task": "code", "prompt": "def f(): ...", "shards": shards}
    tested = {**code, "test": "def check(f): ..."}
    found = read_sharded(listed(tmp_path / "s.json", sums, table, call, code, tested))
    assert [one.whole for one in found] == ["How many of two?", "", "Call it.", "def f(): ...", "def f(): ..."]
    assert [one.kind for one in found] == ["math", "database", "actions", "code without test", "code"]
    assert found[0].shards == ("How many?", "Two.")
    assert found[0].record["answer"] == "#### 2"


@pytest.mark.parametrize(
    ("read", "name", "value", "says"),
    [
        (read_mt_bench, "q.jsonl", {"question_id": 1}, "entry 0.*MT-Bench.*'category'"),
        (read_mt_bench_plus, "q.json", {"id": 1, "type": "x", "conversations": []}, "entry 0.*'turn-info'"),
        (read_mt_eval, "expansion_multi.jsonl", {"id": 1}, "entry 0.*MT-Eval.*'conv'"),
        (read_long_mt_bench_plus, "q.json", {"sessions": [["Hi"]], "questions": [], "answers": []}, "no '.human.*'Hi'"),
        (
            read_long_mt_bench_plus,
            "q.json",
            {"sessions": [], "questions": ["?"], "answers": []},
            "entry 0.*Long-MT-Bench",
        ),
        (read_characterbench, "other.json", {}, "no file of CharacterBench"),
        (
            read_characterbench,
            "engagement_test.json",
            {"character_name": "A", "character_profile": "", "dialogue": []},
            "entry 0.*CharacterBench",
        ),
        (read_sharded, "s.json", {"task_id": "x", "task": "math", "question": "?", "shards": []}, "entry 0.*no shards"),
    ],
)
def test_errors_name_the_entry(tmp_path: Path, read: Callable[[Path], Any], name: str, value: Any, says: str) -> None:
    write = lines if name.endswith("l") else listed
    with pytest.raises(ConfigError, match=says):
        read(write(tmp_path / name, value))


@pytest.mark.parametrize("read", [read_mt_bench, read_mt_eval, read_characterbench])
def test_a_folder_without_the_files_is_an_error(tmp_path: Path, read: Callable[[Path], Any]) -> None:
    with pytest.raises(ConfigError, match=r"holds none|can't be read"):
        read(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_a_file_that_holds_no_list(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"x\.json"):
        read_sharded(path)
