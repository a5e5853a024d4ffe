"""The scripted model: what it says whole and what it says in pieces is the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetless.errors import ModelError
from forgetless.messages import Call
from forgetless.models.scripted import PIECE, Scripted
from forgetless.replies.chat import ChatReader

ASK = {"messages": [{"role": "user", "content": "Hi"}]}
CALLS = st.lists(st.builds(Call, st.uuids().map(str), st.just("look"), st.text(max_size=30)), min_size=1, max_size=3)


@given(st.one_of(st.text(min_size=1), CALLS, st.just({"content": "Look:", "reasoning_content": "Hm."})))
def test_a_stream_says_what_the_whole_says(reply: Any) -> None:
    whole, pieces = ChatReader(), ChatReader()
    whole.body(Scripted([reply])(ASK))
    for chunk in Scripted([reply]).stream({**ASK, "stream_options": {"include_usage": True}}):
        for choice in chunk["choices"]:
            assert len(choice["delta"].get("content") or "") <= PIECE
        pieces.event("", chunk)
    expected, found = whole.done(), pieces.done()
    (message,) = expected.messages
    kept = {key: value for key, value in message.items() if key != "reasoning_content"}
    assert found.messages == (kept,)
    assert (found.usage, found.finish) == (expected.usage, expected.finish)
    assert found.usage is not None
    assert found.usage.output > 0 or not str(reply).strip()


def test_it_keeps_what_it_was_asked_and_says_when_it_runs_out() -> None:
    model = Scripted(["one"], name="me", window=100)
    first = model(ASK)
    assert first["model"] == model.name == "me"
    assert first["id"] != Scripted(["one"])(ASK)["id"]
    with pytest.raises(ModelError, match="run out"):
        next(model.stream(ASK))
    assert model.requests == [ASK, ASK]


def test_a_function_answers_by_the_body_and_an_exception_is_raised() -> None:
    model = Scripted(lambda body: body["messages"][-1]["content"].upper())
    assert model(ASK)["choices"][0]["message"]["content"] == "HI"
    assert not [c for c in model.stream(ASK) if c["usage"]], "usage comes where it is asked for"
    failing = Scripted([ModelError("down", status=503), "up"])
    with pytest.raises(ModelError, match="down"):
        failing(ASK)
    assert failing(ASK)["choices"][0]["message"]["content"] == "up"


def test_usage_grows_with_tools_and_history() -> None:
    model = Scripted(lambda body: "ok")
    sizes = [
        model(body)["usage"]["prompt_tokens"]
        for body in (ASK, {**ASK, "tools": [{"type": "function"}]}, {"messages": ASK["messages"] * 40})
    ]
    assert sizes == sorted(set(sizes))
