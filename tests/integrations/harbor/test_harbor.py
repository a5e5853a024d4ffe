"""`harbor run` with each of our agents, in the environment that `make` makes for Harbor; the model is a stand-in."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from archivist import KEY, PAGES, archivist, texts
from forgetless.dialects.atif import messages_from_atif
from forgetless.environments.sandbox.base import Limits
from forgetless.environments.sandbox.load import open_sandbox
from forgetless.errors import ConfigError, MissingExtra
from forgetless.models.served import Served
from forgetless.tokens import for_model
from live import Provider, serving

ROOT = Path(__file__).parents[3]
PYTHON = ROOT / ".cache/harbor/bin/python"
TASK = ROOT / "examples/harbor/archive"
OURS = "forgetless.integrations.harbor"
BUDGET = 3_500
VALID = (
    "import sys\nfrom pathlib import Path\nfrom harbor.utils.trajectory_validator import TrajectoryValidator\n"
    "for path in sys.argv[1:]:\n    made = TrajectoryValidator()\n    assert made.validate(Path(path)), made.errors\n"
)


def with_harbor(*arguments: str | Path) -> None:
    """Run Python in Harbor's environment."""
    quiet = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HARBOR_TELEMETRY": "0"}
    keys = {"OPENAI_API_KEY": "none", "ANTHROPIC_API_KEY": "none"}
    env = {**os.environ, **quiet, **keys}
    done = subprocess.run(
        [PYTHON, *arguments], capture_output=True, text=True, cwd=ROOT, env=env, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def _harbor(tmp_path: Path) -> None:
    if not PYTHON.exists():
        pytest.skip("Harbor is not installed: make .venv/.harbor, which needs Python 3.12")
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed: the agents of Harbor need it")
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    try:
        open_sandbox(tmp_path, Limits(), "namespaces").close()
    except ConfigError as error:
        pytest.skip(str(error))


def agent(name: str, model: str, address: str, **options: Any) -> dict[str, Any]:
    given = {"api_base": address, "record_terminal_session": False, **options}
    return {"import_path": f"{OURS}:{name}", "model_name": model, "kwargs": given}


class Job:
    """One `harbor run` with three agents on one task: what their models were sent, and what it left."""

    def __init__(self, out: Path) -> None:
        provider, served = Provider(), Served(archivist())
        provider.answer = lambda path, body: served.answer("anthropic" if "messages" in path else "chat", body)
        with serving(provider.app) as address:
            job = {
                "jobs_dir": str(out),
                "job_name": "job",
                "quiet": True,
                "tasks": [{"path": str(TASK)}],
                "environment": {"import_path": f"{OURS}:LocalEnvironment"},
                "agents": [
                    agent("CCMAgent", "anthropic/claude-stand-in", address),
                    agent("LREAgent", "openai/lre", f"{address}/v1", budget=BUDGET),
                    agent("FullHistoryAgent", "openai/full", f"{address}/v1"),
                ],
            }
            (out / "job.json").write_text(json.dumps(job))
            with_harbor(PYTHON.with_name("harbor"), "run", "-c", out / "job.json")
        self.sent = {
            name: [body for body in provider.bodies if body["model"] == model]
            for name, model in (("ccm", "claude-stand-in"), ("lre", "lre"), ("full", "full"))
        }
        self.trials = {
            made["agent_info"]["name"].removeprefix("forgetless-"): (path.parent, made)
            for path in out.glob("job/*/result.json")
            if (made := json.loads(path.read_text()))
        }

    def trajectory(self, name: str) -> Any:
        return json.loads((self.trials[name][0] / "agent/trajectory.json").read_text())


def length(body: dict[str, Any]) -> int:
    counter = for_model("gpt-4.1")
    return sum(counter.text(text) + 4 for text in texts(body))


def all_did_the_task(job: Job) -> None:
    assert sorted(job.trials) == ["ccm", "full", "lre"]
    for _, made in job.trials.values():
        assert made["exception_info"] is None
        assert made["verifier_result"]["rewards"] == {"reward": 1.0}


def trajectories_are_valid_and_tell_what_was_sent(job: Job) -> None:
    with_harbor("-c", VALID, *(folder / "agent/trajectory.json" for folder, _ in job.trials.values()))
    for name, (_, made) in job.trials.items():
        steps = [step for step in job.trajectory(name)["steps"] if step["source"] == "agent"]
        assert len(steps) == len(job.sent[name]) >= PAGES + 3
        assert all(step["extra"]["context"]["tokens"] > 0 for step in steps)
        assert len([m for m in messages_from_atif(job.trajectory(name)) if m["role"] == "assistant"]) == len(steps)
        total = made["agent_result"]
        assert total["n_input_tokens"] == sum(step["metrics"]["prompt_tokens"] for step in steps) > 0
        assert total["n_output_tokens"] == sum(step["metrics"]["completion_tokens"] for step in steps) > 0


def ccm_sent_one_message_that_does_not_grow_and_marked_what_stays(job: Job) -> None:
    static = set()
    for body in job.sent["ccm"]:
        (message,) = body["messages"]
        assert message["role"] == "user"
        marked = [block for block in message["content"] if block.get("cache_control")]
        assert marked == [message["content"][1]]
        static.add(json.dumps(message["content"][:2]))
    assert len(static) == 1
    reading = [length(body) for body in job.sent["ccm"][2 : PAGES + 1]]
    assert max(reading) - min(reading) <= 2
    memories = [s["extra"]["context"]["memory"] for s in job.trajectory("ccm")["steps"] if s["source"] == "agent"]
    assert KEY in memories[-1]
    for memory, body in zip(memories, job.sent["ccm"][1:], strict=False):
        assert texts(body)[0].count(memory) == 1
    assert "context_window" not in json.dumps([s["message"] for s in job.trajectory("ccm")["steps"][1:]])


def lre_stayed_within_its_budget_and_kept_what_is_needed(job: Job) -> None:
    for body in job.sent["lre"]:
        roles = [message["role"] for message in body["messages"]]
        assert roles == [("user", "assistant")[at % 2] for at in range(len(roles))]
        assert length(body) <= BUDGET
    assert length(job.sent["full"][-1]) > BUDGET
    assert "left out" in json.dumps(job.sent["lre"][-1])
    assert KEY in json.dumps(job.sent["lre"][-1]["messages"][:-4])


def the_control_sent_everything(job: Job) -> None:
    bodies = job.sent["full"]
    for before, after in pairwise(bodies):
        assert after["messages"][:-2] == before["messages"]


@pytest.mark.usefixtures("_harbor")
def test_each_agent_does_a_task_and_sends_what_it_promises(tmp_path):
    """One test, for the run takes most of its time."""
    job = Job(tmp_path)
    all_did_the_task(job)
    trajectories_are_valid_and_tell_what_was_sent(job)
    ccm_sent_one_message_that_does_not_grow_and_marked_what_stays(job)
    lre_stayed_within_its_budget_and_kept_what_is_needed(job)
    the_control_sent_everything(job)


@pytest.mark.usefixtures("_harbor")
def test_what_needs_harbor_in_the_same_process():
    options = ("-q", "--noconftest", "-c", "/dev/null", "--rootdir", ROOT, "--import-mode=importlib")
    with_harbor("-m", "pytest", *options, "-p", "no:cacheprovider", Path(__file__).with_name("with_harbor.py"))


@pytest.mark.skipif(find_spec("harbor") is not None, reason="Harbor is installed here")
def test_without_harbor_an_agent_says_what_to_install():
    import forgetless.integrations.harbor as ours

    assert "harbor" not in sys.modules
    for name in ours.__all__:
        with pytest.raises(MissingExtra, match=r"pip install 'forgetless\[harbor\]'"):
            getattr(ours, name)
    with pytest.raises(AttributeError, match="no attribute 'Other'"):
        _ = ours.Other
