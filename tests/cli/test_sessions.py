"""`forgetless sessions` as a user runs it: a real process, a real file."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from exchanges import exchange, nodes_of, row
from forgetless.stores.sqlite import Sqlite

ANN, BOB = "aa11" * 8, "bb22" * 8

EVIL = "\x1b[31mred\x1b]0;title\x07 and\nlines \ud83d \u202e漢"


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A store with three conversations of two callers."""
    file = tmp_path / "s.db"
    now = time.time()
    with closing(Sqlite(file)) as store:
        first = exchange("r1", ["hello", "hi"], caller=ANN, at=now - 9 * 86400, rows=(row(0), row(1)))
        system = (b'{"role":"system","content":"Be kind."}',)
        second = exchange(
            "r2",
            ["hello", "hi", EVIL, "fine"],
            caller=ANN,
            at=now,
            model="gpt\x1b[1m",
            outcome="compacted",
            budget=120,
            tokens_before=160,
            tokens_after=110,
            system=system,
            base="r1",
            kept=1,
            rows=(row(1), row(2, "omitted", "over_budget"), row(3, "raw", "last_user")),
        )
        store.write([first, second, exchange("r3", ["hello", "hey"], caller=ANN, at=now - 100)])
        store.write([exchange("r4", ["of bob"], caller=BOB, at=now - 5 * 86400)])
        store.write([exchange("r5", ["old"], caller=BOB, conversation="c2", at=now - 40 * 86400)])
    return str(file)


def sessions(*args: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", "from forgetless.cli.main import run; run()", "sessions", *args]
    return subprocess.run(
        command, input=stdin.encode(), capture_output=True, check=False, timeout=60, env={**os.environ, **env}
    )


def good(*args: str, stdin: str = "") -> str:
    done = sessions(*args, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def refused(*args: str, stdin: str = "", **env: str) -> str:
    done = sessions(*args, stdin=stdin, **env)
    assert done.returncode == 2, done.stdout
    assert done.stdout == b""
    return done.stderr.decode().splitlines()[-1]


def test_list_shows_the_newest_first(path: str) -> None:
    lines = [line for line in good("list", "--store", path).splitlines() if "c1" in line or "c2" in line]
    assert [line.split()[1] for line in lines] == ["c1", "c1", "c2"]
    assert all(word in lines[0] for word in ("aa11aa11aa11", "160 → 110", "bm25", "chat"))
    assert good("list", "--store", path, "--caller", "bb").count("bb22bb22bb22") == 2
    found = json.loads(good("list", "--store", path, "--json"))
    assert [(s["caller"], s["messages"], s["requests"]) for s in found] == [(ANN, 5, 3), (BOB, 1, 1), (BOB, 1, 1)]


def test_show_has_the_messages_and_what_became_of_them(path: str) -> None:
    shown = good("show", "c1", "--store", path, "--caller", "aa")
    assert "160 tokens in, 110 out, budget 120; 4 units, 1 of them omitted" in shown
    left = next(line for line in shown.splitlines() if "over_budget" in line)
    assert all(word in left for word in ("assistant", "omitted", "10 → 0", "hi"))
    stayed = next(line for line in shown.splitlines() if "last_user" in line)
    assert all(word in stayed for word in ("user", "raw", "red"))
    assert any("system" in line and "Be kind." in line for line in shown.splitlines())
    assert "1 older branch" in shown


def test_show_json_has_all_of_it(path: str) -> None:
    found = json.loads(good("show", "c1", "--store", path, "--caller", "aa", "--json"))
    assert [m["content"] for m in found["messages"]] == ["Be kind.", "hello", "hi", EVIL, "fine"]
    assert (found["request"]["id"], found["request"]["budget"]) == ("r2", 120)
    assert [e["form"] for e in found["ledger"]] == ["raw", "raw", "omitted", "raw"]
    assert "nodes" not in found["request"]


def test_an_own_system_field_is_message_minus_one(tmp_path: Path) -> None:
    rows = ([0, [-1], "raw", True, None, "system", 3, 3], [1, [0], "raw", True, 0.5, "last_user", 3, 3])
    with closing(Sqlite(tmp_path / "s.db")) as store:
        store.write([exchange("r1", ["question", "answer"], system=(b'"You are wise."',), rows=rows)])
    shown = good("show", "c1", "--store", str(tmp_path / "s.db")).splitlines()
    assert any("-1" in line and "You are wise." in line for line in shown)
    assert any("last_user" in line and "question" in line for line in shown)


def test_without_contents_it_shows_numbers(tmp_path: Path) -> None:
    with closing(Sqlite(tmp_path / "s.db", contents=False)) as store:
        store.write([exchange("r1", ["question", "answer"], system=(b'"secret"',), rows=(row(0),))])
    shown = good("show", "c1", "--store", str(tmp_path / "s.db"))
    assert "assistant" in shown
    assert "question" not in shown
    assert json.loads(good("show", "c1", "--store", str(tmp_path / "s.db"), "--json"))["messages"] == [
        {"role": "user", "tokens": 8},
        {"role": "assistant", "tokens": 6},
    ]


def test_nothing_that_a_terminal_obeys_gets_there(path: str) -> None:
    for args in (("list",), ("show", "c1", "--caller", "aa")):
        shown = good(*args, "--store", path)
        assert not {c for c in shown if ord(c) < 32 and c != "\n"}
        assert "\u202e" not in shown
        assert "[31mred" in shown or args == ("list",)


def test_many_messages_are_cut_to_the_newest(tmp_path: Path) -> None:
    said = [f"word {n}" for n in range(250)]
    with closing(Sqlite(tmp_path / "s.db")) as store:
        store.write([exchange("r1", said, rows=tuple(row(n) for n in range(250)))])
    shown = good("show", "c1", "--store", str(tmp_path / "s.db"))
    assert shown.count("the newest 100 of 250") == 2
    assert "word 249" in shown
    assert "word 149 " not in shown


def test_what_stays_at_the_users_wish_is_shown_and_changed(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    rule, later = "From now on, always answer in French.", "From now on, answer in Spanish instead. How are you?"
    rows = ([0, [0], "raw", True, None, "system", 3, 3], *([n, [n], *row(n)[2:]] for n in range(1, 6)))
    with closing(Sqlite(file)) as store:
        system = (b'{"role":"system","content":"Be kind."}',)
        said = ["hello", "hi", rule, "oui", later, "bien"]
        store.write([exchange("r1", said, caller=ANN, system=system, rows=tuple(rows))])
    args = ("--store", str(file))
    shown = good("show", "c1", *args)
    assert any(rule in line and "replaced" in line for line in shown.splitlines())
    assert any("5" in line and "answer in Spanish instead." in line and "holds" in line for line in shown.splitlines())
    good("pin", "c1", "2", *args)
    good("unpin", "c1", "5", *args)
    found = json.loads(good("show", "c1", "--json", *args))
    told = {wish["message"]: (wish["pinned"], [one["state"] for one in wish["instructions"]]) for wish in found["pins"]}
    assert told == {2: (True, []), 3: (False, ["instruction"]), 5: (False, ["dropped"])}
    assert found["messages"][2]["content"] == "hi"
    good("unpin", "c1", "2", *args)
    assert [wish["message"] for wish in json.loads(good("show", "c1", "--json", *args))["pins"]] == [3, 5]
    assert json.loads(good("show", "c1", "--json", "--instructions", "none", *args))["pins"] == []
    assert "no message 0 to pin" in refused("pin", "c1", "0", *args), "the system message stays anyway"
    assert "no message 7 to pin" in refused("unpin", "c1", "7", *args)


def test_export_to_standard_output_and_to_a_file_of_ones_own(path: str, tmp_path: Path) -> None:
    lines = good("export", "--store", path).splitlines()
    assert [json.loads(line)["caller"] for line in lines] == [ANN, ANN, BOB, BOB]
    out = tmp_path / "out.jsonl"
    assert good("export", "c1", "--store", path, "--caller", "aa", "--out", str(out)) == ""
    assert out.read_text().splitlines() == lines[:2]
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert nodes_of(["hello", "hi", EVIL])[2].wire in out.read_bytes()  # type: ignore[operator]
    assert "cannot be written" in refused("export", "--store", path, "--out", str(tmp_path))


def test_purge_asks_first(path: str) -> None:
    asked = sessions("purge", "--store", path, stdin="n\n")
    assert b"Remove 3 conversations" in asked.stderr
    assert asked.returncode == 2
    assert "give --yes" in refused("purge", "--store", path)
    assert len(json.loads(good("list", "--store", path, "--json"))) == 3
    assert b"removed 1 conversation\n" in sessions("purge", "--store", path, "--older-than", "30", stdin="y\n").stderr
    assert b"removed 0 conv" in sessions("purge", "--store", path, "--older-than", "30").stderr
    assert b"removed 1 conv" in sessions("purge", "c1", "--store", path, "--caller", "bb", "--yes").stderr
    assert [s["caller"] for s in json.loads(good("list", "--store", path, "--json"))] == [ANN]
    assert b"removed 1 conv" in sessions("purge", "--store", path, "--yes").stderr
    assert "no conversations" in good("list", "--store", path)


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (("show", "c9"), "no conversation 'c9'"),
        (("show", "c1"), "several callers"),
        (("show", "c1", "--caller", "cc"), "no callers"),
        (("list", "--caller", ""), "2 callers"),
        (("export", "c9"), "no conversation 'c9'"),
        (("export", "c2", "--caller", "aa"), "no conversation 'c2'"),
        (("pin", "c9", "1"), "no conversation 'c9'"),
        (("unpin", "c1", "1"), "several callers"),
        (("purge", "--older-than", "-1"), "0 or more"),
        (("purge", "--older-than", "nan"), "0 or more"),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_code_two(path: str, args: tuple[str, ...], hint: str) -> None:
    line = refused(*args, "--store", path)
    assert line.startswith("forgetless: ")
    assert hint in line


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    assert "no store at" in refused("list", "--store", str(tmp_path / "typo.db"))
    assert "no store at" in refused("list", XDG_DATA_HOME=str(tmp_path), LOCALAPPDATA=str(tmp_path), HOME=str(tmp_path))
    assert "there is no store 'memmory'" in refused("list", "--store", "memmory")
    assert list(tmp_path.iterdir()) == []
