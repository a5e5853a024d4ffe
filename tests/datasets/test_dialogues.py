"""Dialogues for training: what is read, each once, and what is held out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forgetless.datasets.dialogues import Dialogue, Exchange, read_dialogues
from forgetless.errors import ConfigError


def messages(*texts: str) -> list[dict[str, str]]:
    return [{"role": "assistant" if at % 2 else "user", "content": text} for at, text in enumerate(texts)]


def write(folder: Path, name: str, value: Any) -> None:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = map(json.dumps, value) if name.endswith("l") else [json.dumps(value)]
    file.write_text("\n".join(lines), "utf-8")


def test_known_layouts_are_read_each_dialogue_once(tmp_path: Path) -> None:
    conv = {"conv": [{"user": "a", "sys": "b"}, {"user": "c", "sys": "d"}, {"user": "e", "sys": ""}]}
    write(tmp_path, "mt_eval/one.jsonl", [conv, conv])
    session = messages("f", "g", "h", "i")
    write(tmp_path, "longmemeval/s.json", [{"haystack_sessions": [session, session, messages("alone", "it is")]}])
    dated = [{**one, "date": date} for date in "xy" for one in messages(f"{date}1", "2", "3", "4")]
    write(tmp_path, "longmemeval/sample.json", {"data": [{"conversation": dated}]})
    system = [{"role": "system", "content": "be brief"}]
    write(tmp_path, "mine/log.jsonl", [{"messages": system + messages("j", "k", "l", "m", "n")}])
    write(tmp_path, "mine/other.json", [{"text": "no dialogue"}, 3])
    (tmp_path / "mine" / "broken.json").write_text("{", "utf-8")
    found = read_dialogues(tmp_path)
    assert sorted((one.source, one.licence, one.turns) for one in found) == [
        ("longmemeval", "MIT", (("f", "g"), ("h", "i"))),
        ("longmemeval", "MIT", (("x1", "2"), ("3", "4"))),
        ("longmemeval", "MIT", (("y1", "2"), ("3", "4"))),
        ("mine", "of your own data", (("j", "k"), ("l", "m"))),
        ("mt_eval", "MIT", (("a", "b"), ("c", "d"))),
    ]


def test_an_exchange_is_a_reply_with_what_stands_around_it() -> None:
    dialogue = Dialogue("made", "0", (("a", "b"), ("c", "d"), ("e", "f")))
    assert list(dialogue.exchanges()) == [Exchange("a", "b", "c", "d"), Exchange("c", "d", "e", "f")]


def test_dialogues_that_begin_alike_are_held_out_together(tmp_path: Path) -> None:
    long = "The document that they are all about. " * 9
    for name, many in (("a", 40), ("b", 40)):
        rows = [{"messages": messages(f"{n} {long}{name}", "b", "c", name)} for n in range(many)]
        write(tmp_path, f"{name}/rows.jsonl", rows)
    found = read_dialogues(tmp_path)
    sides = {}
    for one in found:
        sides.setdefault(one.turns[0][0].split()[0], set()).add(one.held_out)
    assert all(len(side) == 1 for side in sides.values())
    held = sum(one.held_out for one in found) / len(found)
    assert 0.05 < held < 0.4


def test_no_folder_or_no_dialogue_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no folder"):
        read_dialogues(tmp_path / "none")
    with pytest.raises(ConfigError, match="no dialogues"):
        read_dialogues(tmp_path)


@pytest.mark.parametrize(
    "odd",
    ["5", '{"data": null}', '{"messages": ["hi"]}', '{"conv": [{"user": "a"}]}', '{"haystack_sessions": null}', "{"],
)
def test_a_file_that_only_looks_like_one_is_passed(tmp_path: Path, odd: str) -> None:
    (tmp_path / "odd.json").write_text(odd)
    said = [{"role": ("user", "assistant")[at % 2], "content": f"turn {at}"} for at in range(4)]
    (tmp_path / "talk.json").write_text(json.dumps({"messages": said}))
    assert [len(one.turns) for one in read_dialogues(tmp_path)] == [2]
