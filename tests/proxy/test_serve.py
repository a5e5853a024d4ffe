"""`forgetless serve` as people run it: a real process, real signals, a real store."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.responses import StreamingResponse

from forgetless.cli.main import run
from forgetless.stores.sqlite import Sqlite
from live import Provider, Said, reply

PATH = "/v1/chat/completions"
KEY = {"authorization": "Bearer sk-not-to-be-seen"}
COMMAND = [sys.executable, "-c", "from forgetless.cli.main import run; run()", "serve"]


@dataclass
class Served:
    """A proxy in a process of its own.

    Attributes:
        base: its address.
        process: the process.
        lines: what it has written to stderr so far, the greeting included.
        temporary: the folder for temporary files that it was given.
    """

    base: str
    process: subprocess.Popen[str]
    lines: list[str]
    temporary: Path
    reader: threading.Thread

    def stop(self, by: int = signal.SIGTERM, within: float = 20) -> int:
        """Stop it and say how it ended; all that it wrote is in `lines` then."""
        self.process.send_signal(by)
        code = self.process.wait(within)
        self.reader.join(5)
        return code

    @property
    def log(self) -> list[dict[str, Any]]:
        """Its log, each line of which is a JSON object."""
        return [json.loads(line) for line in self.lines[1:]]


@contextmanager
def served(tmp_path: Path, *args: str) -> Iterator[Served]:
    """A proxy that is up."""
    temporary = tmp_path / "temporary"
    temporary.mkdir(exist_ok=True)
    env = {**os.environ, "TMPDIR": str(temporary), "XDG_DATA_HOME": str(tmp_path), "PYTHONWARNINGS": "error"}
    process = subprocess.Popen([*COMMAND, "--port", "0", *args], stderr=subprocess.PIPE, text=True, env=env)
    assert process.stderr is not None
    lines: list[str] = []
    greeted = threading.Event()

    def read() -> None:
        for line in process.stderr or ():
            lines.append(line.rstrip("\n"))
            greeted.set()
        greeted.set()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        assert greeted.wait(20)
        found = re.search(r"http://127\.0\.0\.1:\d+", lines[0] if lines else "")
        assert found, lines
        base = found[0]
        with httpx2.Client() as http:
            until(lambda: answers(http, base), within=20)
        yield Served(base, process, lines, temporary, reader)
    finally:
        process.kill()
        process.wait(10)
        reader.join(5)
        process.stderr.close()


def answers(http: httpx2.Client, base: str) -> bool:
    try:
        return http.get(f"{base}/healthz").status_code == 200
    except httpx2.TransportError:
        return False


def until(what: Callable[[], bool], within: float = 5) -> None:
    """Wait until it is so."""
    end = time.monotonic() + within
    while not what():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def history(turns: int) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = []
    for n in range(turns):
        said.append({"role": "user", "content": f"question {n} " + "unmistakable " * 30})
        said.append({"role": "assistant", "content": f"ok {n}"})
    return said[:-1]


def same(_: str, body: Any) -> Said:
    """The reply that stands in `history`."""
    return Said(f"ok {body['messages'][-1]['content'].split()[1]}")


UP = ["--upstream", "http://127.0.0.1:9"]
MEMORY = ["--store", "memory"]

WRONG: list[tuple[list[str], str]] = [
    ([], "--upstream is missing"),
    ([*UP, *MEMORY, "--policy", "bm26"], "did you mean 'bm25'"),
    ([*UP, *MEMORY, "--option", "kept=3"], "keep"),
    ([*UP, *MEMORY, "--option", "half_life"], "NAME=VALUE"),
    ([*UP, *MEMORY, "--budget", "0"], "above 0"),
    ([*UP, *MEMORY, "--budget", "many"], "many"),
    (["--upstream", "example.org", *MEMORY], "'example.org'"),
    ([*UP, *MEMORY, "--workers", "0"], "at least 1"),
    ([*UP, *MEMORY, "--workers", "2"], "'memory'"),
    (["--upstream", "embedded", "--workers", "2"], "one worker"),
    ([*UP, *MEMORY, "--keep-days", "-1"], "keep_days"),
    ([*UP, *MEMORY, "--port", "99999"], "99999"),
    ([*UP, "--store", "FOLDER"], "FOLDER"),
    ([*UP, "--store", "FOLDER/broken.toml"], "broken.toml"),
    (["--config", "FOLDER/none.toml"], "none.toml"),
    (["--config", "FOLDER/unknown.toml"], "'budgets'"),
    (["--config", "FOLDER/broken.toml"], "broken.toml"),
    (["--config", "FOLDER/kind.toml", *MEMORY], "'budget'"),
    ([*UP, "--nothing"], "--nothing"),
]


@pytest.mark.filterwarnings("ignore:Cyclopts application invoked without tokens")
def test_what_is_wrong_is_one_line_and_exit_code_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "unknown.toml").write_text("upstream = 'http://x'\nbudgets = 3\n")
    (tmp_path / "broken.toml").write_text("upstream = \n" + "# no database either\n" * 100)
    (tmp_path / "kind.toml").write_text("upstream = 'http://x'\nbudget = 'many'\n")
    for args, hint in WRONG:
        given = [arg.replace("FOLDER", str(tmp_path)) for arg in args]
        monkeypatch.setattr(sys, "argv", ["forgetless", "serve", *given])
        with pytest.raises(SystemExit) as ended:
            run()
        out, told = capsys.readouterr()
        (line,) = told.splitlines()
        assert (ended.value.code, out) == (2, ""), args
        assert line.startswith("forgetless: "), args
        assert hint.replace("FOLDER", str(tmp_path)) in line, args


def test_an_address_that_it_cannot_listen_on_is_one_line_too() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for args, hint in (
            (["--port", port], f"127.0.0.1:{port}"),
            (["--host", "no.such.host.invalid"], "no.such.host"),
        ):
            done = subprocess.run(
                [*COMMAND, *UP, *MEMORY, *args], capture_output=True, text=True, timeout=30, check=False
            )
            (line,) = done.stderr.splitlines()
            assert (done.returncode, done.stdout) == (2, "")
            assert line.startswith("forgetless: cannot listen on ")
            assert hint in line


def test_settings_of_a_file_and_flags_that_win(
    tmp_path: Path, provider: Provider, upstream: str, http: httpx2.Client
) -> None:
    config = tmp_path / "c.toml"
    config.write_text(
        f"upstream = '{upstream}/v1'\npolicy = 'recent'\nbudget = 100000\nstore = '{tmp_path / 's.db'}'\n"
        "keep-days = 30\ncontents = true\nmax_body = 50000\n[options]\nturns = 2\n"
    )
    provider.answer = same
    with served(tmp_path, "--config", str(config), "--budget", "400") as proxy:
        assert f"/v1 -> {upstream}/v1, policy recent" in proxy.lines[0]
        answer = http.post(proxy.base + PATH, json={"model": "m", "messages": history(12)}, headers=KEY)
        assert answer.headers["x-forgetless-outcome"] == "compacted"
        assert provider.bodies[-1]["messages"] == history(12)[-3:]
        large = http.post(proxy.base + PATH, content=b"x" * 60_000)
        assert large.status_code == 413
        assert proxy.stop() in (0, -signal.SIGTERM)
    with closing(Sqlite(tmp_path / "s.db")) as store:
        assert [s.policy for s in store.conversations()] == ["recent"]


def test_its_log_is_json_without_contents_and_it_leaves_nothing_behind(
    tmp_path: Path, provider: Provider, upstream: str, http: httpx2.Client
) -> None:
    async def cut() -> AsyncIterator[bytes]:
        yield b'data: {"choices":[]}\n\n'
        raise ConnectionError

    with served(tmp_path, "--upstream", upstream, "--budget", "400", "--store", str(tmp_path / "s.db")) as proxy:
        url = proxy.base + PATH
        said = {"model": "m", "messages": history(12)}
        assert http.post(url, json=said, headers=KEY).status_code == 200
        assert http.post(url, json={**said, "stream": True}, headers=KEY).status_code == 200
        assert http.post(url, json={**said, "messages": [{"role": "unmistakable"}]}, headers=KEY).status_code == 200
        assert http.post(url, content=b"{unmistakable", headers=KEY).status_code == 200
        provider.answer = lambda *_: StreamingResponse(cut(), media_type="text/event-stream")
        with pytest.raises(httpx2.RemoteProtocolError):
            http.post(url, json={**said, "stream": True}, headers=KEY)
        with socket.create_connection(("127.0.0.1", int(proxy.base.rpartition(":")[2]))) as odd:
            odd.sendall(b"unmistakable nonsense\r\n\r\n")
            assert odd.recv(1000).startswith(b"HTTP/1.1 400 ")
        assert proxy.stop() in (0, -signal.SIGTERM)
    requests = [line for line in proxy.log if line["event"] == "request"]
    assert [line["outcome"] for line in requests] == ["compacted", "compacted", "invalid", "unreadable", "compacted"]
    assert [line["status"] for line in requests] == [200, 200, 200, 200, 0]
    assert all(line["at"] and line["level"] and line["event"] for line in proxy.log)
    text = "\n".join(proxy.lines)
    assert not any(word in text for word in ("unmistakable", "sk-not-to-be-seen", "Traceback"))
    assert list(proxy.temporary.iterdir()) == []
    kept = b"".join(file.read_bytes() for file in tmp_path.glob("s.db*"))
    assert b"unmistakable" in kept
    assert b"sk-not-to-be-seen" not in kept


def test_a_key_in_the_address_of_the_provider_is_not_shown(tmp_path: Path, provider: Provider, upstream: str) -> None:
    address = upstream.replace("http://", "http://user:sk-not-to-be-seen@")
    with served(tmp_path, "--upstream", address, "--store", "none") as proxy:
        proxy.stop()
    assert "sk-not-to-be-seen" not in "\n".join(proxy.lines)


def stopped_under_way(proxy: Served, provider: Provider) -> list[str]:
    """Stop it while eight requests are under way, half of them streams; the ids of those, which all were answered."""
    go = threading.Event()
    arrived = threading.Semaphore(0)

    async def slow(path: str, body: Any) -> Any:
        if not go.is_set():
            arrived.release()
            await asyncio.to_thread(go.wait, 10)
        said = Said(f"late {body['messages'][0]['content']}")
        return reply(path, said, stream=bool(body.get("stream")))

    provider.answer = slow
    got: dict[int, httpx2.Response] = {}

    def ask(n: int) -> None:
        said = {"model": "m", "messages": [{"role": "user", "content": f"hello {n}"}], "stream": n % 2 == 1}
        got[n] = httpx2.post(proxy.base + PATH, json=said, headers=KEY, timeout=20)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert arrived.acquire(timeout=10)
    proxy.process.send_signal(signal.SIGTERM)
    with httpx2.Client(timeout=0.2) as http:
        until(lambda: not answers(http, proxy.base))
    assert proxy.process.poll() is None
    go.set()
    for thread in threads:
        thread.join(20)
    assert proxy.process.wait(20) in (0, -signal.SIGTERM)
    assert sorted(got) == list(range(8))
    assert all(answer.status_code == 200 for answer in got.values())
    assert all("[DONE]" in got[n].text for n in range(1, 8, 2))
    return [answer.headers["x-forgetless-request-id"] for answer in got.values()]


def recorded(store: str, ids: list[str]) -> None:
    with closing(Sqlite(store)) as kept:
        assert kept.check() == []
        found = {(s.caller, s.messages) for s in kept.conversations() if s.requests == 1}
        ((caller, messages),) = found
        assert messages == 2
        assert all(kept.request(caller, ident) is not None for ident in ids)


def test_requests_under_way_are_finished_and_recorded_when_it_is_stopped(
    tmp_path: Path, provider: Provider, upstream: str
) -> None:
    store = str(tmp_path / "s.db")
    with served(tmp_path, "--upstream", upstream, "--budget", "400", "--store", store) as proxy:
        ids = stopped_under_way(proxy, provider)
    recorded(store, ids)
    assert list(proxy.temporary.iterdir()) == []


def test_two_workers_share_one_store_and_add_their_figures_up(
    tmp_path: Path, provider: Provider, upstream: str
) -> None:
    provider.answer = same
    store = str(tmp_path / "s.db")
    with served(tmp_path, "--upstream", upstream, "--budget", "400", "--store", store, "--workers", "2") as proxy:
        for turns in range(1, 13):  # each on a connection of its own, so that either worker may have it
            said = {"model": "m", "messages": history(turns)}
            answers = [httpx2.post(proxy.base + PATH, json=said, headers={"x-api-key": key}) for key in ("a", "b")]
            assert [answer.status_code for answer in answers] == [200, 200]
        figures = {
            line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
            for line in httpx2.get(f"{proxy.base}/metrics").text.splitlines()
            if not line.startswith("#")
        }
        ident = answers[1].headers["x-forgetless-request-id"]
        for _ in range(6):  # whichever worker is asked
            told = httpx2.get(f"{proxy.base}/forgetless/requests/{ident}", headers={"x-api-key": "b"})
            assert told.json()["id"] == ident
            other = httpx2.get(f"{proxy.base}/forgetless/requests/{ident}", headers={"x-api-key": "a"})
            assert other.status_code == 404
        ids = stopped_under_way(proxy, provider)
        proxy.reader.join(5)
    recorded(store, ids)
    requests = [value for name, value in figures.items() if name.startswith("forgetless_requests_total")]
    assert sum(requests) == 24
    assert figures['forgetless_records_total{fate="kept"}'] == 24
    assert figures["forgetless_records_waiting"] == 0
    with closing(Sqlite(store)) as kept:
        assert [(s.messages, s.requests) for s in kept.conversations() if s.requests > 1] == [(24, 12), (24, 12)]
    assert list(proxy.temporary.iterdir()) == []
    assert len([line for line in proxy.log if line["event"] == "request"]) == 32
    assert (tmp_path / "s.db").stat().st_mode & 0o777 == 0o600
