"""What units carry: identifiers and what stands within them, counted as a history grows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetless.datasets.logs import units_of
from forgetless.identifiers import contains, identifiers
from forgetless.policies.lre.carried import CARRIED, Carried, named
from forgetless.policies.lre.growing import Kept
from made_runs import log
from strategies import any_dialect


def talk(*texts: str) -> list[dict[str, Any]]:
    return [{"role": "user" if at % 2 == 0 else "assistant", "content": text} for at, text in enumerate(texts)]


def of(*texts: str) -> dict[str, dict[str, float]]:
    """The features of each identifier, their logarithms undone."""
    carried = Carried()
    carried.extend(units_of(talk(*texts)))
    rows = carried.features()
    rows[:, :-1] = np.exp(rows[:, :-1])
    return {name: dict(zip(CARRIED, rows[at].tolist(), strict=True)) for name, at in carried.names.items()}


@pytest.mark.parametrize(
    "text",
    [
        "see /srv/app/main.py, then job_9f3c.",
        'run {"keystrokes": "cat /etc/hosts\\n"} at 10.0.0.12:8080',
        "mail ops@example.com about v1.2.3 of https://example.com/a/b?c=1",
        "the old /tmp/x.log and ./y.log; HTTP_PROXY=http://proxy.local:3128",
    ],
)
def test_identifiers_are_found_as_in_whole_texts(text: str) -> None:
    found = set(named(text))
    assert found >= {name for name in identifiers(text) if "?" not in name}
    assert all(contains(text, name) for name in found)


def test_what_stands_within_an_identifier_is_carried_too() -> None:
    assert {"/srv/app_1/main.py", "/srv/app_1", "app_1/main.py", "main.py", "app_1"} <= set(named("/srv/app_1/main.py"))


def test_payloads_carry_nothing() -> None:
    assert set(named("data iVBORw0KGgo/" + "aB3/" * 100_000 + " in plan.png")) == {"plan.png"}


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    assert all(name for name in named(text))


def test_features_tell_where_an_identifier_stands() -> None:
    found = of("job_9f3c", "fine", "job_9f3c and run_1", "and run_1")
    expected = {"since_last": 2, "since_first": 4, "gap": 2, "holders": 2, "among": 2, "came_among": 1, "history": 4}
    assert found["job_9f3c"] == pytest.approx({**expected, "digits": 1})
    assert found["run_1"]["since_last"] == pytest.approx(1)
    assert found["run_1"]["gap"] == pytest.approx(1)


def test_what_stands_outside_results_is_told() -> None:
    carried = Carried()
    carried.extend(log(1, 2).units)
    names = list(carried.names)
    unit, number, outside = carried.pairs()
    step = {names[n]: bool(flag) for n, flag in zip(number[unit == 1], outside[unit == 1], strict=True)}
    assert step["/srv/start.txt"]
    assert [flag for name, flag in step.items() if name.startswith("/srv/job_")] == [False] * 2  # with and without .txt
    assert outside[unit == 0].all()


@given(conversation=any_dialect(), data=st.data())
def test_a_history_that_grows_gives_what_a_fresh_one_gives(conversation: tuple[str, Any], data: st.DataObject) -> None:
    dialect, messages = conversation
    units = units_of(messages, dialect)
    kept = Kept(Carried)
    for end in sorted(data.draw(st.lists(st.integers(0, len(units)), max_size=4))):
        kept(units[:end], Carried.features)
    fresh = Carried()
    fresh.extend(units)
    names, rows, pairs = kept(units, lambda carried: (dict(carried.names), carried.features(), carried.pairs()))
    assert names == fresh.names
    assert np.array_equal(rows, fresh.features())
    assert np.isfinite(rows).all()
    assert all(np.array_equal(one, other) for one, other in zip(pairs, fresh.pairs(), strict=True))


def test_what_was_read_does_not_change_as_the_history_goes_on() -> None:
    units = units_of(talk("job_9f3c", "fine", "job_9f3c and run_1"))
    kept = Kept(Carried)
    rows, pairs = kept(units[:2], lambda carried: (carried.features(), carried.pairs()))
    before = rows.copy(), [column.copy() for column in pairs]
    kept(units, Carried.features)
    assert np.array_equal(rows, before[0])
    assert all(np.array_equal(one, other) for one, other in zip(pairs, before[1], strict=True))
