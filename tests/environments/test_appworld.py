"""AppWorld's client: what it asks of the engine, what becomes of the answers, and two tasks of our own on the engine.

The engine needs an environment of its own: set FORGETLESS_APPWORLD to the Python that has `appworld` installed
(`pip install appworld && appworld install`) to run the tests that need it.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest

from forgetless.environments.appworld import SHOWN, AppWorld
from forgetless.environments.base import Step
from forgetless.errors import ConfigError
from forgetless.registry import load_environment

PYTHON = os.environ.get("FORGETLESS_APPWORLD", "")
TASKS = Path(__file__).with_name("appworld_tasks.py")

LOGIN = 'token = apis.simple_note.login(username="ada@example.com", password="analytical")["access_token"]'
READ = 'for note in apis.simple_note.search_notes(access_token=token): print(note["note_id"])'


def code(*lines: str) -> str:
    return "Let me see.\n```python\n" + "\n".join(lines) + "\n```"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for path, text in {"datasets/dev.txt": "a_1\na_2:hard\n\n", "tasks/a_1/specs.json": "{}"}.items():
        (tmp_path / "data" / path).parent.mkdir(parents=True)
        (tmp_path / "data" / path).write_text(text)
    return tmp_path


@contextlib.contextmanager
def serving(answers: dict[str, Callable[[dict[str, Any]], Any]]) -> Iterator[tuple[str, list[str]]]:
    """A server with the engine's wire format, and what it was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            what = self.path.strip("/")
            asked.append(what)
            found = answers.get(what)
            told = b"Internal Server Error" if found is None else json.dumps({"output": found(body)}).encode()
            self.send_response(500 if found is None else 200)
            self.send_header("content-length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


def opened(body: dict[str, Any]) -> dict[str, Any]:
    person = {"first_name": "Ada", "last_name": "Byron", "email": "ada@example.com", "phone_number": "5550100100"}
    return {"instruction": f"Do {body['task_id']}.", "supervisor": person, "datetime": "2023-05-18T12:00:00"}


ENGINE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "initialize": opened,
    "execute": lambda body: f"ran {body['code']}",
    "task_completed": lambda _: False,
    "evaluate": lambda _: {"success": True},
    "close": lambda _: None,
}


def test_an_episode_over_the_wire(data: Path) -> None:
    done: list[str] = []

    def execute(body: dict[str, Any]) -> str:
        done.append(body["code"])
        return "ok\n"

    answers = {**ENGINE, "execute": execute, "task_completed": lambda _: len(done) == 2}
    with (
        serving(answers) as (url, asked),
        contextlib.closing(load_environment("appworld", data=data, server=url)) as it,
    ):
        start = it.start(1)
        assert "Do a_2." in start.task
        assert "Ada Byron" in start.task
        assert it.step(code("x = 1", "print(x)")).reward == 0
        last = it.step(code("finish()"))
        assert (last.observation, last.reward, last.done) == ("ok\n", 1.0, True)
        assert done == ["x = 1\nprint(x)\n", "finish()\n"]
        assert asked[-2:] == ["evaluate", "close"]
        assert not it.step(code("more()")).valid
        assert len(done) == 2


@pytest.mark.parametrize("action", ["print(1)", "", code("a") + "\n" + code("b"), "```python\nprint(1)"])
def test_what_is_no_block_costs_a_turn_and_runs_nothing(data: Path, action: str) -> None:
    with serving(ENGINE) as (url, asked), contextlib.closing(AppWorld(data, server=url)) as it:
        it.start(0)
        step = it.step(action)
        assert (step.valid, step.done, step.reward) == (False, False, 0.0)
        assert asked == ["initialize"]


def test_a_server_of_something_else_is_named(data: Path) -> None:
    told = {**ENGINE, "initialize": lambda _: {"hello": "there"}}
    with (
        serving(told) as (url, _),
        contextlib.closing(AppWorld(data, server=url)) as it,
        pytest.raises(ConfigError, match="is not AppWorld's engine"),
    ):
        it.start(0)
    with pytest.MonkeyPatch.context() as patch, contextlib.closing(AppWorld(data)) as it:
        patch.setattr(httpx2.Client, "post", lambda *_, **__: httpx2.Response(200, text="<html>"))
        with pytest.raises(ConfigError, match="is not AppWorld's engine"):
            it.start(0)


def test_a_failed_judgement_is_no_reward(data: Path) -> None:
    answers = {**ENGINE, "task_completed": lambda _: True, "evaluate": lambda _: {"success": False}}
    with serving(answers) as (url, _), contextlib.closing(AppWorld(data, server=url)) as it:
        it.start(0)
        assert it.step(code("finish()")) == Step("ran finish()\n", 0.0, done=True)


def test_the_middle_of_a_long_output_is_left_out(data: Path) -> None:
    answers = {**ENGINE, "execute": lambda _: "a" * SHOWN + "b" * SHOWN}
    with serving(answers) as (url, _), contextlib.closing(AppWorld(data, server=url)) as it:
        it.start(0)
        seen = it.step(code("pass")).observation
        assert seen.startswith("a" * (SHOWN // 2))
        assert seen.endswith("b" * (SHOWN // 2))
        assert f"{SHOWN:,} characters left out" in seen


def test_an_episode_under_way_is_left_at_the_next_and_at_the_end(data: Path) -> None:
    with serving(ENGINE) as (url, asked):
        it = AppWorld(data, server=url)
        it.start(0)
        it.start(1)
        it.close()
        assert asked == ["initialize", "close", "initialize", "close"]


def test_an_engine_that_is_not_there_or_refuses(data: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    it = AppWorld(data, server=f"http://127.0.0.1:{port}")
    with pytest.raises(ConfigError, match="appworld serve environment"):
        it.start(0)
    it.close()
    with serving({}) as (url, _), contextlib.closing(AppWorld(data, server=url)) as it:
        with pytest.raises(ConfigError, match="can't initialize 'a_1'"):
            it.start(0)
        assert not it.step(code("pass")).valid


def test_missing_data_name_the_command_that_gets_them(tmp_path: Path, data: Path) -> None:
    with pytest.raises(ConfigError, match="appworld download data"):
        AppWorld()
    with pytest.raises(ConfigError, match="appworld download data --root"):
        AppWorld(tmp_path / "nothing")
    with pytest.raises(ConfigError, match="no split 'test'; known: dev"):
        AppWorld(data, split="test")
    assert AppWorld(data / "data").tasks == ["a_1", "a_2"]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """AppWorld's own engine with two tasks of ours."""
    root = tmp_path_factory.mktemp("appworld")
    subprocess.run([PYTHON, str(TASKS), str(root)], check=True, capture_output=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [PYTHON, "-m", "appworld.cli", "serve", "environment", "--root", str(root), "--port", str(port)]
    with (root / "log").open("wb") as log:
        process = subprocess.Popen([*command, "--no-show-usage"], stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            with contextlib.suppress(httpx2.TransportError):
                httpx2.get(url, trust_env=False)
                break
            assert process.poll() is None, (root / "log").read_text()
            time.sleep(0.1)
        yield root, url
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def world(engine: tuple[Path, str]) -> Iterator[AppWorld]:
    root, url = engine
    with contextlib.closing(AppWorld(root, server=url)) as made:
        yield made


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON, reason="FORGETLESS_APPWORLD names no Python with appworld")
class TestOnTheEngine:
    def test_a_question_is_answered_from_a_note(self, world: AppWorld) -> None:
        assert "What is the code of my garage?" in world.start(0).task
        assert '"simple_note"' in world.step(code("print(apis.supervisor.show_account_passwords())")).observation
        assert world.step(code(LOGIN, READ)).observation.strip() == "1"
        seen = world.step(code('print(apis.simple_note.show_note(note_id=1, access_token=token)["content"])'))
        assert seen.observation.strip() == "The code is K7421."
        assert (seen.reward, seen.done) == (0.0, False)
        last = world.step(code('apis.supervisor.complete_task(answer="K7421")'))
        assert (last.reward, last.done) == (1.0, True)

    def test_a_wrong_answer_has_no_reward_and_the_same_seed_begins_anew(self, world: AppWorld) -> None:
        for answer, reward in (("K1", 0.0), ("K7421", 1.0)):
            world.start(0)
            last = world.step(code(f"apis.supervisor.complete_task(answer={answer!r})"))
            assert (last.reward, last.done) == (reward, True)

    @pytest.mark.parametrize(
        ("also", "reward"),
        [((), 1.0), (("apis.simple_note.delete_note(note_id=1, access_token=token)",), 0.0)],
        ids=["alone", "another deleted"],
    )
    def test_a_note_is_written_and_nothing_else(self, world: AppWorld, also: tuple[str, ...], reward: float) -> None:
        assert "Packing" in world.start(1).task
        write = 'apis.simple_note.create_note(title="Packing", content="two coats", access_token=token)'
        assert world.step(code(LOGIN, write, *also)).observation.strip() == "Execution successful."
        last = world.step(code("apis.supervisor.complete_task()"))
        assert (last.reward, last.done) == (reward, True)

    def test_code_that_fails_is_answered_by_its_error(self, world: AppWorld) -> None:
        world.start(0)
        assert "ZeroDivisionError" in world.step(code("1 / 0")).observation
        assert "Syntax error" in world.step(code("1 +")).observation
        assert world.step(code("print(2)")).observation.strip() == "2"

    def test_a_task_that_the_engine_does_not_have(self, engine: tuple[Path, str]) -> None:
        root, url = engine
        (root / "data" / "datasets" / "odd.txt").write_text("gone_1")
        with contextlib.closing(AppWorld(root, "odd", url)) as odd, pytest.raises(ConfigError, match="gone_1"):
            odd.start(0)
