"""AppWorld: tasks on the calls of nine everyday apps, done by Python code on AppWorld's own engine.

The engine's dependencies and ours exclude each other (pydantic below 2 there), so it runs in an environment of its own
and is spoken to over HTTP: `appworld serve environment`. Tasks, databases and judgement are AppWorld's: the reward is 1
if all of a task's own tests pass once its agent has said that it is complete.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx2

from forgetless.environments.base import Start, Step
from forgetless.errors import ConfigError

__all__ = ["SERVER", "AppWorld"]

SERVER = "http://127.0.0.1:8000"
"""Where `appworld serve environment` listens."""

SECONDS = 300.0
"""For an answer of the engine, which itself ends code after 100."""

SHOWN = 50_000
"""Most characters of an output; the middle of a longer one is left out."""

RULES = """\
You work for {first_name} {last_name} (email {email}, phone number {phone_number}), by Python code that calls the apps \
of this person. It is {datetime}. Reply with exactly one block of code a turn, between ```python and ```; you see what \
it prints, and variables stay from one block to the next. `apis.api_docs.show_app_descriptions()` lists the apps, \
`apis.api_docs.show_api_descriptions(app_name=...)` the calls of one, and \
`apis.api_docs.show_api_doc(app_name=..., api_name=...)` tells how to make a call; \
`apis.supervisor.show_account_passwords()` gives the passwords of this person. When the task is finished, call \
`apis.supervisor.complete_task()`, with `answer=...` if something was asked, or with `status="fail"` if it can't be \
done.

The task: {instruction}"""

UNKNOWN = "Could not find a single block of code between ```python and ```. Please reply with exactly one."

_BLOCK = re.compile(r"^```(?:python|py)?[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)


class AppWorld:
    """Plays one episode at a time, as its server does; more at once need a server each.

    Attributes:
        name: with its version.
        tasks: names of the tasks of the split; a seed is the number of one, and past the last one they start over.
    """

    name = "appworld@1"

    def __init__(self, data: Path | str | None = None, split: str = "dev", server: str = SERVER) -> None:
        """Prepare episodes.

        Args:
            data: the folder that AppWorld's data was downloaded into, which the server reads too.
            split: `train`, `dev`, `test_normal` or `test_challenge`.
            server: its address.

        Raises:
            ConfigError: the data are missing, or have no such split.
        """
        self.tasks = _tasks(data, split)
        self._server = server
        # Not through a proxy: the engine is on this machine or a near one.
        self._client = httpx2.Client(base_url=server, timeout=httpx2.Timeout(SECONDS, connect=10.0), trust_env=False)
        self._task = ""

    def start(self, seed: int) -> Start:
        """Begin the episode of a seed.

        Raises:
            ConfigError: the server can't be reached, or can't open the task.
        """
        self._leave()
        task = self.tasks[seed % len(self.tasks)]
        told = self._ask("initialize", task_id=task)
        self._task = task
        try:
            facts = {**told["supervisor"], "datetime": told["datetime"], "instruction": told["instruction"]}
            return Start(RULES.format(**facts))
        except (KeyError, TypeError):
            raise self._stranger() from None

    def step(self, action: str) -> Step:
        """Run a block of code; when it has said that the task is complete, the task's tests judge.

        Raises:
            ConfigError: the server is gone.
        """
        if not self._task:
            return Step("The episode is over.", done=True, valid=False)
        blocks = _BLOCK.findall(action)
        if len(blocks) != 1:
            return Step(UNKNOWN, valid=False)
        seen = _cut(self._ask("execute", task_id=self._task, code=blocks[0]))
        if not self._ask("task_completed", task_id=self._task):
            return Step(seen)
        judged = self._ask("evaluate", task_id=self._task, suppress_errors=True)
        self._leave()
        return Step(seen, float(judged["success"]), done=True)

    def close(self) -> None:
        """Leave nothing behind."""
        try:
            self._leave()
        finally:
            self._client.close()

    def _leave(self) -> None:
        task, self._task = self._task, ""
        if task:
            self._ask("close", task_id=task)

    def _ask(self, what: str, **body: Any) -> Any:
        try:
            answer = self._client.post(what, json=body)
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            raise ConfigError(
                f"AppWorld's engine does not answer at {self._server!r} ({type(error).__name__}): start it in its own "
                "environment with `appworld serve environment --root DATA`, or give another address as server"
            ) from None
        if answer.status_code != 200:
            raise ConfigError(
                f"AppWorld's engine at {self._server!r} can't {what} {body['task_id']!r} (HTTP {answer.status_code}): "
                "its log has the reason; is it served from the same data, and used by no one else?"
            )
        try:
            return answer.json()["output"]
        except (ValueError, KeyError, TypeError):
            raise self._stranger() from None

    def _stranger(self) -> ConfigError:
        return ConfigError(f"what answers at {self._server!r} is not AppWorld's engine: give its address as server")


def _tasks(data: Path | str | None, split: str) -> list[str]:
    """The names of a split's tasks."""
    if data is None:
        raise ConfigError("appworld needs its data: `appworld download data --root FOLDER`, then give FOLDER (--data)")
    top = Path(data) / "data" if (Path(data) / "data").is_dir() else Path(data)
    if not (top / "tasks").is_dir():
        raise ConfigError(
            f"{str(data)!r} holds no tasks of AppWorld: `appworld download data --root {str(data)!r}` gets them"
        )
    names = top / "datasets" / f"{split}.txt"
    if not names.is_file():
        known = sorted(path.stem for path in names.parent.glob("*.txt"))
        raise ConfigError(f"{str(data)!r} has no split {split!r}; known: {', '.join(known) or 'none'}")
    found = [line.partition(":")[0].strip() for line in names.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not found:
        raise ConfigError(f"split {split!r} of {str(data)!r} has no tasks")
    return found


def _cut(text: str) -> str:
    """A text without its middle, where it is too long."""
    if len(text) <= SHOWN:
        return text
    half = SHOWN // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} characters left out here ...]\n{text[-half:]}"
