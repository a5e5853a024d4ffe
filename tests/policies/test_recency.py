"""Recent and fifo: exactly the tail that their definitions say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetless import BudgetError, ConfigError, compact, load_policy
from forgetless.policies.base import floor
from forgetless.registry import load_dialect
from forgetless.splitting import split
from forgetless.tokens import for_model
from strategies import chat


def valid(units: list[Any], kept: set[int]) -> bool:
    first = next((u for u in units if u.kind != "system" and u.index in kept), None)
    return first is None or first.kind == "user"


@given(chat(), st.floats(0.05, 0.95))
def test_fifo_keeps_the_longest_tail_that_fits_and_opens_with_a_user(messages: list[Any], share: float) -> None:
    units = split(load_dialect("chat").parse(messages).messages, for_model())
    pinned = set(floor(units))
    budget = max(1, int(sum(u.tokens for u in units) * share))
    tails = [pinned | set(range(start, len(units))) for start in range(len(units) + 1)]
    fitting = [t for t in tails if sum(units[i].tokens for i in t) <= budget and valid(units, t)]
    try:
        done = load_policy("fifo")(units, budget)
    except BudgetError:
        assert sum(units[i].tokens for i in pinned) > budget
        return
    kept = {e.unit for e in done.ledger if e.form == "raw"}
    assert kept == max(fitting, key=len)


@given(chat(), st.integers(1, 4), st.floats(0.05, 0.95), st.booleans())
def test_recent_is_fifo_within_the_last_turns(messages: list[Any], turns: int, share: float, eager: bool) -> None:
    units = split(load_dialect("chat").parse(messages).messages, for_model())
    budget = max(1, int(sum(u.tokens for u in units) * share))
    try:
        done = load_policy("recent", turns=turns, eager=eager)(units, budget)
        fifo = load_policy("fifo")(units, budget)
    except BudgetError:
        return
    users = [u.index for u in units if u.kind == "user"]
    start = users[-turns] if len(users) >= turns else 0
    kept = {e.unit for e in done.ledger if e.form == "raw"}
    longest = {e.unit for e in fifo.ledger if e.form == "raw"}
    assert kept == {i for i in longest if i >= start or i in floor(units)}


def test_eager_recent_cuts_under_the_budget_and_says_why() -> None:
    messages = [{"role": r, "content": f"{r} {n}"} for n in range(5) for r in ("user", "assistant")]
    done = compact(messages, budget=10_000, policy="recent", turns=2, eager=True)
    assert done.messages == messages[-4:]
    assert {e.reason for e in done.ledger if e.form == "omitted"} == {"older"}
    assert compact(messages, budget=10_000, policy="recent", turns=2).messages == messages


def test_recent_wants_at_least_one_turn() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        load_policy("recent", turns=0)
