"""The terminal environment plays tasks by their rules; the task here is written for these tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from forgetless.environments import terminal
from forgetless.environments.sandbox.base import Limits
from forgetless.environments.terminal import TURNS, Terminal, check, tasks
from forgetless.errors import ConfigError
from forgetless.registry import load_environment

DOCKERFILE = "FROM ubuntu:22.04\nRUN useradd -m user\nWORKDIR /home/user\nUSER user\n"
INITIAL = """
import os

def test_nothing_is_there():
    assert not os.path.exists("/home/user/answer.txt")
"""
FINAL = """
def test_the_answer():
    with open("/home/user/answer.txt") as file:
        assert file.read() == "42\\\\n"
"""


def write_task(top: Path, name: str) -> None:
    """A task folder: to write 42 into answer.txt."""
    for part, text in {
        "instruction.md": f"Write 42 into answer.txt, says {name}.\n",
        "environment/Dockerfile": DOCKERFILE,
        "environment/test_initial_state.py": INITIAL,
        "tests/test_final_state.py": FINAL.replace("\\\\", "\\"),
    }.items():
        path = top / name / part
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("data")
    for name in ("one", "two"):
        write_task(top / "tasks", name)
    return top


@pytest.fixture
def played(data: Path) -> Iterator[Terminal]:
    with contextlib.closing(load_environment("terminal", data=str(data), sandbox="namespaces")) as made:
        try:
            made.start(0)
        except ConfigError as error:
            if "sandbox" not in str(error):
                raise
            pytest.skip(str(error))
        yield made


def test_what_is_done_is_rewarded(played: Terminal) -> None:
    seen = played.step("I will write it.\n<command>echo 42 > answer.txt\ncat answer.txt</command>")
    assert (seen.observation, seen.done) == ("Command executed successfully. Output: 42\n\n\n(exit_code=0)", False)
    last = played.step("<action>done</action>")
    assert (last.reward, last.done, last.valid) == (1.0, True, True)
    assert played.step("<command>ls</command>").done


def test_what_is_not_done_is_not_rewarded(played: Terminal) -> None:
    assert played.step("<command>cd /tmp; echo 41 > answer.txt; false</command>").observation == (
        "Command failed. Output: \n\n(exit_code=1)"
    )
    assert played.step("<command>pwd; exit 4</command>").observation.endswith(
        "/tmp\n\n\n(exit_code=4)\nThe shell has ended; a new one begins."
    )
    last = played.step("<action>done</action>")
    assert (last.reward, last.done) == (0.0, True)


def test_a_turn_is_one_action_and_the_last_turn_is_followed_by_the_tests(played: Terminal) -> None:
    for action in ("", "ls", "<command>a</command><command>b</command>", "<command>a</command><action>done</action>"):
        step = played.step(action)
        assert (step.valid, step.done) == (False, False)
        assert "exactly one" in step.observation
    for _ in range(TURNS - 5):
        assert not played.step("<command>echo 42 > answer.txt</command>").done
    last = played.step("nothing")
    assert (last.reward, last.done, last.valid) == (1.0, True, False)


def test_when_the_time_is_over_nothing_is_rewarded(played: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "SECONDS", 0.0)
    played.start(0)
    last = played.step("<command>echo 42 > answer.txt</command>")
    assert (last.observation, last.reward, last.done) == ("The time is over.", 0.0, True)


def test_a_command_that_takes_too_long_is_said(played: Terminal, data: Path) -> None:
    with contextlib.closing(Terminal(data, sandbox="namespaces", limits=Limits(seconds=1.0))) as quick:
        quick.start(0)
        quick.step("<command>cd /tmp</command>")
        step = quick.step("<command>echo before; sleep 60</command>")
        assert step.observation == (
            "Command failed: it took more than 1 seconds. All that ran was ended; a new shell begins in /tmp. "
            "Output: before\n"
        )
        assert not step.done


def test_tests_are_run_in_the_sandbox(played: Terminal, data: Path) -> None:
    one = tasks(data)[0]
    assert played._sandbox is not None
    assert check(played._sandbox, one.folder / terminal.INITIAL).code == 0
    failed = check(played._sandbox, one.folder / terminal.FINAL)
    assert failed.code == 1
    assert "FileNotFoundError" in failed.output


def test_a_seed_is_the_number_of_a_task(played: Terminal) -> None:
    assert [one.name for one in played.tasks] == ["one", "two"]
    assert "says two" in played.start(3).task
    assert "16 turns and 600 seconds" in played.start(3).task


def test_tasks_are_found_and_named(data: Path, tmp_path: Path) -> None:
    assert [one.name for one in tasks(data / "tasks")] == ["one", "two"]
    assert [one.name for one in tasks(data, ["two"])] == ["two"]
    with pytest.raises(ConfigError, match="has no task 'three'"):
        Terminal(data, ["three"])
    with pytest.raises(ConfigError, match="no task folders in"):
        Terminal(tmp_path)
