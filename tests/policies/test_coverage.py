"""What two units carry counts once: within the budget, close to the best, opened by a user."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import combinations, product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from forgetless.policies.coverage import FEW, Shares, cover


def shares(held: list[set[int]], worth: list[float], own: list[float] | None = None) -> Shares:
    pairs = [(unit, part) for unit, parts in enumerate(held) for part in sorted(parts)]
    unit, part = np.array(pairs, np.int64).reshape(-1, 2).T
    return Shares(np.array(own or [0.0] * len(held)), np.array(worth, float), unit, part, np.zeros(len(part), bool))


def choose(found: Shares, costs: list[int], budget: int, kept: Collection[int], opens: list[bool]) -> list[int]:
    """Without masked forms."""
    chosen, masked = cover(found, costs, budget, kept=kept, opens=opens)
    assert not masked
    return chosen


def value(found: Shares, held: list[set[int]], chosen: list[int], kept: set[int]) -> float:
    there = {part for unit in kept for part in held[unit]}
    return sum(found.own[chosen]) + sum(found.worth[p] for p in {p for u in chosen for p in held[u]} - there)


units = st.lists(st.sets(st.integers(0, 5)), min_size=1, max_size=7)
worths = st.lists(st.floats(0, 1), min_size=6, max_size=6)


@given(held=units, worth=worths, data=st.data())
def test_it_stays_within_the_budget_and_reaches_half_of_the_best(
    held: list[set[int]], worth: list[float], data: st.DataObject
) -> None:
    many = len(held)
    costs = data.draw(st.lists(st.integers(1, 9), min_size=many, max_size=many))
    kept = data.draw(st.sets(st.integers(0, many - 1)))
    budget = data.draw(st.integers(0, 30))
    found = shares(held, worth, data.draw(st.lists(st.sampled_from([0.0, 0.5]), min_size=many, max_size=many)))
    chosen = choose(found, costs, budget, kept, [True] * many)
    assert chosen == sorted(set(chosen) - kept)
    assert sum(costs[at] for at in chosen) <= budget
    rest = [at for at in range(many) if at not in kept]
    fitting = [
        list(some)
        for size in range(len(rest) + 1)
        for some in combinations(rest, size)
        if sum(costs[at] for at in some) <= budget
    ]
    best = max(value(found, held, some, kept) for some in fitting)
    assert value(found, held, chosen, kept) >= best / 2 - 1e-9
    left = budget - sum(costs[at] for at in chosen)
    assert all(costs[at] > left for at in rest if at not in chosen), "room was left for another"


@given(held=units, data=st.data())
def test_what_is_chosen_opens_with_what_may_open(held: list[set[int]], data: st.DataObject) -> None:
    many = len(held)
    costs = data.draw(st.lists(st.integers(1, 9), min_size=many, max_size=many))
    opens = data.draw(st.lists(st.booleans(), min_size=many, max_size=many))
    budget = data.draw(st.integers(0, 30))
    chosen = choose(shares(held, [1.0] * 6), costs, budget, (), opens)
    assert not chosen or opens[chosen[0]]
    assert sum(costs[at] for at in chosen) <= budget


def test_what_another_has_is_worth_nothing_twice() -> None:
    held = [{0, 1}, {0, 1}, {2}]
    assert choose(shares(held, [1.0, 1.0, 0.3]), [5, 5, 5], 10, (), [True] * 3) == [1, 2]
    assert choose(shares(held, [1.0, 1.0, 0.3]), [5, 5, 5], 5, [0], [True] * 3) == [2]


def test_one_long_unit_can_be_worth_more_than_many_short_ones() -> None:
    held = [{0}, {1, 2, 3}]
    assert choose(shares(held, [0.9, 1.0, 1.0, 1.0]), [1, 10], 10, (), [True, True]) == [1]


def test_a_unit_brings_its_opener_along() -> None:
    held: list[set[int]] = [set(), {0}, {1}]
    found = shares(held, [1.0, 0.1])
    assert choose(found, [2, 5, 1], 7, (), [True, False, False]) == [0, 1]
    assert choose(found, [3, 5, 1], 7, (), [True, False, False]) == [0, 2]
    assert choose(found, [3, 5, 1], 7, (), [False, False, False]) == []


def test_equal_units_are_kept_from_the_end() -> None:
    assert choose(shares([set()] * 5, [0.0]), [1] * 5, 2, (), [True] * 5) == [3, 4]


def test_many_units_are_chosen_by_the_same_rule() -> None:
    many = 4 * FEW
    held = [{at // 2} for at in range(many)]  # each thing stands in two units
    found = shares(held, [1.0] * (many // 2))
    chosen = choose(found, [1] * many, many // 2, (), [True] * many)
    assert len({at // 2 for at in chosen}) >= 0.8 * many // 2


def test_scores_are_what_units_carry() -> None:
    found = shares([{0, 1}, {1}, set()], [0.5, 0.25], [0.0, 1.0, 0.0])
    assert list(found) == [0.75, 1.25, 0.0]
    assert found[1] == 1.25
    assert found[:2] == [0.75, 1.25]
    assert len(found) == 3


@given(held=units, worth=worths, data=st.data())
def test_a_unit_stays_whole_or_masked_or_not(held: list[set[int]], worth: list[float], data: st.DataObject) -> None:
    many = len(held)
    costs = data.draw(st.lists(st.integers(3, 9), min_size=many, max_size=many))
    masked = [data.draw(st.none() | st.integers(1, cost - 1)) for cost in costs]
    budget = data.draw(st.integers(0, 30))
    found = shares(held, worth)
    called = [{part for part in parts if data.draw(st.booleans())} for parts in held]
    flags = np.array([p in called[u] for u, p in zip(found.unit.tolist(), found.part.tolist(), strict=True)], bool)
    found = replace(found, called=flags)
    whole, bare = cover(found, costs, budget, kept=(), opens=[True] * many, masked=masked)
    assert not set(whole) & set(bare)
    assert all(masked[at] is not None for at in bare)

    def cost(forms: Sequence[int]) -> int:
        return sum(costs[at] if form == 2 else masked[at] or 0 for at, form in enumerate(forms) if form)

    def there(forms: Sequence[int]) -> float:
        has = (held[at] if form == 2 else called[at] for at, form in enumerate(forms) if form)
        return sum(found.worth[part] for part in set().union(*has))

    taken = [2 if at in whole else 1 if at in bare else 0 for at in range(many)]
    assert cost(taken) <= budget
    every = product(*([0, 1, 2] if masked[at] is not None else [0, 2] for at in range(many)))
    best = max(there(forms) for forms in every if cost(forms) <= budget)
    assert there(taken) >= best / 3 - 1e-9


def test_a_step_too_long_to_stay_leaves_its_call_behind() -> None:
    found = replace(shares([{0, 1}, {2}], [1.0, 1.0, 0.5]), called=np.array([True, False, False]))
    assert cover(found, [90, 10], 20, kept=(), opens=[True, True], masked=[5, None]) == ([1], [0])
    assert cover(found, [90, 10], 95, kept=(), opens=[True, True], masked=[5, None]) == ([0], [])
    assert cover(found, [90, 10], 100, kept=(), opens=[True, True], masked=[5, None]) == ([0, 1], [])


def test_of_many_units_what_adds_nothing_waits_for_all_that_adds_something() -> None:
    """Reports have the same few things over and over; notices, worth less each, have things of their own."""
    idle, reports, notices = 400, 60, 16
    held: list[set[int]] = [set() for _ in range(idle)]
    held += [{at % 4} for at in range(reports)] + [{4 + at} for at in range(notices)]
    found = shares(held, [5.0] * 4 + [1.0] * notices)
    chosen = choose(found, [1] * len(held), 4 + notices, set(), [True] * len(held))
    assert {part for at in chosen for part in held[at]} == set(range(4 + notices))
