"""A sandbox of Linux namespaces, for machines without Docker, as root.

Own mounts, users, processes, network (loopback only), host name and shared memory. The root file system is the host's,
read-only and without all that is no part of the system, under a file system in memory of limited size; the root user in
it is an ordinary user outside. The kernel keeps each user's processes and each process's memory within the limit; what
all take together is looked at ten times a second, and everything is ended where it is too much. When this process
ends, in whatever way, the kernel ends the sandbox with all that is in it.
"""

from __future__ import annotations

import json
import math
import os
import resource
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path

from forgetless.environments.sandbox.base import MEMORY, PROCESSES, Entry, Limits
from forgetless.environments.sandbox.dockerfile import Instruction, expanded, installs, instructions, pairs
from forgetless.environments.sandbox.inside import SYSTEM
from forgetless.environments.sandbox.shell import run
from forgetless.errors import ConfigError

__all__ = ["Namespaces"]

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SHELL: tuple[str, ...] = ("/bin/sh", "-c")
INSIDE = (sys.executable, "-I", "-S", str(Path(__file__).with_name("inside.py")))
BUILD = 300.0
"""Seconds for an instruction of a Dockerfile."""
TICK = 0.1


class Namespaces:
    """A sandbox with the environment that a Dockerfile describes.

    Attributes:
        kind: `namespaces`.
        limits: of it.
        pytest: the command in it that runs tests: with this Python, which is seen there.
        missed: what of the Dockerfile was not carried out: RUN instructions that fetch programs, and those behind them
            that failed, maybe for want of these.
    """

    kind = "namespaces"

    def __init__(self, folder: Path, limits: Limits) -> None:
        """Make it.

        Args:
            folder: holds the Dockerfile and what it copies.
            limits: of the sandbox.

        Raises:
            ConfigError: the machine can't have one, or the Dockerfile can't be followed.
        """
        self.limits = limits
        self.pytest: tuple[str, ...] = (sys.executable, "-I", "-B", "-m", "pytest")
        self.missed: list[str] = []
        self._passed = ""
        self._env: dict[str, str] = {"PATH": PATH, "LANG": "C.UTF-8", "TERM": "dumb"}
        self._user, self._folder, self._run = "root", "/", SHELL
        self._keeper = _made(limits)
        try:
            self._proc = _proc(self._keeper)
        except BaseException:
            _ended(self._keeper)
            raise
        self._closing = threading.Event()
        self._until = math.inf
        self._watch = threading.Thread(target=self._watched, daemon=True)
        self._watch.start()
        try:
            self._built(folder)
            self._until = time.monotonic() + limits.life
        except BaseException:
            self.close()
            raise

    def entry(self, argv: tuple[str, ...], *, root: bool = False) -> Entry:
        """How to run a program as the task's user, in its folder."""
        return self._entry("root" if root else self._user, argv)

    def end(self) -> None:
        """End everything that runs; what has been written stays."""
        argv = (*INSIDE, "end", json.dumps({"proc": self._proc}))
        subprocess.run(argv, pass_fds=(self._proc,), env={}, stdin=subprocess.DEVNULL, capture_output=True, check=False)

    def passed(self) -> str:
        """The limit for which everything was ended since this was last asked."""
        passed, self._passed = self._passed, ""
        return passed

    def close(self) -> None:
        """End the sandbox; the kernel takes away all that it was."""
        self._closing.set()
        _ended(self._keeper)
        self._watch.join()
        if self._proc >= 0:
            os.close(self._proc)
            self._proc = -1

    def _entry(self, user: str, argv: tuple[str, ...]) -> Entry:
        given = {
            "proc": self._proc,
            "argv": argv,
            "env": {**self._env, "USER": user},
            "folder": self._folder,
            "user": user,
            "memory": self.limits.memory,
            "processes": self.limits.processes,
        }
        return Entry((*INSIDE, "enter", json.dumps(given)), (self._proc,))

    def _watched(self) -> None:
        """Look after what all processes take together, and how long the sandbox has been there."""
        while not self._closing.wait(TICK):
            if time.monotonic() > self._until:
                _ended(self._keeper)
                return
            passed = _taken(self._proc, self.limits)
            if passed:
                self._passed = passed
                self.end()

    def _built(self, folder: Path) -> None:
        """Follow the Dockerfile."""
        for one in instructions(_read(folder / "Dockerfile")):
            match one.name:
                case "ENV" | "ARG":
                    self._env.update(pairs(one.text, self._env))
                case "WORKDIR":
                    self._folder = os.path.join(self._folder, expanded(one.text, self._env))
                    self._done(one, "root", ("mkdir", "-p", self._folder), folder="/")
                case "USER":
                    self._user = expanded(one.text, self._env)
                case "SHELL":
                    self._run = tuple(_words(one.text) or SHELL)
                case "RUN" if installs(one.text):
                    self.missed.append(f"line {one.line}, {one.text[:100]!r}: it fetches programs")
                case "RUN":
                    self._ran(one)
                case "COPY" | "ADD":
                    self._copied(one, folder)

    def _ran(self, one: Instruction) -> None:
        """Carry out a RUN; one that fails is an error where nothing has been left out that it may need."""
        try:
            self._done(one, self._user, tuple(_words(one.text) or (*self._run, one.text)))
        except ConfigError as error:
            if not self.missed:
                raise
            self.missed.append(str(error))

    def _done(self, one: Instruction, user: str, argv: tuple[str, ...], text: bytes = b"", folder: str = "") -> None:
        """Run what an instruction asks for."""
        before, self._folder = self._folder, folder or self._folder
        outcome = run(self, self._entry(user, argv), text, BUILD)
        self._folder = before
        if outcome.code != 0:
            told = outcome.output.strip()[-300:] or outcome.ended
            raise ConfigError(f"line {one.line} of the Dockerfile failed, {one.text[:100]!r}: {told}")

    def _copied(self, one: Instruction, folder: Path) -> None:
        """Copy files of the folder; into a folder where the target ends with a slash or there are more than one."""
        *sources, target = _words(one.text) or one.text.split()
        if any(word.startswith("--") for word in sources) or "<<" in one.text:
            raise ConfigError(f"line {one.line} of the Dockerfile can't be followed without Docker: {one.text[:100]!r}")
        found = [path for source in sources for path in sorted(folder.glob(source.lstrip("/")))]
        files = [
            (path, path.relative_to(top.parent if top.is_file() else top)) for top in found for path in _files(top)
        ]
        if not files:
            raise ConfigError(f"line {one.line} of the Dockerfile copies what is not there: {one.text[:100]!r}")
        into = target.endswith("/") or target == "." or len(files) > 1 or any(path.is_dir() for path in found)
        for path, name in files:
            place = os.path.join(self._folder, target, str(name)) if into else os.path.join(self._folder, target)
            script = 'mkdir -p "$(dirname "$1")" && cat > "$1" && chmod "$2" "$1"'
            mode = "755" if os.access(path, os.X_OK) else "644"
            self._done(one, "root", ("sh", "-c", script, "sh", place, mode), path.read_bytes())


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"a task's environment needs {str(path)!r}: {error.strerror}") from None


def _words(text: str) -> list[str]:
    """The words of an instruction in its form as a JSON list; none where it is not in that form."""
    try:
        found = json.loads(text)
    except ValueError:
        return []
    return [str(word) for word in found] if isinstance(found, list) else []


def _files(top: Path) -> list[Path]:
    return [top] if top.is_file() else sorted(path for path in top.rglob("*") if path.is_file())


def _made(limits: Limits) -> subprocess.Popen[bytes]:
    """The process that a sandbox lasts with."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        raise ConfigError("a sandbox needs a Docker engine, or Linux and root: start Docker, or run this as root")
    if any(os.path.ismount(f"/{name}") for name in SYSTEM):
        raise ConfigError("a sandbox of namespaces needs a root file system in one piece: use Docker")
    given = {"disk": limits.disk, "shown": _shown()}
    return subprocess.Popen(
        (*INSIDE, "make", json.dumps(given)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={},
    )


def _proc(keeper: subprocess.Popen[bytes]) -> int:
    """The /proc folder of a sandbox's init, open: it stays that of this process when its number is given anew."""
    assert keeper.stdout is not None
    assert keeper.stderr is not None
    number, ready = sorted((keeper.stdout.readline(), keeper.stdout.readline()))  # two processes write one each
    if ready.strip() != b"ready":
        keeper.kill()
        told = keeper.stderr.read().decode("utf-8", "replace").strip()
        raise ConfigError(
            f"this machine lets no sandbox of namespaces be made ({told}): use Docker, or Linux 5.19 or later"
        )
    return os.open(f"/proc/{int(number)}", os.O_RDONLY | os.O_DIRECTORY)


def _ended(keeper: subprocess.Popen[bytes]) -> None:
    """Let go of a sandbox, and wait until it is gone."""
    for stream in (keeper.stdin, keeper.stdout, keeper.stderr):
        if stream is not None:
            stream.close()
    keeper.wait()


def _shown() -> list[str]:
    """Where this Python and its packages lie, as far as that is no part of the system."""
    wanted = sorted({*(os.path.realpath(path) for path in (sys.base_prefix, sys.prefix)), sys.prefix})
    found = find_spec("pytest")
    if found is None or not any(str(found.origin).startswith(f"{path}/") for path in wanted):
        raise ConfigError(
            f"the tests of a task need 'pytest' in {sys.prefix!r}: {sys.executable} -m pip install pytest"
        )
    outside = [path for path in wanted if path.split("/")[1] not in SYSTEM]
    return [path for path in outside if not any(path.startswith(f"{other}/") for other in outside)]


def _taken(proc: int, limits: Limits) -> str:
    """The limit that all processes together have passed."""
    try:
        numbers = [name for name in os.listdir(_at(proc)) if name.isdigit()]
    except OSError:
        return ""  # the sandbox is gone
    if len(numbers) >= limits.processes:  # where the kernel lets no user have more
        return PROCESSES
    page = resource.getpagesize()
    if sum(_number(proc, f"{name}/statm", 1) for name in numbers) * page <= limits.memory:
        return ""
    shares = sum(_share(proc, name) for name in numbers)  # pages that processes share counted once, which takes longer
    return MEMORY if shares * 1024 > limits.memory else ""


def _at(proc: int) -> str:
    return "/".join(("/proc/self/fd", str(proc), "root", "proc"))


def _number(proc: int, path: str, place: int) -> int:
    try:
        with open(f"{_at(proc)}/{path}", encoding="ascii") as file:
            return int(file.read().split()[place])
    except (OSError, IndexError):
        return 0


def _share(proc: int, name: str) -> int:
    try:
        with open(f"{_at(proc)}/{name}/smaps_rollup", encoding="ascii", errors="replace") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("Pss:")), 0)
    except OSError:
        return 0
