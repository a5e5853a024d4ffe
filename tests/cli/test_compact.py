"""`forgetless compact` as a user runs it: a real process, real files, real pipes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MESSAGES = [{"role": r, "content": f"{r} {n} " + "word " * 50} for n in range(20) for r in ("user", "assistant")]
BODY = {"model": "gpt-4o", "messages": MESSAGES}


def forgetless(*args: str, stdin: str | bytes = "") -> subprocess.CompletedProcess[bytes]:
    data = stdin if isinstance(stdin, bytes) else stdin.encode()
    command = [sys.executable, "-c", "from forgetless.cli.main import run; run()", *args]
    return subprocess.run(command, input=data, capture_output=True, check=False, timeout=60)


def write(tmp_path: Path, value: Any, name: str = "in.json") -> str:
    path = tmp_path / name
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return str(path)


def test_a_body_from_a_file_comes_out_compacted_with_a_table_beside_it(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.json"
    done = forgetless("compact", write(tmp_path, BODY), "--budget", "500", "--policy", "fifo", "--ledger", str(ledger))
    assert done.returncode == 0, done.stderr
    request = json.loads(done.stdout)
    assert request["model"] == "gpt-4o"
    assert request["messages"] == MESSAGES[-len(request["messages"]) :]
    assert b"over_budget" in done.stderr
    entries = json.loads(ledger.read_text())
    assert len(entries) == len(MESSAGES)
    assert sum(e["tokens_after"] for e in entries) <= 500


def test_json_prints_one_object(tmp_path: Path) -> None:
    done = forgetless("compact", write(tmp_path, MESSAGES), "--budget", "500", "--json")
    value = json.loads(done.stdout)
    assert {"request", "ledger", "tokens", "budget"} <= set(value)
    assert value["tokens"] <= value["budget"] == 500


def test_standing_in_a_pipe_with_lines_in_and_lines_out() -> None:
    lines = "\n".join(json.dumps(m) for m in MESSAGES) + "\n\n"
    done = forgetless("compact", "-", "--budget", "500", stdin=lines)
    out = [json.loads(line) for line in done.stdout.splitlines()]
    assert 0 < len(out) < len(MESSAGES)
    assert all(m in MESSAGES for m in out)


def test_a_trajectory_becomes_chat_messages(tmp_path: Path) -> None:
    steps: list[Any] = [{"step_id": 1, "source": "user", "message": "Count the files."}]
    for n in range(6):
        call = {"tool_call_id": f"t{n}", "function_name": "bash", "arguments": {"keystrokes": f"ls {n}\n"}}
        seen = {"results": [{"source_call_id": f"t{n}", "content": "file\n" * 100}]}
        steps.append({"step_id": n + 2, "source": "agent", "message": "", "tool_calls": [call], "observation": seen})
    done = forgetless(
        "compact",
        write(tmp_path, {"schema_version": "ATIF-v1.6", "steps": steps}),
        "--budget",
        "300",
        "--policy",
        "masking",
    )
    assert done.returncode == 0, done.stderr
    out = json.loads(done.stdout)
    assert out[0] == {"role": "user", "content": "Count the files."}
    assert out[-1]["tool_call_id"] == "t5"


def test_a_lone_surrogate_survives_the_way_through(tmp_path: Path) -> None:
    done = forgetless("compact", write(tmp_path, '[{"role": "user", "content": "a\\ud83db 漢"}]'), "--budget", "50")
    assert json.loads(done.stdout) == [{"role": "user", "content": "a\ud83db 漢"}]
    assert "漢".encode() in done.stdout


def test_truncate_and_pin_and_tokenizer(tmp_path: Path) -> None:
    big = [*MESSAGES, {"role": "user", "content": "Read " + "word " * 3000}]
    path = write(tmp_path, big)
    assert forgetless("compact", path, "--budget", "400").returncode == 2
    done = forgetless("compact", path, "--budget", "400", "--truncate", "--pin", "0")
    out = json.loads(done.stdout)
    assert out[0] == MESSAGES[0]
    assert "tokens left out here" in out[-1]["content"]


@pytest.mark.parametrize(
    ("value", "args", "hint"),
    [
        ('{"messages": [}', (), "line 1, column 15"),
        ('{"role": "user", "content": "a"}\n{"role": }\n', (), "line 2, column 10"),
        ("", (), "is empty"),
        ("3", (), "neither a list of messages"),
        (BODY, ("--policy", "bm52"), "did you mean 'bm25'"),
        (BODY, ("--budget", "0"), "above 0"),
        (BODY, ("--budget", "-5"), "above 0"),
        (BODY, ("--budget", "many"), "budget"),
        ({"messages": MESSAGES}, (), "give a budget"),
        (BODY, ("--dialect", "anthropik"), "dialect"),
        ([{"role": "tool", "tool_call_id": "x", "content": "y"}], ("--dialect", "anthropic"), "role 'tool'"),
        (
            [*MESSAGES, {"role": "tool", "tool_call_id": "x", "content": "y"}],
            (),
            "message 40: the tool result 'x'",
        ),
        (BODY, ("--tokenizer", "missing.json"), "cannot be read"),
        (BODY, ("--unknown",), "unknown"),
        (BODY, ("--option", "turns"), "NAME=VALUE"),
        (BODY, ("--option", "turns=3"), "option of policy 'relevance'"),
        (BODY, ("--tokenizer", ""), "cannot be read"),
        ("[" * 100_000 + "]" * 100_000, (), "cannot be read as JSON"),
        ('{"messages": [], "n": ' + "9" * 5000 + "}", (), "cannot be read as JSON"),
        ('{"messages": [{"role": "user", "content": "a"}], "temperature": 1e999}', (), "cannot be written as JSON"),
        ('{"custom_id": "1", "body": {"messages": []}}\n{"custom_id": "2"}\n', (), "a whole request"),
        ({"schema_version": "ATIF-v1.6", "steps": [{"source": {"a": 1}, "message": "x"}]}, (), "'source' must be"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(tmp_path: Path, value: Any, args: tuple[str, ...], hint: str) -> None:
    given = ("--budget", "500") if "--budget" not in args and hint != "give a budget" else ()
    done = forgetless("compact", write(tmp_path, value), *given, *args)
    assert done.returncode == 2
    assert done.stdout == b""
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("forgetless: ")
    assert hint.lower() in line.lower()


def test_a_line_ends_only_where_json_lines_do() -> None:
    said = [{"role": "user", "content": "one\u2028two\x85three"}, *MESSAGES]
    lines = "\n".join(json.dumps(m, ensure_ascii=False) for m in said)
    done = forgetless("compact", "-", "--budget", "100000", stdin=lines)
    assert [json.loads(line) for line in done.stdout.decode().split("\n") if line] == said
    deep = json.dumps(MESSAGES[0]) + "\n" + "[" * 100_000 + "]" * 100_000
    assert b"cannot be read as JSON" in forgetless("compact", "-", "--budget", "500", stdin=deep).stderr


def test_options_reach_the_policy(tmp_path: Path) -> None:
    path = write(tmp_path, MESSAGES)
    done = forgetless("compact", path, "--budget", "2000", "--policy", "recent", "--option", "turns=2")
    assert json.loads(done.stdout) == MESSAGES[-4:]


def test_escapes_in_a_message_do_not_reach_the_terminal(tmp_path: Path) -> None:
    evil = [{"role": "user", "content": "\x1b[31mred " + "word " * 400}, *MESSAGES]
    assert b"\x1b[31m" not in forgetless("compact", write(tmp_path, evil), "--budget", "500").stderr


def test_the_ledger_does_not_overwrite_its_source(tmp_path: Path) -> None:
    path = write(tmp_path, MESSAGES)
    assert b"would overwrite" in forgetless("compact", path, "--budget", "500", "--ledger", path).stderr
    assert json.loads(Path(path).read_text()) == MESSAGES
    assert b"cannot be written" in forgetless("compact", path, "--budget", "500", "--ledger", str(tmp_path)).stderr


@pytest.mark.parametrize("target", ["> /dev/full", ">&-", "< /dev/null", "<&-"])
def test_streams_that_are_full_or_closed_are_one_line(tmp_path: Path, target: str) -> None:
    name = write(tmp_path, MESSAGES) if ">" in target else "-"
    script = (
        f'exec {sys.executable} -c "from forgetless.cli.main import run; run()" compact {name} --budget 500 {target}'
    )
    done = subprocess.run(["sh", "-c", script], capture_output=True, check=False, timeout=60)
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
    assert done.stderr.startswith(b"forgetless: standard ")


def test_a_missing_file_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    assert b"No such file" in forgetless("compact", str(tmp_path / "none.json")).stderr
    assert b"not UTF-8" in forgetless("compact", "-", stdin=b"\xff\xfe[]").stderr
