"""Results folders: a broken run goes on, and a damaged one says so and loses nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from forgetless.benchmarks.results import resume_run
from forgetless.errors import ConfigError


def test_a_broken_run_goes_on_from_what_it_recorded(tmp_path: Path) -> None:
    with resume_run(tmp_path, "made", seed=1) as run:
        run.record(turn=1)
        run.record(turn=2)
    with (tmp_path / "records.jsonl").open("a") as records:
        records.write('{"turn": 3')  # cut off as it was written
    with resume_run(tmp_path, "made", seed=1) as run:
        assert run.before == [{"turn": 1}, {"turn": 2}]
    with resume_run(tmp_path, "made", seed=2) as run:
        assert run.before == []


@pytest.mark.parametrize("line", ["{", "7", "null", '"turn"'])
def test_a_damaged_line_is_named_and_the_folder_stays_as_it_is(tmp_path: Path, line: str) -> None:
    with resume_run(tmp_path, "made", seed=1) as run:
        run.record(turn=1)
    damaged = (tmp_path / "records.jsonl").read_text() + f"{line}\n" + '{"turn": 3}\n'
    (tmp_path / "records.jsonl").write_text(damaged)
    with pytest.raises(ConfigError, match="line 2 of"), resume_run(tmp_path, "made", seed=1):
        pass
    assert (tmp_path / "records.jsonl").read_text() == damaged
