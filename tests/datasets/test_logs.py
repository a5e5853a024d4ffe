"""Logs from all kinds of files: what comes out, each conversation once, and errors that name the record."""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from forgetless.datasets.logs import Log, read_logs
from forgetless.errors import ConfigError
from made_talks import locomo

TALK = [{"role": "user", "content": "my code is 7741"}, {"role": "assistant", "content": "noted"}]
MORE = [*TALK, {"role": "user", "content": "which code?"}, {"role": "assistant", "content": "7741"}]


def read(path: Path) -> list[Log]:
    return list(read_logs([path]))


def written(path: Path, *values: Any) -> Path:
    text = "\n".join(map(json.dumps, values)) + "\n"
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_bodies_of_requests_that_go_on_count_once(tmp_path: Path, name: str) -> None:
    other = {"model": "m", "max_tokens": 9, "system": "be kind", "messages": [{"role": "user", "content": "hi"}]}
    logs = read(written(tmp_path / name, {"model": "m", "messages": TALK}, other, {"request": {"messages": MORE}}))
    assert sorted(len(log.units) for log in logs) == [2, 4]


def test_responses_bodies_are_read(tmp_path: Path) -> None:
    body = {"model": "m", "input": [{"type": "message", "role": "user", "content": "hello"}]}
    assert [unit.text for unit in read(written(tmp_path / "a.jsonl", body))[0].units] == ["hello"]


def test_lines_of_an_export_name_their_conversation(tmp_path: Path) -> None:
    line = {"conversation": "c1", "dialect": "chat", "branch": 0, "messages": MORE, "requests": []}
    bare = {**line, "conversation": "c2", "messages": [{"role": "user", "tokens": 7}]}
    (log,) = read(written(tmp_path / "a.jsonl", line, bare))
    assert (log.name, len(log.units)) == ("c1", 4)


def test_a_store_is_read_as_it_stands(tmp_path: Path) -> None:
    from forgetless.stores.base import Exchange, Node
    from forgetless.stores.sqlite import Sqlite

    file = tmp_path / "s.db"
    store = Sqlite(file)
    nodes = []
    parent = b""
    for number, message in enumerate(MORE):
        key = bytes([number + 1]) * 16
        nodes.append(Node(key, parent, message["role"], 5, json.dumps(message).encode()))
        parent = key
    store.write(
        [Exchange(id="r", caller="c", conversation="talk", at=1.0, dialect="chat", head=parent, nodes=(*nodes,))]
    )
    store.close()
    (log,) = read(file)
    assert log.name == "talk"
    assert [unit.text for unit in log.units] == [message["content"] for message in MORE]


def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    assert file.read_bytes().startswith(b"SQLite format 3")


def test_trajectories_are_named_by_task_and_trial(tmp_path: Path) -> None:
    steps = [
        {"step_id": 1, "source": "user", "message": "list files"},
        {"step_id": 2, "source": "agent", "message": "done"},
    ]
    row = {"task": "t", "trial": "1", "reward": 1, "trajectory": {"schema_version": "ATIF-v1.6", "steps": steps}}
    (log,) = read(written(tmp_path / "a.jsonl.gz", row))
    assert (log.name, len(log.units)) == ("t/1", 2)


def test_locomo_brings_its_questions(tmp_path: Path) -> None:
    sample = locomo(1)
    (log,) = read(written(tmp_path / "a.json", [sample]))
    assert len(log.questions) == len(sample["qa"])
    assert log.units[0].text.endswith(f"Ann: {log.texts[0]}")
    assert log.units[log.questions[0].evidence[0]].text.endswith(sample["conversation"]["session_1"][0]["text"])


def test_longmemeval_brings_one_question_or_many(tmp_path: Path) -> None:
    sessions = [[{**TALK[0], "has_answer": True}, TALK[1]], MORE]
    one = {"question_id": "q", "question": "Which code?", "answer": 7741, "haystack_sessions": sessions}
    many = {"question_id": "p", "questions": ["a?", "b?"], "answers": ["a", "b"], "haystack_sessions": sessions}
    first, second = read(written(tmp_path / "a.json", [one, many]))
    assert [len(log.units) for log in (first, second)] == [6, 6]
    assert first.questions[0].answer == "7741"
    assert [question.evidence for question in second.questions] == [(0,), (0,)]


def test_mt_eval_and_mt_bench_plus(tmp_path: Path) -> None:
    turn = {"user": "my code is 7741", "sys": "noted"}
    (log,) = read(written(tmp_path / "a.jsonl", {"id": "9", "conv": [turn]}))
    assert [unit.kind for unit in log.units] == ["user", "assistant"]
    plus = {"id": "p", "conversations": [{"from": "human", "value": "hi"}, {"from": "chatbot", "value": "hello"}]}
    (log,) = read(written(tmp_path / "b.json", [plus]))
    assert [unit.kind for unit in log.units] == ["user", "assistant"]


def test_a_folder_is_read_file_by_file(tmp_path: Path) -> None:
    written(tmp_path / "b.json", TALK)
    written(tmp_path / "a.json", MORE)
    (tmp_path / "LICENSE.txt").write_text("free")
    assert [len(log.units) for log in read(tmp_path)] == [4, 2]


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.jsonl", '{"messages": [{"role": "user", "content": "hi"}]}\n{"x": 1}\n', "record 2"),
        ("a.jsonl", "{\n", "line 1"),
        ("a.json", "{", "cannot read"),
        ("a.jsonl.gz", "no gzip", "cannot read"),
        ("a.json", '[{"haystack_sessions": 5}]', "instance 0"),
        ("a.json", "7", "record 1"),
    ],
)
def test_what_is_no_log_is_refused(tmp_path: Path, name: str, text: str, told: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=told):
        read(tmp_path / name)


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no"):
        read(tmp_path)
