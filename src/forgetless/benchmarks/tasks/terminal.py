"""`forgetless bench terminal`: whether the terminal environment makes tasks as they are meant, and what solves them.

For each task the tests of its initial state must pass and those of its final state fail before anything is done. Tasks
with a recorded run that earned its reward are played again from the recorded keys, others from solutions of our own;
each must earn a reward of 1.
"""

from __future__ import annotations

import json as text
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from forgetless.benchmarks.results import open_run
from forgetless.datasets.trajectories import Recording, load_trajectories
from forgetless.environments.sandbox.base import Limits
from forgetless.environments.sandbox.load import kind_of, open_sandbox
from forgetless.environments.terminal import FINAL, INITIAL, Task, Terminal, check, tasks
from forgetless.errors import ConfigError

__all__ = ["keys", "solutions", "terminal"]

BENCHMARK = "terminal@1"
CLEAN = "initial_state_ok_without_docker.txt"
"""In a folder of data: the tasks that start as they are meant without Docker and without a network."""


def terminal(
    *,
    data: Path,
    out: Path = Path("results/terminal"),
    sandbox: str = "auto",
    json: bool = False,
) -> None:
    """Check the terminal environment on tasks of Endless Terminals.

    Args:
        data: a folder with `tasks`; and, where there are any, the list of those that start as they are meant without
            Docker, to which a run without it is kept, and one file of recorded runs.
        out: the results folder.
        sandbox: `docker`, `namespaces`, or `auto`: Docker where an engine answers.
        json: print the summary to stdout, and the table to stderr.
    """
    kind = kind_of(sandbox)
    listed = data / CLEAN
    clean = listed.read_text(encoding="utf-8").split() if listed.is_file() and kind != "docker" else []
    chosen = tasks(data, clean)
    replays = keys(load_trajectories(data)) if any(data.glob("*.jsonl*")) else {}
    with open_run(out, BENCHMARK, data=data.name, tasks=len(chosen), sandbox=kind) as run:
        rows = []
        for row in _progress(_rows(chosen, kind, solutions(), replays), len(chosen)):
            run.record(**row)
            rows.append(row)
        summary = {"task": BENCHMARK, "sandbox": kind, **_summary(rows)}
        run.finish(summary)
    _print(rows, summary, stderr=json)
    if json:
        print(text.dumps(summary, indent=2))


def solutions() -> dict[str, list[str]]:
    """The solutions that come with the benchmark: the commands of each task."""
    written = files("forgetless.benchmarks").joinpath("terminal_solutions.toml").read_text(encoding="utf-8")
    return {name: [script.strip()] for name, script in tomllib.loads(written).items()}


def keys(recordings: Sequence[Recording]) -> dict[str, list[str]]:
    """What was typed in the shortest run of each task that earned its reward: a command for each of its turns."""
    found: dict[str, list[str]] = {}
    for recording in recordings:
        typed = list(_typed(recording.messages))
        if recording.reward == 1 and (recording.task not in found or len(typed) < len(found[recording.task])):
            found[recording.task] = typed
    return found


def _typed(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for message in messages:
        called = [text.loads(call["function"]["arguments"]) for call in message.get("tool_calls") or ()]
        pressed = "".join(arguments.get("keystrokes", "") for arguments in called)
        if pressed.strip():
            yield pressed


def _rows(
    chosen: Sequence[Task], sandbox: str, scripts: Mapping[str, list[str]], replays: Mapping[str, list[str]]
) -> Iterator[dict[str, Any]]:
    for task in chosen:
        yield {
            **_before(task, sandbox),
            "replay": _played(task, sandbox, replays.get(task.name)),
            "solution": _played(task, sandbox, scripts.get(task.name)),
        }


def _before(task: Task, sandbox: str) -> dict[str, Any]:
    """What the tests say before anything is done."""
    row: dict[str, Any] = {"task": task.name, "initial": False, "final": False, "error": "", "missed": 0}
    try:
        box = open_sandbox(task.environment, Limits(), sandbox)
    except ConfigError as error:
        return {**row, "error": str(error)}
    try:
        initial, final = check(box, task.folder / INITIAL), check(box, task.folder / FINAL)
    finally:
        box.close()
    told = "" if initial.code == 0 else initial.output[-500:]
    return {**row, "initial": initial.code == 0, "final": final.code == 0, "error": told, "missed": len(box.missed)}


def _played(task: Task, sandbox: str, commands: Sequence[str] | None) -> float | None:
    """The reward that commands earn; None where there are none."""
    if commands is None:
        return None
    environment = Terminal(task.folder.parent, [task.name], sandbox)
    try:
        environment.start(0)
        for command in commands:
            environment.step(f"<command>{command}</command>")
        return environment.step("<action>done</action>").reward
    except ConfigError:
        return 0.0
    finally:
        environment.close()


def _progress(rows: Iterator[dict[str, Any]], total: int) -> Iterator[dict[str, Any]]:
    from rich.console import Console
    from rich.progress import track

    yield from track(rows, "tasks", total, console=Console(stderr=True), transient=True)


def _summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    replays = [row["replay"] for row in rows if row["replay"] is not None]
    solved = [row["solution"] for row in rows if row["solution"] is not None]
    return {
        "tasks": len(rows),
        "initial_passes": sum(row["initial"] for row in rows),
        "final_fails_before": sum(row["initial"] and not row["final"] for row in rows),
        "replays": len(replays),
        "replays_rewarded": replays.count(1.0),
        "solutions": len(solved),
        "solutions_rewarded": solved.count(1.0),
    }


def _print(rows: Sequence[Mapping[str, Any]], summary: Mapping[str, Any], *, stderr: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("what", "tasks", "of", title=f"{BENCHMARK}, {summary['sandbox']}")
    table.add_row("initial tests pass", str(summary["initial_passes"]), str(summary["tasks"]))
    table.add_row("and final tests fail before", str(summary["final_fails_before"]), str(summary["tasks"]))
    table.add_row("recorded runs replayed with reward 1", str(summary["replays_rewarded"]), str(summary["replays"]))
    table.add_row("own solutions with reward 1", str(summary["solutions_rewarded"]), str(summary["solutions"]))
    console = Console(file=sys.stderr if stderr else sys.stdout)
    console.print(table)
    for row in rows:
        if row["error"]:
            console.print(f"{row['task']}: {row['error'][-200:]}", markup=False)
