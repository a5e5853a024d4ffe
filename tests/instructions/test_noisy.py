"""A recogniser made worse: by the rates that were asked for, on the same messages each time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetless.errors import ConfigError
from forgetless.instructions.noisy import Noisy
from forgetless.instructions.rules import Rules

RULES = [f"From now on, never mention number {at}." for at in range(400)]
OTHERS = [f" What is number {at}?\n" for at in range(400)]


def test_it_errs_at_the_rates_and_nowhere_else() -> None:
    find = Noisy(Rules(), false_positives=0.25, false_negatives=0.5)
    assert 60 <= sum(bool(find(text)) for text in OTHERS) <= 140
    assert 150 <= sum(not find(text) for text in RULES) <= 250
    assert all(find(text) in ([], Rules()(text)) for text in RULES)
    wrong = next(text for text in OTHERS if find(text))
    ((start, end),) = find(wrong)
    assert wrong[start:end] == wrong.strip()


@given(st.text(max_size=40), st.integers(0, 5))
def test_without_errors_it_is_the_recogniser_and_with_a_seed_the_same_each_time(text: str, seed: int) -> None:
    assert Noisy(Rules())(text) == Rules()(text)
    find = Noisy(Rules(), 0.5, 0.5, seed)
    assert find(text) == Noisy(Rules(), 0.5, 0.5, seed)(text)


def test_more_errors_keep_those_of_fewer() -> None:
    few, many = (Noisy(Rules(), share, share) for share in (0.2, 0.6))
    for texts, errs in ((RULES, False), (OTHERS, True)):
        assert {text for text in texts if bool(few(text)) is errs} <= {
            text for text in texts if bool(many(text)) is errs
        }


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_rate_is_a_share(share: float) -> None:
    with pytest.raises(ConfigError, match="from 0 to 1"):
        Noisy(Rules(), share)
    with pytest.raises(ConfigError, match="from 0 to 1"):
        Noisy(Rules(), 0.0, share)
