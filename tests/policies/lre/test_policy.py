"""The policy `lre`: the newest units first, within half of the room, or as the paper has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetless import compact, load_policy
from forgetless.datasets.logs import units_of
from forgetless.errors import BudgetError, ConfigError
from forgetless.policies.knapsack import by_density
from forgetless.policies.select import Select
from forgetless.units import Unit
from strategies import any_dialect


def talk(*lengths: int) -> list[Unit]:
    """User and assistant by turns; a unit costs its length and 4 tokens."""
    return units_of(
        [{"role": "user" if i % 2 == 0 else "assistant", "content": "x" * (n - 4)} for i, n in enumerate(lengths)]
    )


def first_best(units: Sequence[Unit], query: Unit | None = None) -> list[float]:
    return [1.0 / (1 + unit.index) for unit in units]


def kept(policy: Select, units: list[Unit], budget: int) -> dict[int, str]:
    return {entry.unit: entry.reason for entry in policy(units, budget).ledger if entry.form == "raw"}


def test_the_newest_stay_while_they_fit_in_half_of_the_room() -> None:
    units = talk(*[10] * 11)  # the last, a user's, has to stay
    # 50 tokens beside it; 25 for the newest: 9 and 8, which is a user's and may open the context
    assert kept(Select(first_best, recent=5), units, 60) == {
        0: "selected", 1: "selected", 2: "selected", 8: "recent", 9: "recent", 10: "last_user",
    }  # fmt: skip


def test_what_opens_the_context_before_the_newest_is_kept_with_them() -> None:
    units = talk(*[10] * 11)
    found = kept(Select(lambda units, _=None: [-1.0] * len(units), recent=1), units, 60)
    assert found == {8: "opener", 9: "recent", 10: "last_user"}


def test_the_newest_give_way_when_their_opener_does_not_fit() -> None:
    units = talk(90, 10, 10)
    assert kept(Select(first_best, recent=1), units, 40) == {2: "last_user"}


def test_the_papers_window_is_outside_the_budget() -> None:
    units = talk(*[10] * 11)
    context = Select(first_best, recent=5, outside=True)(units, 30)
    stays = {entry.unit for entry in context.ledger if entry.form == "raw"}
    assert {5, 6, 7, 8, 9, 10} <= stays
    assert context.tokens > context.budget
    assert {0, 1} <= stays  # the budget is for the older ones


def test_the_papers_choice_goes_by_score_per_token() -> None:
    assert by_density([6.0, 5.0, 5.0], [4, 5, 5], 10) == [0, 2]  # the best selection is 1 and 2
    assert by_density([9.0, 1.0, -1.0], [1, 1, 1], 3, opens=[False, True, True]) == [1]
    assert by_density([9.0], [1], 3, opens=[False]) == []
    units = talk(*[10] * 11)
    assert 0 in kept(Select(first_best, greedy=True), units, 40)


@given(conversation=any_dialect(), share=st.floats(0.05, 1.0), keep=st.integers(0, 6), greedy=st.booleans())
def test_it_stays_within_the_budget_and_opens_with_a_user(
    conversation: tuple[str, Any], share: float, keep: int, greedy: bool
) -> None:
    dialect, messages = conversation
    total = compact(messages, budget=10**9, policy="full", dialect=dialect).tokens
    try:
        done = compact(
            messages, budget=max(1, int(total * share)), policy="lre", dialect=dialect, keep=keep, paper_greedy=greedy
        )
    except BudgetError:
        return
    assert done.tokens <= done.budget
    speakers = [m.get("role") for m in done.messages if m.get("role") not in ("system", "developer")]
    assert not speakers or speakers[0] == "user"


def test_options_are_checked() -> None:
    with pytest.raises(ConfigError, match="whole number"):
        load_policy("lre", keep=-1)
    with pytest.raises(ConfigError, match="cannot read"):
        load_policy("lre", scorer="/no/such/file.json")
