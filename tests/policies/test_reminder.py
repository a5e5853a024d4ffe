"""Standing instructions said again beside the question: word for word, within the budget, and gone from the next."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forgetless import ConfigError, Session, compact
from forgetless.benchmarks.stand_ins import STAND_INS
from forgetless.registry import policy_names
from strategies import any_dialect
from wishes import cued, talk

RULE = "From now on answer in bullet points."
BACK = "Forget the bullet points."

every = pytest.mark.parametrize("policy", policy_names(models=True))
dialects = pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])


@every
@dialects
@pytest.mark.parametrize("budget", [400, 10**6])
def test_the_words_stand_beside_the_question(policy: str, dialect: str, budget: int) -> None:
    budget = 10**6 if policy == "full" else budget
    given = STAND_INS.get(policy, {})
    done = compact(talk(RULE), budget=budget, policy=policy, dialect=dialect, instructions=cued, remind=True, **given)
    question = done.messages[-1]["content"]
    assert question.startswith("Answer the landlord about the window.\n\n")
    assert question.count(RULE) == 1
    assert done.instructions == (RULE,)
    assert done.tokens == compact(done.request, budget=10**9, policy="full", dialect=dialect).tokens <= budget
    assert sum(entry.tokens_after for entry in done.ledger) == done.tokens
    (entry,) = [entry for entry in done.ledger if 2 in entry.messages]
    assert entry.form != "omitted" or entry.reason == "instruction"
    again = compact(done.request, budget=budget, policy="full", dialect=dialect, instructions=cued, remind=True)
    assert again.request == done.request


@pytest.mark.parametrize(
    "said",
    [
        talk(RULE, BACK),  # taken back
        talk("Which bullet points?"),  # never given
        [{"role": "user", "content": RULE}],  # it is the question
        [{"role": "user", "content": RULE}, {"role": "user", "content": "How are you?"}],  # it has just been said
    ],
)
def test_nothing_is_said_that_does_not_hold_or_stands_there_already(said: list[dict[str, Any]]) -> None:
    done = compact(said, budget=10**6, policy="full", dialect="chat", instructions=cued, remind=True)
    assert [m["content"] for m in done.messages[:-1]] == [m["content"] for m in said[:-1]]
    assert RULE not in done.messages[-1]["content"].removeprefix(RULE)


@pytest.mark.parametrize("remind", [True, False])
def test_what_has_ended_stands_in_the_ledger(remind: bool) -> None:
    said = talk(RULE, BACK)
    options: dict[str, Any] = {"policy": "fifo", "instructions": cued, "remind": remind, "dialect": "chat"}
    ledgers = [compact(said, budget=400, **options).ledger, Session(budget=400, **options).prepare(said).ledger]
    for ledger in ledgers:
        assert {at: entry.reason for entry in ledger for at in entry.messages}[2] == "withdrawn"


def test_what_has_no_room_is_not_said() -> None:
    said = talk(RULE, after=0)
    least = compact(said[-1:], budget=10**6, policy="full", dialect="chat").tokens
    done = compact(said, budget=least + 3, policy="fifo", dialect="chat", instructions=cued, remind=True)
    assert done.messages == said[-1:]
    assert done.instructions == ()


def test_a_picture_can_be_the_question() -> None:
    picture = {
        "role": "user",
        "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}],
    }
    done = compact(
        [*talk(RULE)[:-1], picture], budget=10**6, policy="full", dialect="chat", instructions=cued, remind=True
    )
    image, words = done.messages[-1]["content"]
    assert image == picture["content"][0]
    assert RULE in words["text"]


def test_a_cache_mark_stays_where_it_can_be_read_again() -> None:
    mark = {"type": "text", "text": "Well?", "cache_control": {"type": "ephemeral"}}
    said = [*talk(RULE)[:-1], {"role": "user", "content": [mark]}]
    done = compact(said, budget=10**6, policy="full", dialect="anthropic", instructions=cued, remind=True)
    question, words = done.messages[-1]["content"]
    assert question == mark
    assert RULE in words["text"]
    assert "cache_control" not in words


@dialects
def test_a_session_says_them_beside_each_newest_question_alone(dialect: str) -> None:
    session = Session(budget=900, policy="fifo", dialect=dialect, instructions=cued, remind=True)
    said: list[dict[str, Any]] = [{"role": "user", "content": RULE}, {"role": "assistant", "content": "Yes."}]
    evictions = []
    for turn in range(30):
        said.append({"role": "user", "content": f"Letter {turn}: " + "harbour garden window " * 12})
        done = session.prepare(said)
        evictions.append(session.evictions)
        *before, question = done.messages
        assert question["content"].startswith(said[-1]["content"])
        assert RULE in question["content"]
        assert before == [message for message in said[:-1] if message in before]
        assert done.tokens <= 900
        assert done.tokens == compact(done.request, budget=10**9, policy="full", dialect=dialect).tokens
        said.append({"role": "assistant", "content": f"Reply {turn}."})
    assert 0 < evictions[-1] < 10  # decisions hold in between
    assert evictions[:3] == [0, 0, 0]


def test_a_session_goes_on_beside_results() -> None:
    """Words beside tool results are no question, and the question before them may be long gone from the end."""
    session = Session(budget=4_000, policy="fifo", dialect="anthropic", instructions=cued, remind=True)
    said: list[dict[str, Any]] = [
        {"role": "user", "content": RULE},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": "Look it up."},
    ]
    for turn in range(6):
        call = {"type": "tool_use", "id": f"t{turn}", "name": "look", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"t{turn}", "content": "harbour " * 40}
        said.append({"role": "assistant", "content": [call]})
        said.append({"role": "user", "content": [result, {"type": "text", "text": f"Reminder {turn}."}]})
        done = session.prepare({"model": "m", "max_tokens": 100, "messages": said})
        texts = [m for m in done.messages if RULE in str(m["content"])]
        assert str(texts[-1]["content"]).count("Look it up.") == 1
        if turn:
            assert done.reused_tokens > 0


@given(any_dialect(), st.integers(min_value=1, max_value=100))
@settings(max_examples=40)
def test_any_history_takes_them(history: tuple[str, dict[str, Any]], share: int) -> None:
    dialect, body = history
    total = compact(body, budget=10**9, policy="full", dialect=dialect).tokens
    budget = max(1, total * share // 100)
    plain: Any = None
    try:
        plain = compact(body, budget=budget, policy="fifo", dialect=dialect)
    except ValueError:
        return
    done = compact(body, budget=budget, policy="fifo", dialect=dialect, instructions=cued, remind=True)
    assert done.tokens <= budget
    assert done.tokens == compact(done.request, budget=10**9, policy="full", dialect=dialect).tokens
    if not done.instructions:
        assert done.request == plain.request
    session = Session(budget=budget, policy="fifo", dialect=dialect, instructions=cued, remind=True)
    assert session.prepare(body).request == session.prepare(body).request


@pytest.mark.parametrize("policy", ["rea", "fifo"])
def test_only_rea_says_them_again_unasked(policy: str) -> None:
    said = talk(RULE)
    done = compact(said, budget=10**6, policy=policy, instructions=cued)
    session = Session(budget=10**6, policy=policy, instructions=cued).prepare(said)
    for made in (done, session):
        assert (RULE in made.messages[-1]["content"]) == (policy == "rea")


def test_under_frozen_decisions_a_question_without_words_is_the_one_that_they_stand_beside() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    said = [*talk(RULE)[:-1], {"role": "user", "content": [image]}]
    said.append({"role": "assistant", "content": None, "tool_calls": [call]})
    budget = compact(said, budget=10**6, policy="full", dialect="chat").tokens * 9 // 10
    session = Session(budget=budget, policy="fifo", dialect="chat", instructions=cued, remind=True)
    first, again = session.prepare(said), session.prepare(said)
    assert RULE in str(again.messages[-2]["content"])
    assert again.request == first.request


def test_a_reminder_needs_something_to_be_reminded_of() -> None:
    with pytest.raises(ConfigError, match="instructions"):
        compact(talk(RULE), budget=400, policy="fifo", remind=True)
    with pytest.raises(ConfigError, match="instructions"):
        Session(budget=400, policy="rea", remind=True, instructions="none")
    assert compact(talk(RULE), budget=10**6, policy="rea").instructions == ()
