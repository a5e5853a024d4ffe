"""Sessions: an exact prefix between evictions, blocks freed at once, counts corrected by what the provider says."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import _filler, _system, quarter
from forgetless import BudgetError, ConfigError, Session, compact
from forgetless.registry import load_policy, policy_names
from strategies import chat

DIARY = [_system("You keep a diary."), *_filler("diary", 30)]
LAZY = [name for name in policy_names() if name != "full" and load_policy(name).lazy]


def prefix(before: list[Any], after: list[Any]) -> bool:
    return json.dumps(after[: len(before)]) == json.dumps(before)


@pytest.mark.parametrize("policy", LAZY)
def test_between_evictions_what_was_sent_is_a_prefix_of_what_is_sent(policy: str) -> None:
    session = Session(budget=900, policy=policy, counter=quarter)
    before: list[Any] = []
    last_evictions = 0
    reused: list[int] = []
    for end in range(2, len(DIARY) + 1, 2):
        done = session.prepare(DIARY[:end])
        assert done.tokens <= 900
        assert sum(e.tokens_after for e in done.ledger) == done.tokens
        if session.evictions == last_evictions:
            assert prefix(before, done.messages)
            assert done.reused_tokens == sum(e.tokens_after for e in done.ledger) - new_tokens(done, before)
        last_evictions = session.evictions
        reused.append(done.reused_tokens)
        before = done.messages
    assert 2 <= session.evictions <= len(reused) // 2
    assert sum(reused) > 0


def new_tokens(done: Any, before: list[Any]) -> int:
    return sum(4 + quarter(m["content"]) for m in done.messages[len(before) :])


def test_the_low_mark_decides_how_often_it_evicts() -> None:
    counts = []
    for low in (0.95, 0.7, 0.4):
        session = Session(budget=1200, low=low, policy="fifo", counter=quarter)
        for end in range(2, len(DIARY) + 1, 2):
            session.prepare(DIARY[:end])
        counts.append(session.evictions)
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1]


@given(chat(pending=False), st.floats(0.2, 1.2), st.sampled_from(LAZY))
def test_every_request_of_a_session_is_valid_and_within_budget(messages: list[Any], share: float, policy: str) -> None:
    total = compact(messages, budget=10**9, policy="full").tokens
    session = Session(budget=max(1, int(total * share)), policy=policy)
    ends = [i + 1 for i, m in enumerate(messages) if m["role"] in ("user", "tool")]
    for end in ends:
        if end < len(messages) and messages[end]["role"] == "tool":
            continue  # a client calls the model when all results are in
        try:
            done = session.prepare(messages[:end])
        except BudgetError:
            continue
        assert done.tokens <= done.budget
        ids = {c["id"] for m in done.messages for c in m.get("tool_calls") or ()}
        assert ids == {m["tool_call_id"] for m in done.messages if m["role"] == "tool"}
        speakers = [m["role"] for m in done.messages if m["role"] not in ("system", "developer")]
        assert not speakers or speakers[0] == "user"


def test_an_edited_history_is_chosen_for_anew() -> None:
    session = Session(budget=900, policy="fifo", counter=quarter)
    for end in range(2, 30, 2):
        session.prepare(DIARY[:end])
    edited = [*DIARY[:3], {"role": "user", "content": "Something else"}, *DIARY[4:20]]
    done = session.prepare(edited)
    assert done.tokens <= 900
    assert done.reused_tokens <= 10


def test_usage_corrects_later_counts() -> None:
    session = Session(budget=1000, policy="fifo", counter=quarter)
    done = session.prepare(DIARY[:6])
    reply = session.observe({"role": "assistant", "content": "ok"}, {"prompt_tokens": done.tokens * 2})
    assert reply.message == {"role": "assistant", "content": "ok"}
    assert reply.input_tokens == done.tokens * 2
    assert session.correction == 1.5
    assert session.prepare(DIARY[:12]).tokens <= 1000 / 1.5
    anthropic = {"input_tokens": 10, "cache_read_input_tokens": 500, "cache_creation_input_tokens": 90}
    assert session.observe(None, anthropic).input_tokens == 600
    assert session.observe(None).input_tokens is None
    assert session.observe(None, SimpleNamespace(prompt_tokens=7, total_tokens=9)).input_tokens == 7
    assert session.observe(None, 5).input_tokens is None
    proxy = {"prompt_tokens": 104, "cache_read_input_tokens": 90, "input_tokens": 14}
    assert session.observe(None, proxy).input_tokens == 104, "prompt_tokens is the sum already"
    assert session.observe(None, {"prompt_tokens": -3, "input_tokens": True}).input_tokens is None


def test_a_floor_above_the_budget_changes_nothing_in_the_session() -> None:
    session = Session(budget=300, policy="bm25", counter=quarter)
    first = session.prepare(DIARY[:8])
    with pytest.raises(BudgetError):
        session.prepare([*DIARY[:8], {"role": "user", "content": "x" * 4000}])
    assert session.prepare(DIARY[:8]).messages == first.messages
    short = Session(budget=300, policy="bm25", counter=quarter, truncate=True)
    assert short.prepare([*DIARY[:8], {"role": "user", "content": "x" * 4000}]).tokens <= 300


def test_an_eager_policy_chooses_at_every_call() -> None:
    session = Session(budget=10**6, policy="recent", turns=2, eager=True)
    done = session.prepare(DIARY[:21])
    assert len(done.messages) == 5
    assert session.evictions == 1


def test_every_turn_chooses_for_each_question() -> None:
    facts = [f"The code of room {n} is {n * 7919 % 9973}." for n in range(40)]
    messages: list[dict[str, Any]] = []
    for n, fact in enumerate(facts):
        messages += [{"role": "user", "content": fact}, {"role": "assistant", "content": f"Noted, number {n}."}]
    once, anew = (Session(budget=400, policy="bm25", counter=quarter, every_turn=every) for every in (False, True))
    found = []
    for session in (once, anew):
        session.prepare([*messages, {"role": "user", "content": "Thanks."}])
        asked = [*messages, {"role": "user", "content": "What is the code of room 3?"}]
        found.append(any(m["content"] == facts[3] for m in session.prepare(asked).messages))
    assert found == [False, True]


def test_a_wrong_mark_is_refused() -> None:
    with pytest.raises(ConfigError, match="low water mark"):
        Session(budget=100, low=0)


def test_an_edit_of_what_was_left_out_and_a_rewind_are_chosen_for_anew() -> None:
    for policy in LAZY:
        session = Session(budget=900, policy=policy, counter=quarter)
        for end in range(2, 42, 2):
            session.prepare(DIARY[:end])
        assert session.evictions
        edited = [*DIARY[:4], {"role": "assistant", "content": "Quite another answer"}, *DIARY[5:40]]
        done = session.prepare(edited)
        assert done.tokens <= 900
        assert [m["role"] for m in done.messages][:2] == ["system", "user"]
        assert session.prepare(DIARY[:6]).messages == DIARY[:6], "what fits again is sent whole"


def test_a_large_floor_does_not_make_every_call_evict() -> None:
    messages = [_system("rule " * 550), *_filler("large", 60)]  # about two thirds of the budget
    session = Session(budget=1000 + quarter("rule " * 550), policy="fifo", counter=quarter)
    calls = 0
    for end in range(2, len(messages) + 1, 2):
        session.prepare(messages[:end])
        calls += 1
    assert session.evictions <= calls // 3


def test_masked_results_carry_the_cache_marks_of_today() -> None:
    def result(n: int, mark: bool) -> dict[str, Any]:
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": f"t{n}", "content": f"seen {n} " * 60}
        return {"role": "user", "content": [{**block, "cache_control": {"type": "ephemeral"}} if mark else block]}

    def history(steps: int) -> list[dict[str, Any]]:
        out: list[dict[str, Any]] = [{"role": "user", "content": "Look."}]
        for n in range(steps):
            use = {"type": "tool_use", "id": f"t{n}", "name": "look", "input": {}}
            out += [{"role": "assistant", "content": [use]}, result(n, mark=n == steps - 1)]
        return out

    session = Session(budget=800, policy="masking", counter=quarter)
    for steps in range(1, 30):
        done = session.prepare(history(steps))
        assert json.dumps(done.messages).count("cache_control") == 1
        assert "cache_control" in done.messages[-1]["content"][0]
    assert session.evictions
    assert any(e.reason == "masked" for e in done.ledger)


def test_a_cut_newest_message_stays_as_it_was_cut() -> None:
    session = Session(budget=400, policy="bm25", counter=quarter, truncate=True)
    messages = [*DIARY[:2], {"role": "user", "content": " ".join(f"w{n}" for n in range(3000))}]
    first = session.prepare(messages)
    use = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages += [
        {"role": "assistant", "content": None, "tool_calls": [use]},
        {"role": "tool", "tool_call_id": "c", "content": "short"},
    ]
    second = session.prepare(messages)
    assert prefix(first.messages, second.messages)
    assert session.evictions == 1
    assert [e.reason for e in second.ledger if e.form == "compressed"] == ["truncated"]


def test_another_model_in_the_same_session_is_counted_by_its_own_measure() -> None:
    session = Session(budget=3000, policy="masking")
    body = {"model": "gpt-4o", "messages": DIARY[:40]}
    session.prepare(body)
    other = session.prepare({**body, "model": "claude-sonnet-4-5"})
    assert other.tokens <= 3000
    assert sum(e.tokens_after for e in other.ledger) == other.tokens
    assert {e.form for e in other.ledger} <= {"raw", "omitted"}


def test_wrong_names_are_told_at_once() -> None:
    for options in ({"policy": "nope"}, {"policy": "recent", "turn": 2}, {"dialect": "chatt"}):
        with pytest.raises(ConfigError):
            Session(budget=100, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", ["masking", "fifo", "bm25"])
def test_a_session_goes_on_in_another_process_from_what_it_dumped(policy: str) -> None:
    history: list[dict[str, Any]] = [{"role": "user", "content": "Look."}]
    for n in range(40):
        use = {"type": "tool_use", "id": f"t{n}", "name": "look", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": f"seen {n} " * 60}
        history += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    one = Session(budget=1500, policy=policy, counter=quarter)
    for end in range(1, 42, 2):
        one.prepare(history[:end])
    assert one.evictions
    state = json.loads(json.dumps(one.dump()))
    other = Session(budget=1500, policy=policy, counter=quarter)
    other.load(state)
    for end in range(43, 48, 2):
        assert other.prepare(history[:end]).request == one.prepare(history[:end]).request
        assert other.evictions == one.evictions
    stranger = Session(budget=1500, policy=policy, counter=quarter)
    stranger.load({**state, "version": 0})
    assert stranger.evictions == 0
    edited = [{"role": "user", "content": "Look elsewhere."}, *history[1:5]]
    other.load(state)
    assert other.prepare(edited).request == edited, "decisions on another history do not hold"
