"""Standing instructions stay word for word under every policy, in every dialect, until they end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forgetless import BudgetError, Session, compact, load_policy
from forgetless.benchmarks.stand_ins import STAND_INS
from forgetless.registry import load_dialect, policy_names
from forgetless.units import text_of
from strategies import any_dialect
from wishes import cued, talk

POLICIES = [name for name in policy_names(models=True) if name != "full"]

every = pytest.mark.parametrize("policy", POLICIES)
dialects = pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])


def squeezed(messages: Any, policy: str, share: float = 0.2, **options: Any) -> Any:
    total = compact(messages, budget=10**9, policy="full", **options).tokens
    given = STAND_INS.get(policy, {})
    return compact(
        messages, budget=int(total * share), policy=policy, instructions=cued, remind=False, **given, **options
    )


@every
@dialects
def test_an_instruction_stays_word_for_word_and_stands_in_the_ledger(policy: str, dialect: str) -> None:
    rule = "For the rest of this session: never send a message yourself, only leave drafts."
    done = squeezed(talk(rule), policy, dialect=dialect)
    assert rule in [m["content"] for m in done.messages]
    assert done.instructions == (rule,)
    assert done.tokens <= done.budget
    (entry,) = [entry for entry in done.ledger if 2 in entry.messages]
    assert (entry.form, entry.pinned, entry.reason) == ("raw", True, "instruction")
    again = compact(
        done.request,
        budget=done.budget,
        policy=policy,
        dialect=dialect,
        instructions=cued,
        remind=False,
        **STAND_INS.get(policy, {}),
    )
    assert again.request == done.request


@every
def test_of_a_long_message_the_sentence_stays(policy: str) -> None:
    rule = "From now on answer in bullet points."
    long = f"I am planning a trip to Oslo and to {'Bergen and ' * 150}Tromsø. {rule} What should I see first?"
    done = squeezed(talk(long), policy, 0.3)
    (entry,) = [entry for entry in done.ledger if 2 in entry.messages]
    texts = json.dumps(done.messages)
    assert rule in texts
    if entry.form == "compressed":
        assert (entry.pinned, entry.reason) == (True, "instruction")
        assert f"[…] {rule} […]" in [m["content"] for m in done.messages]
        assert 0 < entry.tokens_after < entry.tokens_before
    assert done.tokens == compact(done.request, budget=10**9, policy="full").tokens <= done.budget


@every
def test_what_was_replaced_or_taken_back_does_not_stay_for_its_own_sake(policy: str) -> None:
    said = (
        "Always answer in French.",
        "Never use more than ten words.",
        "From now on write in Spanish instead.",
        "Please forget the limit of ten words.",
    )
    done = squeezed(talk(*said), policy)
    assert done.instructions == (said[2], said[3])
    told = {entry.messages[0]: (entry.reason, entry.pinned) for entry in done.ledger}
    assert (told[2], told[4]) == (("replaced", False), ("withdrawn", False))
    assert told[6] == told[8] == ("instruction", True)


@every
def test_one_for_some_replies_ends_with_them(policy: str) -> None:
    rule = "For the next three replies, never use a list."
    short, over = squeezed(talk(rule, after=1), policy, 0.5), squeezed(talk(rule, after=9), policy)
    assert short.instructions == (rule,)
    assert over.instructions == ()
    assert [entry.reason for entry in over.ledger if 2 in entry.messages] == ["expired"]


def test_instructions_never_make_a_request_fail() -> None:
    rules = [f"Never mention the topic number {n}, whatever happens in this talk." for n in range(40)]
    messages = talk(*rules)
    bare = compact(messages[-1:], budget=10**9, policy="full").tokens
    done = compact(messages, budget=bare + 60, policy="fifo", instructions=cued)
    assert done.tokens <= done.budget
    assert done.instructions == (rules[-1],)


@pytest.mark.parametrize("policy", ["summary", "acon"])
def test_where_a_summary_stands_the_ledger_says_so_also_when_an_instruction_there_has_ended(policy: str) -> None:
    messages = [
        {"role": "user", "content": "Always answer in French, please."},
        *talk("Please forget to answer in French.")[1:],
    ]
    done = squeezed(messages, policy, 0.3)
    assert done.messages[0]["content"].startswith("[Summary of ")
    assert (done.ledger[0].form, done.ledger[0].reason) == ("compressed", "summary")


def test_one_in_a_message_that_only_opens_stays_when_another_opens_in_its_place() -> None:
    messages = talk("Never shout at anybody, please.", "Always answer in French.", after=2)
    messages += talk(after=6)[2:]
    total = compact(messages, budget=10**9, policy="full").tokens
    for share in (0.3, 0.4, 0.6):
        done = compact(messages, budget=int(total * share), policy="length", pins=[5], instructions=cued)
        sent = [m["content"] for m in done.messages]
        assert done.instructions == ("Never shout at anybody, please.", "Always answer in French.")
        assert all(words in sent for words in done.instructions)


@dialects
def test_in_a_session_it_is_in_every_request_until_it_is_taken_back(dialect: str) -> None:
    rule = "From now on never send a message yourself."
    messages = talk(rule, after=0)[:-1]
    session = Session(budget=900, policy="fifo", dialect=dialect, instructions=cued)
    for turn in range(60):
        messages.append({"role": "user", "content": f"Step {turn}: " + "harbour garden window " * 12})
        if turn == 40:
            messages[-1] = {"role": "user", "content": "Please forget what I said: never send a message yourself."}
        done = session.prepare(messages)
        assert turn > 40 or rule in [m["content"] for m in done.messages]
        assert not session.evictions or turn > 40 or done.instructions == (rule,)
        messages.append({"role": "assistant", "content": f"Reply {turn}: " + "marble timber pepper " * 10})
    assert session.evictions > 5
    assert rule not in [m["content"] for m in done.messages]


def test_under_the_budget_nothing_is_judged() -> None:
    def refuses(text: str) -> Sequence[tuple[int, int]]:
        raise AssertionError

    messages = talk("Never shout.")
    assert compact(messages, budget=10**6, instructions=refuses).request == messages


@settings(max_examples=15)
@given(any_dialect(), st.floats(0.1, 0.9))
@every
def test_whatever_is_recognised_every_promise_holds(policy: str, case: Any, share: float) -> None:
    dialect, messages = case
    total = compact(messages, budget=10**9, policy="full", dialect=dialect).tokens
    budget = max(1, int(total * share))
    options = STAND_INS.get(policy, {})
    try:
        done = compact(
            messages, budget=budget, policy=policy, dialect=dialect, instructions=cued, remind=False, **options
        )
    except BudgetError:
        with pytest.raises(BudgetError):
            compact(messages, budget=budget, policy=policy, dialect=dialect, **options)
        return
    assert done.tokens <= budget
    assert [entry.unit for entry in done.ledger] == list(range(len(done.ledger)))
    sent = [text_of(part) for m in load_dialect(dialect).parse(done.request).messages for part in m.parts]
    assert all(any(words in text for text in sent) for words in done.instructions)
    if load_policy(policy, **options).lazy:
        again = compact(
            done.request, budget=budget, policy=policy, dialect=dialect, instructions=cued, remind=False, **options
        )
        assert again.request == done.request
