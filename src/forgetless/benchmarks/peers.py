"""Other libraries' trimming, for comparison: LangChain's and LiteLLM's, in an environment of their own.

The environment is made once under the user's cache folder, with pinned versions from pip's package index, and
used again. Nothing else is fetched: LiteLLM takes its model table from its own files.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any

from forgetless.errors import ConfigError

__all__ = ["NAMES", "PINS", "Measure", "Peers", "Reply", "environment"]

NAMES = ("langchain-trim", "langchain-trim-defaults", "litellm-trim", "litellm-compress")
"""`langchain-trim` has the options that its documentation recommends, `-defaults` only the required."""

PINS = ("langchain-core==1.8.3", "litellm==1.110.2")

_WORKER = Path(__file__).with_name("peer_worker.py")
_SETTINGS = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "PYTHONIOENCODING": "utf-8"}


@dataclass(frozen=True, slots=True)
class Reply:
    """What a library made of a history.

    Attributes:
        messages: as OpenAI chat dicts; None where it failed.
        error: how it failed.
    """

    messages: list[dict[str, Any]] | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure measured inside a worker: seconds or bytes, or None with the error that stood in its way."""

    value: float | None
    error: str | None = None


class Peers:
    """The libraries, started when first called, stopped on leaving the `with` block.

    LangChain and LiteLLM run in a process each, so that neither pays for what the other has loaded.
    """

    def __init__(self, python: str | Path | None = None) -> None:
        """Take `python`, an interpreter that has the libraries; by default that of `environment()`."""
        self._python = python
        self._workers: dict[str, _Worker] = {}
        self._history: Sequence[Mapping[str, Any]] = ()

    def __enter__(self) -> Peers:
        """Make the environment where it is missing.

        Raises:
            ConfigError: it cannot be made.
        """
        self._python = self._python or environment()
        return self

    def __exit__(self, *_: object) -> None:
        while self._workers:
            self._workers.popitem()[1].stop()

    def call(self, name: str, messages: Sequence[Mapping[str, Any]], budget: int, *, limit: float = 120.0) -> Reply:
        """What the peer `name` makes of `messages`; taking over `limit` seconds is an error."""
        reply = self._ask(name, limit, op="call", messages=messages, budget=budget)
        return Reply(reply.get("messages"), reply.get("error"))

    def load(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Set the history for `time` and `memory`; workers get it when they are next asked."""
        self._history = messages
        for worker in self._workers.values():
            worker.loaded = False

    def time(self, name: str, budget: int, *, limit: float = 60.0) -> Measure:
        """Seconds of one call on the loaded history, from plain dicts to the library's own result."""
        return self._measure("time", "seconds", name, budget, limit)

    def memory(self, name: str, budget: int, *, limit: float = 60.0) -> Measure:
        """Peak bytes allocated by one call on the loaded history."""
        return self._measure("memory", "bytes", name, budget, limit)

    def _measure(self, op: str, key: str, name: str, budget: int, limit: float) -> Measure:
        worker = self._worker(name)
        if not worker.loaded:
            worker.ask({"op": "load", "messages": self._history})
            worker.loaded = True
        reply = self._ask(name, limit, op=op, budget=budget)
        return Measure(reply.get(key), reply.get("error"))

    def _ask(self, name: str, limit: float, **request: Any) -> dict[str, Any]:
        worker = self._worker(name)
        reply: dict[str, Any] = {}
        if name not in worker.started:  # importing is not what a limit is for
            reply = worker.ask({"op": "start", "name": name})
            worker.started.add(name)
        if "error" not in reply:
            reply = worker.ask({"name": name, **request}, limit)
        if worker.dead:
            self._workers.pop(_library(name)).stop()
        return reply

    def _worker(self, name: str) -> _Worker:
        library = _library(name)
        if library not in self._workers:
            self._workers[library] = _Worker(str(self._python))
        return self._workers[library]


def _library(name: str) -> str:
    if name not in NAMES:
        raise ConfigError(f"unknown peer {name!r}; known: {', '.join(NAMES)}")
    return name.partition("-")[0]


class _Worker:
    """A process that answers one JSON line with another."""

    def __init__(self, python: str) -> None:
        self.started: set[str] = set()
        self.loaded = False
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop
        # -P: the script's folder has modules named like those of the standard library; don't search it.
        self._process = subprocess.Popen(
            [python, "-P", str(_WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env={**os.environ, **_SETTINGS},
            encoding="utf-8",
        )

    @property
    def dead(self) -> bool:
        return self._process.poll() is not None

    def ask(self, request: Mapping[str, Any], limit: float | None = None) -> dict[str, Any]:
        """The reply; after `limit` seconds the process is killed and the reply is an error."""
        stdin, stdout = self._pipes()
        clock = threading.Timer(limit or 0.0, self._process.kill)
        start = time.monotonic()
        try:
            stdin.write(json.dumps(request) + "\n")
            stdin.flush()
            if limit is not None:
                clock.start()
            answer = stdout.readline()
        except BrokenPipeError:
            answer = ""
        finally:
            clock.cancel()
        if answer:
            reply: dict[str, Any] = json.loads(answer)
            return reply
        self._process.wait()
        if limit is not None and time.monotonic() - start >= limit:
            return {"error": f"took over {limit:g} s"}
        return {"error": f"the worker died: {self._last_words()}"}

    def stop(self) -> None:
        """End the process."""
        stdin, stdout = self._pipes()
        self._process.kill()
        self._process.wait()
        stdout.close()
        self._stderr.close()
        with suppress(BrokenPipeError):  # a request that the dead process never read
            stdin.close()

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        return stdin, stdout

    def _last_words(self) -> str:
        self._stderr.seek(0)
        lines = self._stderr.read().decode("utf-8", "replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "no message")


def environment(pins: Sequence[str] = PINS) -> Path:
    """The interpreter of a virtual environment that holds packages, made when it is not there yet.

    Args:
        pins: the packages with their versions.

    Raises:
        ConfigError: the environment or the packages cannot be installed.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "forgetless"
    made_of = "\n".join([*pins, *map(str, sys.version_info[:2])])
    folder = cache / f"peers-{blake2b(made_of.encode(), digest_size=6).hexdigest()}"
    inside = Path("Scripts" if os.name == "nt" else "bin") / "python"
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        # Made beside its place and moved there when complete: a broken install is never taken for a good one.
        with tempfile.TemporaryDirectory(dir=cache, ignore_cleanup_errors=True) as scratch:
            fresh = Path(scratch) / "environment"
            _install([sys.executable, "-m", "venv", str(fresh)], pins)
            pip = [str(fresh / inside), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            _install([*pip, *pins], pins)
            if not folder.exists():
                fresh.rename(folder)
    return folder / inside


def _install(command: list[str], pins: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().split("\n")[-1]
        raise ConfigError(
            f"the peers ({', '.join(pins)}) could not be installed: {said}; see that pip can reach "
            "a package index, or run without peers"
        )
