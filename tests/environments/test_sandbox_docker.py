"""What is asked of a Docker engine; a program that notes down its arguments stands in for it."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from forgetless.environments.sandbox.base import Limits
from forgetless.environments.sandbox.docker import Docker, engine
from forgetless.environments.sandbox.load import open_sandbox
from forgetless.errors import ConfigError

STAND_IN = """#!/usr/bin/env python3
import json, os, sys
with open({calls!r}, "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
if any(word in {refused!r} for word in sys.argv):
    sys.exit("this engine can't: " + sys.argv[1])
"""


class Engine:
    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / "calls.jsonl"
        self.refuse()

    def refuse(self, *words: str) -> None:
        program = self.folder / "docker"
        program.write_text(STAND_IN.format(calls=str(self.path), refused=words))
        program.chmod(0o755)

    @property
    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()]


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return Engine(tmp_path)


def test_a_container_has_no_network_and_limits_and_goes_with_its_image(stand_in: Engine, tmp_path: Path) -> None:
    sandbox = Docker(tmp_path / "environment", Limits(memory=1 << 30, processes=64, disk=1 << 20, life=90))
    entry = sandbox.entry(("ls", "-l"), root=True)
    sandbox.end()
    sandbox.close()
    build, run, restart, remove, forget = stand_in.calls
    name = build[build.index("--tag") + 1]
    assert build == ["build", "--quiet", "--tag", name, str(tmp_path / "environment")]
    given = dict(pairwise(run))
    assert given["--network"] == "none"
    assert given["--memory"] == given["--memory-swap"] == str(1 << 30)
    assert (given["--pids-limit"], given["--storage-opt"], given["--ulimit"]) == ("64", "size=1048576", "core=0")
    assert {"--rm", "--init", "--detach", "fsize=1048576"} <= set(run)
    assert run[-2:] == [name, "90"]
    assert entry.argv == ("docker", "exec", "--interactive", "--user", "0", name, "ls", "-l")
    assert restart == ["restart", "--time", "0", name]
    assert (remove[0], remove[-1], forget[0], forget[-1]) == ("rm", name, "rmi", name)


def test_an_engine_that_cannot_limit_disks_is_asked_again_without(stand_in: Engine, tmp_path: Path) -> None:
    stand_in.refuse("--storage-opt")
    Docker(tmp_path, Limits()).close()
    assert [call[0] for call in stand_in.calls] == ["build", "run", "rm", "run", "rm", "rmi"]


def test_what_an_engine_refuses_is_said_and_cleaned_up(stand_in: Engine, tmp_path: Path) -> None:
    stand_in.refuse("build")
    with pytest.raises(ConfigError, match="'docker build' failed: this engine can't: build"):
        open_sandbox(tmp_path, Limits(), "docker")
    stand_in.refuse("run")
    with pytest.raises(ConfigError, match="'docker run' failed"):
        Docker(tmp_path, Limits())
    assert [call[0] for call in stand_in.calls][-2:] == ["rm", "rmi"]


def test_docker_is_taken_where_an_engine_answers(stand_in: Engine, tmp_path: Path) -> None:
    sandbox = open_sandbox(tmp_path, Limits())
    sandbox.close()
    assert sandbox.kind == "docker"
    stand_in.refuse("version")
    assert not engine()


def test_no_docker_is_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not engine()
