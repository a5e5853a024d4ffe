"""The promises that every policy keeps, whatever the conversation, dialect and budget (DESIGN.md, contracts)."""

from __future__ import annotations

import copy
import json
from collections import Counter as Bag
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetless import BudgetError, Compaction, compact, load_policy
from forgetless.benchmarks.stand_ins import STAND_INS
from forgetless.registry import load_dialect, policy_names
from forgetless.tokens import for_model
from strategies import any_dialect

VARIANTS: list[tuple[str, Any]] = [(name, STAND_INS.get(name, {})) for name in policy_names(models=True)] + [
    ("recent", {"turns": 2}),
    ("recent", {"turns": 1, "eager": True}),
]
every = pytest.mark.parametrize(
    ("policy", "options"),
    VARIANTS,
    ids=[f"{name}{'' if options is STAND_INS.get(name) else options or ''}" for name, options in VARIANTS],
)


def run(
    policy: str, options: dict[str, Any], dialect: str, messages: Any, share: float, **kw: Any
) -> Compaction | None:
    """The compaction at `share` of the whole, or None when the floor does not fit."""
    total = compact(messages, budget=10**9, policy="full", dialect=dialect).tokens
    try:
        return compact(messages, budget=max(1, int(total * share)), policy=policy, dialect=dialect, **options, **kw)
    except BudgetError as error:
        assert error.floor > error.budget
        return None


def recount(dialect: str, messages: Any) -> int:
    """Tokens of wire messages, counted from the wire alone."""
    counter = for_model()
    return sum(map(counter.message, load_dialect(dialect).parse(messages).messages))


def calls_and_results(dialect: str, messages: Any) -> tuple[Bag[str], Bag[str]]:
    """Ids of all calls and all results, in wire terms."""
    calls: Bag[str] = Bag()
    results: Bag[str] = Bag()
    for message in messages:
        calls.update(call["id"] for call in message.get("tool_calls") or ())
        if "tool_call_id" in message:
            results[message["tool_call_id"]] += 1
        if message.get("type") == "function_call":
            calls[message["call_id"]] += 1
        if message.get("type") == "function_call_output":
            results[message["call_id"]] += 1
        content = message.get("content")
        if dialect == "anthropic" and isinstance(content, list):
            calls.update(b["id"] for b in content if b["type"] == "tool_use")
            results.update(b["tool_use_id"] for b in content if b["type"] == "tool_result")
    return calls, results


def last_user_words(dialect: str, messages: Any) -> Any:
    """The content of the newest message with words of the user in it."""
    for message in reversed(messages):
        if message.get("role") != "user":
            continue
        content = message["content"]
        if dialect != "anthropic" or isinstance(content, str):
            return content
        words = [b for b in content if b["type"] != "tool_result"]
        if words:
            return words
    return None


@every
@given(conversation=any_dialect(), share=st.floats(0.02, 1.1))
def test_a_context_holds_together_and_its_ledger_is_true(
    policy: str, options: dict[str, Any], conversation: tuple[str, Any], share: float
) -> None:
    dialect, messages = conversation
    before = copy.deepcopy(messages)
    done = run(policy, options, dialect, messages, share)
    assert messages == before, "the input was changed"
    if done is None:
        return
    check_valid_and_within_budget(done, dialect, messages)
    check_the_ledger_is_a_partition(done, messages)
    check_what_is_kept_is_verbatim_and_in_order(done, dialect, messages)
    if load_policy(policy, **options).lazy and share <= 1:
        again = compact(done.request, budget=done.budget, policy=policy, dialect=dialect, **options)
        assert json.dumps(again.request) == json.dumps(done.request), "not a fixed point"


def check_valid_and_within_budget(done: Compaction, dialect: str, messages: Any) -> None:
    assert done.tokens <= done.budget
    assert recount(dialect, done.messages) <= done.tokens
    asked, answered = calls_and_results(dialect, messages)
    calls, results = calls_and_results(dialect, done.messages)
    assert all(results[i] == answered[i] for i in calls), "a call without its result, or a result twice"
    assert not results - calls, "a result without its call"
    assert all(calls[i] for i in asked if not answered[i]), "a pending call is gone"
    words = last_user_words(dialect, messages)
    assert words is None or last_user_words(dialect, done.messages) == words
    speakers = [m.get("role") for m in done.messages if m.get("role") not in ("system", "developer")]
    assert not speakers or speakers[0] == "user"
    assert [m for m in done.messages if m.get("role") in ("system", "developer")] == [
        m for m in messages if m.get("role") in ("system", "developer")
    ]


def check_the_ledger_is_a_partition(done: Compaction, messages: Any) -> None:
    ledger = done.ledger
    assert [entry.unit for entry in ledger] == list(range(len(ledger)))
    assert {i for entry in ledger for i in entry.messages} == set(range(len(messages)))
    assert sum(entry.tokens_before for entry in ledger) == done.tokens_before
    assert sum(entry.tokens_after for entry in ledger) == done.tokens
    for entry in ledger:
        assert entry.form in ("raw", "compressed", "omitted")
        assert entry.reason
        assert (entry.form == "omitted") == (entry.tokens_after == 0 and entry.tokens_before > 0)
        if entry.form == "raw":
            assert entry.tokens_after == entry.tokens_before
        if entry.form == "compressed" and entry.reason != "summary":
            assert entry.tokens_after < entry.tokens_before
        assert not (entry.pinned and entry.form == "omitted")
    told = [entry for entry in ledger if entry.reason == "summary"]
    assert not told or sum(entry.tokens_after for entry in told) < sum(entry.tokens_before for entry in told)


def check_what_is_kept_is_verbatim_and_in_order(done: Compaction, dialect: str, messages: Any) -> None:
    compressed = any(entry.form == "compressed" for entry in done.ledger)
    at = 0
    for message in done.messages:
        while at < len(messages) and not same_place(dialect, message, messages[at], compressed):
            at += 1
        assert at < len(messages), f"altered, or out of order: {message!r}"
        at += 1


def same_place(dialect: str, kept: Any, source: Any, compressed: bool) -> bool:
    """Whether `kept` is `source`, or the part of it that belongs to kept units, or its compressed form."""
    if json.dumps(kept) == json.dumps(source):
        return True
    if compressed and {k: v for k, v in kept.items() if k != "content" and k != "output"} == {
        k: v for k, v in source.items() if k != "content" and k != "output"
    }:
        return json.dumps(kept) != json.dumps(source)
    if dialect == "anthropic" and kept["role"] == source["role"] == "user" and isinstance(source["content"], list):
        return all(block in source["content"] for block in kept["content"])
    return False


@every
@given(conversation=any_dialect(), share=st.floats(0.02, 1.1), data=st.data())
def test_pins_survive_the_same_input_gives_the_same_output_and_what_fits_stays(
    policy: str, options: dict[str, Any], conversation: tuple[str, Any], share: float, data: st.DataObject
) -> None:
    dialect, messages = conversation
    if load_policy(policy, **options).lazy:
        whole = run(policy, options, dialect, messages, 1.0)
        assert whole is not None
        assert json.dumps(whole.request) == json.dumps(messages)
    pins = data.draw(st.sets(st.integers(0, len(messages) - 1), max_size=2))
    done = run(policy, options, dialect, messages, share, pins=pins)
    if done is None:
        return
    for pin in pins:
        assert all(e.form == "raw" and e.pinned for e in done.ledger if pin in e.messages)
    again = run(policy, options, dialect, messages, share, pins=pins)
    assert again is not None
    assert json.dumps(again.as_dict()) == json.dumps(done.as_dict())


@every
@given(conversation=any_dialect(), share=st.floats(0.02, 0.6))
def test_truncation_cuts_only_what_must_stay_and_says_so(
    policy: str, options: dict[str, Any], conversation: tuple[str, Any], share: float
) -> None:
    dialect, messages = conversation
    done = run(policy, options, dialect, messages, share, truncate=True)
    if done is None:
        return
    assert done.tokens <= done.budget
    cut = [entry for entry in done.ledger if entry.reason == "truncated"]
    assert all(entry.form == "compressed" and entry.pinned for entry in cut)
    if cut:
        assert "tokens left out here" in json.dumps(done.messages, ensure_ascii=False)
