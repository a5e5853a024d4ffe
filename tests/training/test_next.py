"""Learning from agents' runs: which identifiers the next actions use."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from forgetless import compact
from forgetless.cli.train import lre
from forgetless.datasets.logs import units_of
from forgetless.errors import ConfigError
from forgetless.policies.lre.carried import CARRIED, Carried
from forgetless.policies.lre.growing import Kept
from forgetless.policies.lre.scorer import Carrying
from forgetless.policies.lre.weights import Weights
from forgetless.training.labels import NEXT, moments
from forgetless.training.lre import by_group, fit, labelled, regression
from made_runs import log, run

pytest.importorskip("sklearn")


def test_what_the_next_actions_use_is_needed() -> None:
    told = log(1, 6)
    kept = Kept(Carried)
    for case, chosen in moments(told, kept):
        names = kept(case.units, lambda carried: list(carried.names))
        later = "\n".join(unit.text.split("\n")[1] for unit in told.units[len(case.units) :])
        for number, needed in zip(chosen, case.labels, strict=True):
            assert needed == (f'cat {names[number]}"' in later)


def test_what_the_user_named_is_not_asked_for() -> None:
    told = log(1)
    kept = Kept(Carried)
    named = {
        name
        for case, chosen in moments(told, kept)
        for name in (kept(case.units, lambda carried: list(carried.names))[number] for number in chosen)
    }
    assert any(name.startswith("/srv/job_") for name in named)
    assert "/srv/task_1" not in named


def test_moments_are_bounded_and_before_an_action() -> None:
    told = log(1, 100)
    found = [case for case, _ in moments(told, Kept(Carried))]
    assert 16 <= len(found) <= 32
    assert all(told.units[len(case.units)].kind == "step" for case in found)
    assert all(any(case.labels) for case in found)
    assert {case.group for case in found} == {"task1"}


def test_it_tells_what_comes_alone_from_what_comes_in_a_crowd() -> None:
    data = labelled(map(log, range(6)), NEXT)
    assert data.names == CARRIED
    weights = fit(data, data.names, label=NEXT, about="made")
    assert weights.carried
    assert weights.training["auc"] > 0.9
    assert weights.training["identifiers"] == sum(map(len, data.labels))
    found = Carrying(weights)(log(9, 2).units[:3])
    alone, crowd = (found.worth[found.part[found.unit == unit]] for unit in (1, 2))
    assert alone.max() > 5 * np.median(crowd)


def test_each_moment_weighs_less_than_its_needed_identifiers() -> None:
    data = labelled([log(1)], NEXT)
    assert data.weights is not None
    for labels, weights in zip(data.labels, data.weights, strict=True):
        assert weights == pytest.approx(labels.sum() ** -0.75)


def test_a_group_left_out_is_scored_by_the_others() -> None:
    data = labelled(map(log, range(4)), NEXT)
    found = regression(data, [at for at, group in enumerate(data.groups) if group != "task0"], data.names)
    areas = by_group(data, [found(rows) for rows in data.rows])
    assert areas["task0"] > 0.9


def test_the_command_gives_the_same_bytes_again_and_its_file_serves(tmp_path: Path) -> None:
    data = tmp_path / "runs.jsonl"
    data.write_text("".join(json.dumps(run(seed)) + "\n" for seed in range(4)))
    lre(data=(data,), out=tmp_path / "a.json")
    lre(data=(data,), out=tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    weights = Weights.load(tmp_path / "a.json")
    assert weights.label == NEXT
    assert len(weights.dump()) <= 2_048
    messages = run(9)
    whole = compact(messages, budget=10**6, policy="full").tokens
    done = compact(messages, budget=whole // 3, policy="lre", scorer=tmp_path / "a.json")
    assert done.tokens <= done.budget
    served = Carrying(weights)(units_of(messages))
    assert [entry.score for entry in done.ledger if not entry.pinned] == [
        served[e.unit] for e in done.ledger if not e.pinned
    ]


def test_runs_that_use_nothing_again_teach_nothing() -> None:
    with pytest.raises(ConfigError, match="nothing to learn from"):
        fit(labelled([log(1, 1)], NEXT), CARRIED, label=NEXT, about="made")
    with pytest.raises(ConfigError, match=r"of .* identifiers count as needed"):
        fit(labelled([log(1, 4)], NEXT), CARRIED, label=NEXT, about="made")
