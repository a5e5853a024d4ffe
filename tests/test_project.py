"""The package as a whole: what an import costs, and that the example tells the truth."""

import json
import subprocess
import sys
from pathlib import Path

from forgetless.registry import policy_names

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
HEAVY = {"numpy", "torch", "msgspec", "starlette", "rich", "cyclopts"}


def run_python(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, encoding="utf-8", cwd=ROOT, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_loads_nothing_heavy():
    loaded = run_python("-c", "import sys, forgetless; print(*sys.modules)").split()
    assert "forgetless.compaction" in loaded
    assert not HEAVY.intersection(loaded)


def test_tour_runs_to_its_end_and_shows_every_policy():
    shown = run_python("-X", "utf8", "examples/tour.py")
    for name in policy_names():
        assert f"│ {name} " in shown
    assert "Of what the answer needs" in shown.splitlines()[-1]


def test_what_the_example_asks_for_was_said_long_before():
    messages = json.loads((EXAMPLES / "support_agent.json").read_text("utf-8"))["messages"]
    expect = json.loads((EXAMPLES / "support_agent.expect.json").read_text("utf-8"))
    early, late = (json.dumps(part, ensure_ascii=False) for part in (messages[:40], messages[40:]))
    for text in [*expect["identifiers"], expect["standing_instruction"]]:
        assert text in early
        assert text not in late
