"""Budgets for the steps alone: every step competes, and what the task says is not asked for."""

from __future__ import annotations

import pytest

from forgetless.benchmarks.hindsight import ORACLE
from forgetless.benchmarks.tasks.identifier_availability import (
    Cell,
    actions,
    compare,
    density,
    measure_steps,
    summarise,
)
from forgetless.datasets.trajectories import Recording
from forgetless.policies.fifo import Fifo
from forgetless.policies.select import Select
from forgetless.tokens import Counter
from made_runs import log, run

COUNTER = Counter(len)


def recording(seed: int) -> Recording:
    return Recording(f"task{seed}", "a", 1.0, tuple(run(seed)))


def cells(budget: int) -> list[Cell]:
    policies = {"fifo": Fifo(), "dense": Select(density), ORACLE: None}
    return [c for seed in range(3) for c in measure_steps(recording(seed), policies, COUNTER, (budget,))]


def test_the_oracle_knows_best_and_all_stay_within_the_budget() -> None:
    found = cells(500)
    floor = max(act.units[0].tokens for seed in range(3) for act in actions(recording(seed), COUNTER))
    assert all(tokens <= 500 + floor for cell in found for tokens in cell.tokens)
    assert not any(cell.failed for cell in found)
    best = {(cell.task, cell.trial): cell.shares for cell in found if cell.policy == ORACLE}
    for cell in found:
        assert all(map(float.__ge__, best[cell.task, cell.trial], cell.shares))


def test_only_actions_whose_steps_do_not_fit_count() -> None:
    assert all(cell.shares for cell in cells(500))
    assert not any(cell.shares for cell in cells(10**6))


def test_the_newest_step_has_to_earn_its_place() -> None:
    found = [cell for cell in cells(150) if cell.policy == "fifo"]
    assert 0.0 in {share for cell in found for share in cell.shares}  # it alone is longer than that


def test_what_is_compared_is_paired_by_run() -> None:
    def cell(policy: str, task: str, *shares: float) -> Cell:
        return Cell(task, "a", policy, 512, shares=list(shares))

    found = [
        cell("lre", "x", 0.5, 0.7), cell("lre", "y", 0.9), cell("fifo", "x", 0.1, 0.3), cell("fifo", "y", 0.5),
        cell(ORACLE, "x", 1.0, 1.0), cell(ORACLE, "y", 1.0), cell("lre", "z"),
    ]  # fmt: skip
    rows = {row["beside"]: row for row in compare(found, "lre", 0)}
    assert rows["fifo"]["more"] == pytest.approx(0.4)
    assert rows["fifo"]["more_low"] == pytest.approx(0.4)
    assert rows["fifo"]["closed"] == pytest.approx(0.4 / 0.65, abs=1e-4)
    assert rows[ORACLE]["more"] == pytest.approx(-0.25)
    assert rows[ORACLE]["closed"] is None
    assert [row["availability"] for row in summarise(found, 0)] == pytest.approx([0.75, 0.35, 1.0])


def test_density_is_identifiers_by_tokens() -> None:
    task, first, crowd = log(1, 3).units[:3]
    scores = density([task, first, crowd])
    assert scores[2] > scores[1] > 0
