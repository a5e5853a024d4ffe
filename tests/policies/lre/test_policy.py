"""The policy `lre`: the newest units first, within half of the room, or as the paper has it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetless import compact, load_policy
from forgetless.datasets.logs import units_of
from forgetless.errors import BudgetError, ConfigError
from forgetless.policies.coverage import Shares
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


def sharing(held: Sequence[set[int]], worth: Sequence[float]) -> Select:
    """A policy whose units are worth what they carry."""
    pairs = [(unit, part) for unit, parts in enumerate(held) for part in sorted(parts)]
    unit, part = np.array(pairs, np.int64).T
    shares = Shares(np.zeros(len(held)), np.array(worth), unit, part, np.ones(len(part), bool))
    return Select(lambda *_: shares, recent=2)


def test_what_a_kept_unit_carries_is_worth_nothing_in_another() -> None:
    units = talk(*[10] * 5)  # the last, a user's, has to stay
    held = [{0}, {0}, {1}, {1}, {1}]
    assert kept(sharing(held, [0.5, 1.0]), units, 30) == {0: "selected", 1: "selected", 4: "last_user"}
    held[4] = {0}
    assert kept(sharing(held, [0.5, 1.0]), units, 30) == {2: "selected", 3: "selected", 4: "last_user"}


def test_the_papers_ways_look_at_single_scores() -> None:
    units = talk(*[10] * 5)
    held = [{0}, {0}, {1}, {1}, {1}]
    assert kept(replace(sharing(held, [0.5, 1.0]), greedy=True), units, 30)[3] == "recent"


@given(
    conversation=any_dialect(),
    share=st.floats(0.05, 1.0),
    keep=st.integers(0, 6),
    greedy=st.booleans(),
    scorer=st.sampled_from(["agent", "conversation", None]),
)
def test_it_stays_within_the_budget_and_opens_with_a_user(
    conversation: tuple[str, Any], share: float, keep: int, greedy: bool, scorer: str | None
) -> None:
    dialect, messages = conversation
    total = compact(messages, budget=10**9, policy="full", dialect=dialect).tokens
    try:
        policy = load_policy("lre", scorer=scorer, keep=keep, paper_greedy=greedy)
        done = compact(messages, budget=max(1, int(total * share)), policy=policy, dialect=dialect)
    except BudgetError:
        return
    assert done.tokens <= done.budget
    speakers = [m.get("role") for m in done.messages if m.get("role") not in ("system", "developer")]
    assert not speakers or speakers[0] == "user"


def long_results(steps: int = 8) -> list[dict[str, Any]]:
    """A run whose calls name what the next ones use, and whose results are long and name nothing."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go on"}]
    for number in range(steps):
        call = {"name": "sh", "arguments": json.dumps({"do": f"cat /srv/job_{number}.txt"})}
        wire = {"id": f"c{number}", "type": "function", "function": call}
        messages.append({"role": "assistant", "content": None, "tool_calls": [wire]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": "nothing to see here, " * 60})
    return messages


def test_a_step_that_does_not_fit_leaves_its_call_and_says_so() -> None:
    messages = long_results()
    done = compact(messages, budget=1_000, policy="lre")
    forms = {entry.unit: (entry.form, entry.reason) for entry in done.ledger}
    assert forms[1] == ("compressed", "masked")
    assert forms[8] == ("raw", "open")
    result = next(m for m in done.messages if m.get("tool_call_id") == "c0")
    assert result["content"].startswith("[result of sh left out: ")
    assert all(m["tool_calls"] in [n.get("tool_calls") for n in messages] for m in done.messages if "tool_calls" in m)


def test_the_papers_ways_keep_steps_whole_or_not_at_all() -> None:
    done = compact(long_results(), budget=1_000, policy="lre", paper_greedy=True)
    assert {entry.form for entry in done.ledger} == {"raw", "omitted"}


def test_markers_are_counted_as_the_request_is() -> None:
    policy = load_policy("lre")
    for counter in (len, lambda text: 3 * len(text), len):  # what is known of one counter is not taken for another
        whole = compact(long_results(), budget=10**9, policy="full", counter=counter).tokens
        done = compact(long_results(), budget=whole // 3, policy=policy, counter=counter)
        assert done.tokens <= done.budget
        assert any(entry.form == "compressed" for entry in done.ledger)
        counted = compact(done.messages, budget=10**9, policy="full", counter=counter)
        assert counted.tokens == done.tokens


def test_options_are_checked() -> None:
    with pytest.raises(ConfigError, match="whole number"):
        load_policy("lre", keep=-1)
    with pytest.raises(ConfigError, match="cannot read"):
        load_policy("lre", scorer="/no/such/file.json")
