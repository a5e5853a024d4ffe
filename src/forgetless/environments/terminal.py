"""Terminal: a task in a shell, in a sandbox of its own, rewarded by the tests that come with the task.

Task folders are in Harbor's layout and the rules those of Endless Terminals (train/sky_endless.py there): one command
or `done` a turn, 16 turns, 600 seconds, and reward 1 if all tests of the final state pass. Here the shell is one that
lasts: its folder and variables are kept from command to command.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from forgetless.environments.base import Start, Step
from forgetless.environments.sandbox.base import MEMORY, PROCESSES, Limits, Sandbox
from forgetless.environments.sandbox.load import open_sandbox
from forgetless.environments.sandbox.shell import EXIT, TIME, Outcome, Shell, once
from forgetless.errors import ConfigError

__all__ = ["TURNS", "Task", "Terminal", "check", "tasks"]

TURNS = 16
SECONDS = 600.0
TESTS = 120.0
"""Seconds for the tests of a task."""

FINAL, INITIAL = Path("tests/test_final_state.py"), Path("environment/test_initial_state.py")

_ACTION = re.compile(r"<command>(.*?)</command>|<action>\s*(done)\s*</action>", re.DOTALL)

RULES = (
    "You work in a shell on a Linux machine without network. Reply with exactly one action a turn: "
    "<command>COMMAND</command> runs a command of one or more lines, which can't be typed at, and shows its output; "
    "folder and variables stay from one command to the next. <action>done</action> says that the task is finished. "
    "There are {turns} turns and {seconds:g} seconds; a command may take {command:g}."
)

UNKNOWN = (
    "Could not find a single <command>...</command> or <action>done</action>. Please reply with exactly one of those."
)

ENDED = {
    TIME: "took more than {seconds:g} seconds",
    MEMORY: "passed the limit on memory",
    PROCESSES: "passed the limit on processes",
}


@dataclass(frozen=True, slots=True)
class Task:
    """A task folder.

    Attributes:
        folder: in Harbor's layout.
    """

    folder: Path

    @property
    def name(self) -> str:
        """Of the folder."""
        return self.folder.name

    @property
    def instruction(self) -> str:
        """What is to be done."""
        return (self.folder / "instruction.md").read_text(encoding="utf-8").strip()

    @property
    def environment(self) -> Path:
        """The folder that holds the Dockerfile."""
        return self.folder / "environment"


def tasks(data: Path, names: Sequence[str] = ()) -> list[Task]:
    """The tasks of a folder, by name; those in a folder `tasks` of it, where it has one.

    Args:
        data: the folder.
        names: of those that are wanted; all when empty.

    Raises:
        ConfigError: there are none, or not the one named.
    """
    top = data / "tasks" if (data / "tasks").is_dir() else data
    found = {path.parent.parent.name: Task(path.parent.parent) for path in top.glob(f"*/{FINAL}")}
    missing = [name for name in names if name not in found]
    if missing or not found:
        raise ConfigError(
            f"{str(data)!r} has no task {missing[0]!r}" if missing else f"there are no task folders in {str(data)!r}"
        )
    return [found[name] for name in names or sorted(found)]


def check(sandbox: Sandbox, tests: Path) -> Outcome:
    """Run a file of tests in a sandbox, as the task's user; its code is 0 if all pass.

    Args:
        sandbox: with the task's environment.
        tests: a pytest file, copied to `/tests`.
    """
    place = f"/tests/{tests.name}"
    script = 'rm -rf /tests && mkdir /tests && cat > "$1" && chmod 644 "$1"'
    copied = once(sandbox, ("sh", "-c", script, "sh", place), text=tests.read_bytes(), seconds=TESTS, root=True)
    if copied.code != 0:
        return copied
    options = ("-q", "-p", "no:cacheprovider", "--rootdir", "/tests", "-c", "/dev/null", place)
    plain = ("env", "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1")
    return once(sandbox, (*plain, *sandbox.pytest, *options), seconds=TESTS)


class Terminal:
    """Plays one episode at a time, each in a sandbox of its own.

    Attributes:
        name: with its version.
        tasks: that it has; a seed is the number of one, and past the last one they start over.
    """

    name = "terminal@1"

    def __init__(
        self, data: Path | str, names: Sequence[str] = (), sandbox: str = "auto", limits: Limits | None = None
    ) -> None:
        """Prepare episodes.

        Args:
            data: a folder of task folders.
            names: of the tasks that are wanted; all when empty.
            sandbox: `docker`, `namespaces` or `auto`.
            limits: of a sandbox.

        Raises:
            ConfigError: there are no such tasks.
        """
        self.tasks = tasks(Path(data), names)
        self._kind, self._limits = sandbox, limits or Limits()
        self._sandbox: Sandbox | None = None
        self._shell: Shell | None = None
        self._tests = Path()
        self._turns = 0
        self._until = 0.0

    def start(self, seed: int) -> Start:
        """Begin the episode of a seed.

        Raises:
            ConfigError: the machine can have no sandbox, or the task's environment can't be made.
        """
        self.close()
        task = self.tasks[seed % len(self.tasks)]
        self._sandbox = open_sandbox(task.environment, self._limits, self._kind)
        self._shell = Shell(self._sandbox)
        self._tests = task.folder / FINAL
        self._turns, self._until = 0, time.monotonic() + SECONDS
        rules = RULES.format(turns=TURNS, seconds=SECONDS, command=self._limits.seconds)
        return Start(f"{rules}\n\n{task.instruction}")

    def step(self, action: str) -> Step:
        """Run a command, or have the work tested; the last turn's command is followed by the tests."""
        if self._sandbox is None or self._shell is None:
            return Step("The episode is over.", done=True, valid=False)
        self._turns += 1
        left = self._until - time.monotonic()
        found = _ACTION.findall(action)
        valid, done = len(found) == 1, False
        if left <= 0:
            told = "The time is over."
        elif not valid:
            told = UNKNOWN
        elif found[0][1]:
            told, done = "Done.", True
        else:
            seconds = min(left, self._limits.seconds)
            told = _told(self._shell.run(found[0][0], seconds), seconds, self._shell.folder)
        return self._reached(told, valid, done)

    def close(self) -> None:
        """Leave nothing behind."""
        if self._shell is not None:
            self._shell.close()
        if self._sandbox is not None:
            self._sandbox.close()
        self._shell = self._sandbox = None

    def _reached(self, told: str, valid: bool, done: bool) -> Step:
        """The step; the episode ends with the tests, or without them when the time is over."""
        assert self._sandbox is not None
        late = time.monotonic() > self._until
        if not (late or done or self._turns >= TURNS):
            return Step(told, valid=valid)
        reward = 0.0 if late else float(check(self._sandbox, self._tests).code == 0)
        self.close()
        return Step(told, reward, done=True, valid=valid)


def _told(outcome: Outcome, seconds: float, folder: str) -> str:
    """An outcome as the agent reads it."""
    if outcome.ended in ENDED:
        why = ENDED[outcome.ended].format(seconds=seconds)
        place = folder or "its first folder"
        return (
            f"Command failed: it {why}. All that ran was ended; a new shell begins in {place}. Output: {outcome.output}"
        )
    result = "executed successfully" if outcome.code == 0 else "failed"
    again = "\nThe shell has ended; a new one begins." if outcome.ended == EXIT else ""
    return f"Command {result}. Output: {outcome.output}\n\n(exit_code={outcome.code}){again}"
