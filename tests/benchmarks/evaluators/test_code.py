"""Code in replies: what is run, and that nothing which hangs, floods, exits or breaks limits passes or stays."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from forgetless.benchmarks.evaluators.code import Code, passes

TEST = "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate([1]) == [1, 1]\n"
RECORD = {"test": TEST, "metadata": {"func_name": "double"}}


@pytest.mark.parametrize(
    ("reply", "right"),
    [
        ("So:\n```python\ndef double(x: List[int]):\n    return x + x\n```\nRight?", True),
        ("def twice(x):\n    return 2 * x\n", True),
        ("```\ndef double(x):\n    return x\n```\nBetter:\n```\ndef double(x):\n    return 2 * x\n```", True),
        ("```\ndef double(x):\n    return 2 * x\n\ndef other(x):\n    return 0\n```", True),
        ("```\ndef double(x):\n    return 4\n```", False),
        ("```\ndef double(x):\n    return undefined\n```", False),
        ("```\ndef double(x)\n```", None),
        ("What should it double?", None),
    ],
)
def test_the_last_function_is_run(reply: str, right: bool | None) -> None:
    assert Code().score(reply, RECORD) is right


@pytest.mark.parametrize(
    "code",
    [
        "import os\nos._exit(0)\ndef f(x): ...",
        "import sys\nsys.exit()\ndef f(x): ...",
        "def f(x):\n    raise KeyboardInterrupt",
        "x = 'a' * (1 << 31)\ndef f(x):\n    return 2 * x",
        "open('big', 'w').write('x' * 99_999)\ndef f(x):\n    return 2 * x",
        "f = 3",
    ],
)
def test_what_exits_early_or_breaks_a_limit_does_not_pass(code: str) -> None:
    assert not passes(code, TEST)


def test_what_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    mark = tmp_path.name
    child = f"import time; '{mark}'; time.sleep(60)"
    code = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {child!r}])\nwhile True: print('x')"
    start = time.monotonic()
    assert not passes(code, TEST, seconds=1)
    assert time.monotonic() - start < 30
    time.sleep(0.1)
    assert mark not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout


def test_the_environment_does_not_reach_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "known")
    code = "import os\nassert 'SECRET' not in os.environ\ndef f(x):\n    return 2 * x"
    assert passes(code, TEST), sys.executable
