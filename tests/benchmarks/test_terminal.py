"""`bench terminal` tells tasks that are set up right from others, and plays what was recorded and what was written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forgetless.benchmarks.tasks import terminal as bench
from forgetless.benchmarks.tasks.terminal import keys, solutions, terminal
from forgetless.datasets.trajectories import load_trajectories
from forgetless.environments.sandbox.base import Limits
from forgetless.environments.sandbox.namespaces import Namespaces
from forgetless.errors import ConfigError


def _task(folder: Path, dockerfile: str) -> None:
    for part, text in {
        "instruction.md": "Make /made.",
        "environment/Dockerfile": f"FROM ubuntu:22.04\n{dockerfile}\n",
        "environment/test_initial_state.py": "import os\ndef test_it():\n    assert os.path.isdir('/here')\n",
        "tests/test_final_state.py": "import os\ndef test_it():\n    assert os.path.isdir('/made')\n",
    }.items():
        path = folder / part
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _run(task: str, reward: float, *turns: list[str]) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"step_id": 1, "source": "user", "message": "go"}]
    for at, typed in enumerate(turns):
        calls = [
            {
                "tool_call_id": f"call_{at}_{place}",
                "function_name": "bash_command",
                "arguments": {"keystrokes": text, "duration": 0.1},
            }
            for place, text in enumerate(typed)
        ]
        results = [{"source_call_id": call["tool_call_id"], "content": "ok"} for call in calls]
        steps.append(
            {
                "step_id": at + 2,
                "source": "agent",
                "message": "",
                "tool_calls": calls,
                "observation": {"results": results},
            }
        )
    trajectory = {"schema_version": "ATIF-v1.6", "session_id": "s", "agent": {"name": "a"}, "steps": steps}
    return {"task": task, "trial": "t", "reward": reward, "trajectory": trajectory}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    _task(tmp_path / "tasks" / "good", "RUN mkdir /here")
    _task(tmp_path / "tasks" / "wrong", "RUN mkdir /made")
    _task(tmp_path / "tasks" / "broken", "RUN false")
    _task(tmp_path / "tasks" / "unlisted", "RUN false")
    (tmp_path / bench.CLEAN).write_text("good\nwrong\nbroken\n")
    runs = [
        _run("good", 0.0, ["mkdir /other\n"]),
        _run("good", 1.0, ["cd /\n", "ls\n"], ["x=made\n"], ["mkdir $x\n"]),
        _run("good", 1.0, ["cd /\n", "x=made\n"], ["mkdir $x\n"]),
    ]
    (tmp_path / "runs.jsonl").write_text("".join(json.dumps(run) + "\n" for run in runs))
    return tmp_path


def test_the_shortest_rewarded_run_is_replayed(data: Path) -> None:
    assert keys(load_trajectories(data)) == {"good": ["cd /\nx=made\n", "mkdir $x\n"]}


def test_solutions_are_scripts_of_tasks() -> None:
    assert len(solutions()) >= 8
    assert all(name.startswith("task_") and len(commands) == 1 for name, commands in solutions().items())


@pytest.mark.slow
def test_a_run_of_it(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        Namespaces(data / "tasks" / "good" / "environment", Limits()).close()
    except ConfigError as error:
        if "sandbox" not in str(error):
            raise
        pytest.skip(str(error))
    monkeypatch.setattr(bench, "solutions", lambda: {"good": ["rmdir /here"]})
    terminal(data=data, out=tmp_path / "out", sandbox="namespaces", json=True)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary == json.loads(capsys.readouterr().out)
    assert summary == {
        "task": "terminal@1",
        "sandbox": "namespaces",
        "tasks": 3,
        "initial_passes": 1,
        "final_fails_before": 1,
        "replays": 1,
        "replays_rewarded": 1,
        "solutions": 1,
        "solutions_rewarded": 0,
    }
    rows = {row["task"]: row for row in map(json.loads, (tmp_path / "out" / "records.jsonl").read_text().splitlines())}
    assert (rows["wrong"]["initial"], rows["wrong"]["final"], rows["wrong"]["solution"]) == (False, True, None)
    assert "line 2 of the Dockerfile failed" in rows["broken"]["error"]


def test_an_unknown_sandbox_is_an_error(data: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not 'foo'"):
        terminal(data=data, out=tmp_path / "out", sandbox="foo")
    assert not (tmp_path / "out").exists()
