"""Every case, for every policy that it applies to, at its own budget and at shares of our own count."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace
from typing import Any

import pytest

from cases import CASES, INSTRUCTION, SCORING, Case, quarter
from forgetless import BudgetError, Compaction, compact
from forgetless.benchmarks.stand_ins import STAND_INS
from forgetless.registry import policy_names

POLICIES = [name for name in policy_names(models=True) if name != "full"]
SHARES = (None, 0.3, 0.6, 0.9)
RUNS = [(case, policy, share) for case in CASES for policy in POLICIES for share in SHARES]
NAMES = [f"{case.name} | {policy} | {share or 'own'}" for case, policy, share in RUNS]
IDENTIFIER = re.compile(r"[\w./:-]{8,}")


def squeeze(case: Case, policy: str, share: float | None, **options: Any) -> Compaction:
    counter = quarter if share is None else None
    budget = case.budget
    if share is not None:
        whole = compact(case.messages, budget=10**9, policy="full", dialect=case.dialect)
        budget = int(whole.tokens * share)
    return compact(
        case.messages,
        budget=budget,
        policy=policy,
        dialect=case.dialect,
        counter=counter,
        pins=case.pins,
        instructions="learned",
        remind=False,
        **STAND_INS.get(policy, {}),
        **options,
    )


@pytest.mark.parametrize(("case", "policy", "share"), RUNS, ids=NAMES)
def test_case(case: Case, policy: str, share: float | None) -> None:
    before = copy.deepcopy(case.messages)
    try:
        done = squeeze(case, policy, share)
    except BudgetError as error:
        assert error.floor > error.budget
        assert share is not None or "newest message" in case.name or "together" in case.name
        return
    assert case.messages == before
    assert done.tokens <= done.budget
    out = json.dumps(done.messages, ensure_ascii=False)
    if case.identity and share is None and policy != "rea":  # which is eager
        assert done.request == case.messages
    if policy in SCORING:
        assert all(text in out for text in case.contains)
    assert all(text in out for text in case.kept)
    source = json.dumps(case.messages, ensure_ascii=False)
    assert all(found in source for found in set(IDENTIFIER.findall(out)) if any(map(str.isdigit, found)))
    whole = {json.dumps(m) for m in case.messages}
    if all(entry.form == "raw" for entry in done.ledger):
        assert {json.dumps(m) for m in done.messages} <= whole
    thinking_is_whole_or_gone(case.messages, done.messages)
    again = compact(
        done.request,
        budget=done.budget,
        policy=policy,
        dialect=case.dialect,
        counter=quarter if share is None else None,
        instructions="learned",
        remind=False,
        **STAND_INS.get(policy, {}),
    )
    assert again.request == done.request


def thinking_is_whole_or_gone(before: list[Any], after: list[Any]) -> None:
    def blocks(messages: list[Any]) -> list[str]:
        lists = [m["content"] for m in messages if isinstance(m.get("content"), list)]
        return [json.dumps(b) for blocks in lists for b in blocks if b.get("type") == "thinking"]

    assert set(blocks(after)) <= set(blocks(before))
    if blocks(before):
        assert blocks(after)[-1] == blocks(before)[-1], "the open step's thinking must stay"


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_standing_instruction_is_told_of_until_it_is_taken_back(policy: str, share: float | None) -> None:
    """The handed case 08, in which nothing is pinned by hand: the recogniser finds what has to stay."""
    case = next(case for case in CASES if "standing instruction" in case.name)
    done = squeeze(case, policy, share)
    assert done.instructions == (INSTRUCTION,)
    (entry,) = [entry for entry in done.ledger if 5 in entry.messages]
    assert (entry.form, entry.reason, entry.pinned) == ("raw", "instruction", True)
    assert case.messages[0] in done.messages
    assert done.messages[-1] == case.messages[-1]
    later = "From now on, forget the rule that you never order anything yourself."
    messages = [*case.messages[:-5], {"role": "user", "content": later}, *case.messages[-4:]]
    done = squeeze(replace(case, messages=messages, kept=()), policy, share)
    assert done.instructions == (later,)
    (entry,) = [entry for entry in done.ledger if 5 in entry.messages]
    assert (entry.reason, entry.pinned) == ("withdrawn", False)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_fact_is_no_instruction_and_stands_whole_or_not_at_all(policy: str, share: float | None) -> None:
    """The handed case 25: what does not look at the question keeps the fact byte for byte or leaves it out."""
    case = next(case for case in CASES if case.name.startswith("a fact from long ago"))
    done = squeeze(case, policy, share)
    assert done.instructions == ()
    assert done.messages[-1] == case.messages[-1]
    (entry,) = [entry for entry in done.ledger if 1 in entry.messages]
    assert (entry.form == "raw") == (case.messages[1] in done.messages)
    if policy in SCORING:
        assert entry.form == "raw"


@pytest.mark.parametrize("policy", POLICIES)
def test_a_newest_message_over_the_budget_is_cut_in_sight(policy: str) -> None:
    case = next(case for case in CASES if "newest message" in case.name)
    done = squeeze(case, policy, None, truncate=True)
    assert done.tokens <= case.budget
    newest = done.messages[-1]["content"]
    assert "tokens left out here" in newest
    source = case.messages[-1]["content"]
    head, tail = newest.split("\n[... ")[0], newest.split("...]\n")[1]
    assert len(head) > 100
    assert len(tail) > 100
    assert source.startswith(head)
    assert source.endswith(tail)
    assert done.ledger[-1].reason == "truncated"
    assert done.messages[0] == case.messages[0]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("budget", [1, 8, 100])
def test_a_floor_above_the_budget_is_one_error_with_the_numbers(policy: str, budget: int) -> None:
    case = CASES[0]
    floor = 4 + quarter("You plan walks.") + 4 + quarter("Take the cheaper one.")
    try:
        done = compact(case.messages, budget=budget, policy=policy, counter=quarter, **STAND_INS.get(policy, {}))
    except BudgetError as error:
        assert (error.floor, error.budget) == (floor, budget)
        assert error.largest == len(case.messages) - 1
        assert f"{floor}" in str(error)
    else:
        assert budget >= floor
        assert len(done.messages) >= 2
