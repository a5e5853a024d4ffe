"""Python functions: a reply's code against the task's tests, in a process of its own (HumanEval).

What a model writes runs here, within limits on time, memory and file size, but in no sandbox: it could read what its
user can read.
"""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from secrets import randbelow
from tempfile import TemporaryDirectory
from typing import Any

__all__ = ["Code", "passes"]

PROMPT = """\
Write the Python function that the user wants. The user may describe it piece by piece: write it as well as you can \
with what you know so far. Give the whole function in one code block."""

SECONDS = 10
"""Most that tests may take."""

HARNESS = """
import json, os, resource, sys
given = json.load(sys.stdin)
for name, most in given["limits"].items():
    resource.setrlimit(getattr(resource, name), (most, most))
space = {"__name__": "answer"}
exec("from typing import *", space)
before = set(space)
exec(given["code"], space)
own = [value for name, value in space.items() if name not in before and callable(value)]
candidate = space.get(given["name"]) or own[-1]
exec(given["test"], space)
space["check"](candidate)
os._exit(given["status"])
"""

LIMITS = {"RLIMIT_CPU": SECONDS // 2, "RLIMIT_AS": 1 << 30, "RLIMIT_FSIZE": 0, "RLIMIT_CORE": 0}

_BLOCK = re.compile(r"```(?:\w+)?[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)


class Code:
    """Takes the last code block that defines a function, or a reply that is nothing but Python."""

    def prompt(self, record: Mapping[str, Any]) -> str:
        """The same for all; the function may have any name."""
        return PROMPT

    def score(self, reply: str, record: Mapping[str, Any]) -> bool | None:
        """Whether the code passes the record's `test`, which defines `check(candidate)`."""
        code = _code(reply)
        name = str((record.get("metadata") or {}).get("func_name") or "")
        return None if code is None else passes(code, str(record["test"]), name)


def _code(reply: str) -> str | None:
    blocks: list[str] = _BLOCK.findall(reply) or [reply]
    found = [block for block in blocks if "def " in block and _is_python(block)]
    return found[-1] if found else None


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def passes(code: str, test: str, name: str = "", seconds: int = SECONDS) -> bool:
    """Whether code passes a test that defines `check(candidate)`; what fails, hangs or goes over a limit does not.

    Args:
        code: defines the function.
        test: checks it.
        name: of the function; where the code has none of that name, its last one is meant.
        seconds: most that it may take.
    """
    status = 100 + randbelow(100)  # what is printed or returned by the code itself must not look like success
    given = {"code": code, "test": test, "name": name, "limits": LIMITS, "status": status}
    with TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", HARNESS],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={},
            text=True,
            start_new_session=True,
        )
        try:
            process.communicate(json.dumps(given), timeout=seconds)
        except subprocess.TimeoutExpired:
            return False
        finally:
            _end(process)
    return process.returncode == status


def _end(process: subprocess.Popen[str]) -> None:
    """End the process and all that it started in its session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
