"""What a user has dropped is found no more, in that conversation alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forgetless import Session
from forgetless.instructions.dropping import Dropping
from forgetless.instructions.load import recogniser
from forgetless.instructions.rules import Rules

RULE = "From now on, never mention the weather."


@given(st.lists(st.sampled_from([RULE, "Always answer in French.", "What is a fjord?"]), max_size=3))
def test_what_is_dropped_is_found_no_more_and_all_else_is(dropped: list[str]) -> None:
    find = Dropping(Rules())
    find.dropped = set(dropped)
    for text in (RULE, "Always answer in French.", "What is a fjord?", f"{RULE} Thanks!"):
        assert list(find(text)) == ([] if text in dropped else Rules()(text))


def test_each_conversation_has_its_own_and_judgements_are_shared() -> None:
    one, other = recogniser("rules"), recogniser("rules")
    assert one is not None
    assert other is not None
    assert one.find is other.find
    one.dropped = {RULE}
    assert list(one(RULE)) == []
    assert list(other(RULE)) == [(0, len(RULE))]
    assert recogniser(one) is one


def test_in_a_session_it_no_longer_stays() -> None:
    messages = [{"role": "user", "content": RULE}, {"role": "assistant", "content": "Yes."}]
    for turn in range(12):
        messages.append({"role": "user", "content": f"Step {turn}: " + "harbour garden " * 20})
        messages.append({"role": "assistant", "content": f"Reply {turn}: " + "marble timber " * 20})
    messages.append({"role": "user", "content": "And now?"})
    find = Dropping(Rules())
    session = Session(budget=400, policy="fifo", instructions=find)
    assert RULE in str(session.prepare(messages).request)
    find.dropped = {RULE}
    done = Session(budget=400, policy="fifo", instructions=find).prepare(messages)
    assert RULE not in str(done.request)
    assert done.instructions == ()
