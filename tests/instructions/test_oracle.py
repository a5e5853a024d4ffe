"""The recogniser `oracle`: right where it is to be, wrong at the rate that was asked for, the same each time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forgetless.instructions.oracle import Oracle

KNOWN = {f"rule {at}": [(0, 4)] for at in range(500)}
OTHERS = [f" talk {at}\n" for at in range(500)]


def test_it_knows() -> None:
    find = Oracle(KNOWN)
    assert all(find(text) == [(0, 4)] for text in KNOWN)
    assert all(find(text) == [] for text in OTHERS)


def test_it_errs_at_the_given_rates() -> None:
    find = Oracle(KNOWN, false_positives=0.3, false_negatives=0.1)
    assert 100 <= sum(bool(find(text)) for text in OTHERS) <= 200
    assert 20 <= sum(not find(text) for text in KNOWN) <= 80
    wrong = next(text for text in OTHERS if find(text))
    ((start, end),) = find(wrong)
    assert wrong[start:end] == wrong.strip()


def test_always_wrong() -> None:
    find = Oracle(KNOWN, false_positives=1.0, false_negatives=1.0)
    assert find("rule 1") == []
    assert find("talk") == [(0, 4)]
    assert find("  ") == []


@given(st.text(max_size=20), st.integers(0, 3))
def test_the_same_each_time_and_for_another_seed_others(text: str, seed: int) -> None:
    assert Oracle({}, 0.5, seed=seed)(text) == Oracle({}, 0.5, seed=seed)(text)


def test_seeds_differ() -> None:
    one, other = (Oracle({}, 0.5, seed=seed) for seed in (0, 1))
    assert [bool(one(text)) for text in OTHERS] != [bool(other(text)) for text in OTHERS]
