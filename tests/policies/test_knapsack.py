"""The knapsack against brute force, a plain dynamic programme, and a bound of its own at 10,000 units."""

import random
from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from forgetless.policies import packing
from forgetless.policies.knapsack import solve

Instance = tuple[list[float], list[int], int, list[bool] | None]


def brute_force(scores: Sequence[float], costs: Sequence[int], budget: int, opens: Sequence[bool] | None) -> float:
    best = 0.0
    units = [unit for unit, score in enumerate(scores) if score >= 0]
    for size in range(1, len(units) + 1):
        for chosen in combinations(units, size):
            if (opens is None or opens[chosen[0]]) and sum(costs[unit] for unit in chosen) <= budget:
                best = max(best, sum(scores[unit] for unit in chosen))
    return best


def programme(scores: Sequence[float], costs: Sequence[int], budget: int, opens: Sequence[bool] | None) -> float:
    """The highest total, by a table over all budgets filled from the last unit to the first."""
    best, table = 0.0, np.zeros(budget + 1)
    for unit in reversed(range(len(scores))):
        score, cost = scores[unit], costs[unit]
        if score < 0 or cost > budget:
            continue
        if opens is None or opens[unit]:
            best = max(best, score + float(table[budget - cost]))
        taken = table.copy()
        taken[cost:] = np.maximum(table[cost:], table[: budget + 1 - cost] + score)
        table = taken
    return best


def relaxation(scores: np.ndarray, costs: np.ndarray, budget: int) -> float:
    """The linear bound: whole units by falling score per cost, then a part of one."""
    order = np.argsort(-scores / costs)
    spent = np.cumsum(costs[order])
    whole = int(np.searchsorted(spent, budget, "right"))
    if whole == len(order):
        return float(scores.sum())
    left = budget - (spent[whole - 1] if whole else 0)
    return float(scores[order[:whole]].sum() + left * scores[order[whole]] / costs[order[whole]])


def total(instance: Instance) -> float:
    """The total of the selection, which is checked for all that can be checked without the optimum."""
    scores, costs, budget, opens = instance
    chosen = solve(scores, costs, budget, opens=opens)
    assert chosen == sorted(set(chosen))
    assert all(type(unit) is int and scores[unit] >= 0 for unit in chosen)
    assert sum(costs[unit] for unit in chosen) <= budget
    assert not chosen or opens is None or opens[chosen[0]]
    assert chosen == solve(scores, costs, budget, opens=opens)
    return sum(scores[unit] for unit in chosen)


values = st.one_of(
    st.sampled_from([0.0, 0.0, 1.0, 2.0, 3.0, -1.0, 0.1]),
    st.floats(0, 10),
    st.builds(lambda part, power: part * 10.0**power, st.floats(0, 1), st.integers(-12, 12)),
)


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    pairs = draw(st.lists(st.tuples(values, st.integers(0, 12)), max_size=8))
    if pairs and draw(st.booleans()):
        pairs = draw(st.lists(st.sampled_from(pairs), max_size=9))
    shape = draw(st.sampled_from(["free", "cost", "offset", "less", "convex"]))
    shapes: dict[str, Callable[[float, int], float]] = {
        "free": lambda score, cost: score,
        "cost": lambda score, cost: float(cost),
        "offset": lambda score, cost: cost + 2.5,
        "less": lambda score, cost: max(0.0, cost - 3.0),
        "convex": lambda score, cost: cost**1.5,
    }
    scores = [shapes[shape](score, cost) for score, cost in pairs]
    flags = st.lists(st.booleans(), min_size=len(pairs), max_size=len(pairs))
    opens = draw(st.one_of(st.none(), flags))
    return scores, [cost for _, cost in pairs], draw(st.integers(0, 60)), opens


@given(instances())
@example(([0.0, 5.0], [3, 3], 6, [True, False]))
@example(([5.0, 0.0], [3, 3], 6, [False, True]))
@example(([1e-12, 1.0, 1e12], [1, 1, 1], 2, None))
@example(([4.0, 1e-308], [1, 0], 0, None))
@example(([5e307, 5e307, 5e307], [1, 1, 1], 2, None))
@example(([0.0, 9.0, -1.0], [1, 2, 1], 3, [True, False, True]))
@settings(max_examples=200, deadline=None)
def test_is_optimal_on_few_units(instance: Instance) -> None:
    assert total(instance) == pytest.approx(brute_force(*instance), rel=1e-9, abs=0)


@given(instances(), st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_total_does_not_depend_on_the_order_of_units(instance: Instance, rng: random.Random) -> None:
    scores, costs, budget, _ = instance
    order = rng.sample(range(len(scores)), len(scores))
    shuffled = [scores[unit] for unit in order], [costs[unit] for unit in order], budget, None
    assert total(shuffled) == pytest.approx(total((scores, costs, budget, None)), rel=1e-9, abs=0)


SCORES: dict[str, Callable[[np.random.Generator, np.ndarray], np.ndarray]] = {
    "random": lambda rng, costs: rng.random(len(costs)),
    "equal": lambda rng, costs: np.ones(len(costs)),
    "strongly correlated": lambda rng, costs: costs + 13.7,
    "inverse strongly correlated": lambda rng, costs: np.maximum(costs - 60.0, 0.0),
    "subset sum": lambda rng, costs: costs.astype(float),
    "nearly subset sum": lambda rng, costs: costs * (1 + 0.001 * rng.random(len(costs))),
    "cost times random": lambda rng, costs: costs * rng.random(len(costs)),
    "sparse": lambda rng, costs: np.where(rng.random(len(costs)) < 0.05, rng.random(len(costs)), 0.0),
    "concave": lambda rng, costs: np.sqrt(costs),
    "convex": lambda rng, costs: costs**1.2,
    "rounded": lambda rng, costs: 3.0 * np.ceil(costs / 3),
    "small integers": lambda rng, costs: rng.integers(-1, 4, len(costs)).astype(float),
}


def costs_of(kind: str, rng: np.random.Generator, count: int) -> np.ndarray:
    if kind == "heavy tail":
        return np.clip(20 * (1 + rng.pareto(1.0, count)), 20, 20_000).astype(int)
    if kind == "few":
        return rng.choice(rng.integers(20, 400, 5), count)
    if kind == "equal":
        return np.full(count, 137)
    return rng.integers(20, 400, count)


COSTS = ["uniform", "heavy tail", "few", "equal"]


def openers(kind: str, rng: np.random.Generator, count: int) -> list[bool] | None:
    shares = {"half": 0.5, "rare": 0.02}
    return None if kind == "any" else (rng.random(count) < shares[kind]).tolist()


@pytest.mark.parametrize("opening", ["any", "half", "rare"])
@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("score", SCORES)
def test_is_optimal_on_many_units(score: str, cost: str, opening: str) -> None:
    rng = np.random.default_rng(len(score) + 10 * len(cost))
    for count, budget in ((60, 1500), (150, 4000)):
        costs = costs_of(cost, rng, count)
        scores = SCORES[score](rng, costs)
        instance = scores.tolist(), costs.tolist(), budget, openers(opening, rng, count)
        assert total(instance) == pytest.approx(programme(*instance), rel=1e-9, abs=0)


@pytest.mark.parametrize("score", SCORES)
def test_short_trails_and_no_swaps_change_no_total(score: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With these the dynamic programme does all the work and its trail takes many blocks."""
    monkeypatch.setattr(packing, "TRAIL_BITS", np.uint64(2))
    monkeypatch.setattr(packing, "SWAPS", 0)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        costs = rng.integers(0, 40, 76)
        instance = SCORES[score](rng, costs).tolist(), costs.tolist(), 403, openers("half", rng, 76)
        assert total(instance) == pytest.approx(programme(*instance), rel=1e-9, abs=0)


@pytest.mark.parametrize(("cost", "opening"), [*zip(COSTS, ["half", "any", "half", "half"], strict=True)])
@pytest.mark.parametrize("score", [score for score in SCORES if score not in {"convex", "small integers"}])
def test_comes_close_to_the_linear_bound_on_10_000_units(score: str, cost: str, opening: str) -> None:
    rng = np.random.default_rng(0)
    costs = costs_of(cost, rng, 10_000)
    scores = SCORES[score](rng, costs)
    reached = total((scores.tolist(), costs.tolist(), 100_000, openers(opening, rng, 10_000)))
    bound = relaxation(scores, costs, 100_000)
    # The bound ignores the opening rule and takes a part of one unit: two units make up for both.
    assert bound * (1 - 1e-9) - 2 * scores.max() <= reached <= bound * (1 + 1e-9)


@pytest.mark.parametrize("budget", [0, 19, 70, 500])
def test_tiny_budgets_on_10_000_units(budget: int) -> None:
    rng = np.random.default_rng(1)
    costs = rng.integers(20, 400, 10_000)
    instance = rng.random(10_000).tolist(), costs.tolist(), budget, openers("rare", rng, 10_000)
    assert total(instance) == pytest.approx(programme(*instance), rel=1e-9, abs=0)


def test_a_budget_for_all_takes_all_that_may_stand() -> None:
    assert solve([1.0, 0.0, -1.0, 2.0], [5, 5, 5, 5], 10**30) == [0, 1, 3]
    assert solve([1.0, 0.0, 3.0, 2.0], [5, 5, 5, 5], 20, opens=[False, True, False, True]) == [1, 2, 3]


def test_one_giant_is_taken_or_left_as_a_whole() -> None:
    assert solve([10.0, *[1.0] * 9], [100, *[10] * 9], 100) == [0]
    assert solve([10.0, *[1.0] * 11], [100, *[9] * 11], 100) == list(range(1, 12))


def test_nothing_to_choose_from() -> None:
    assert solve([], [], 10) == []
    assert solve([-1.0, 2.0], [1, 11], 10) == []
    assert solve([1.0], [1], 10, opens=[False]) == []


def test_of_equal_units_the_latest_are_chosen() -> None:
    assert solve([1.0] * 6, [10] * 6, 30) == [3, 4, 5]
    assert solve([1.0] * 6, [10] * 6, 30, opens=[True, *[False] * 5]) == [0, 4, 5]
    assert solve([1.0] * 6, [10] * 6, 30, opens=[True, True, *[False] * 4]) == [1, 4, 5]


def test_units_without_a_score_fill_the_room_left_the_latest_first() -> None:
    assert solve([0.0] * 5, [10] * 5, 30) == [2, 3, 4]
    assert solve([0.0, 9.0, 0.0, 0.0, 0.0], [10] * 5, 30) == [1, 3, 4]
    assert solve([0.0] * 6, [10] * 6, 40, opens=[True, False] * 3) == [2, 3, 4, 5]


def test_a_unit_without_a_score_may_open() -> None:
    assert solve([0.0, 0.0, 9.0, 1.0], [10, 10, 10, 10], 20, opens=[True, True, False, False]) == [1, 2]


def test_a_first_unit_that_scores_more_is_worth_the_units_before_it() -> None:
    assert solve([0.0, 4.0, 5.0, 3.0], [20, 10, 10, 10], 20, opens=[True, False, True, False]) == [2, 3]
