"""What a model reads to summarise: every text once with its speaker, in parts that its window can take."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from forgetless.datasets.logs import units_of
from forgetless.models.scripted import Scripted
from forgetless.policies.summary.writer import ACON, SUMMARY, write
from forgetless.tokens import for_model

COUNTER = for_model()
TALK: list[Any] = [
    {"role": "user", "content": "Where is it?"},
    {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "find", "arguments": '{"at": "/srv"}'}}],
    },
    {"role": "tool", "tool_call_id": "c", "content": "/srv/box"},
    {"role": "assistant", "content": ""},
]


def test_every_text_has_its_speaker() -> None:
    model = Scripted(["In a box."])
    assert write(SUMMARY, model, COUNTER, list(units_of(TALK)), 50) == "In a box."
    assert model.requests[0]["messages"][1]["content"] == (
        'History:\nUser: Where is it?\nAssistant: I look.\nCall: find\n{"at": "/srv"}\nResult: /srv/box'
    )


@given(st.lists(st.integers(1, 300), min_size=1, max_size=12), st.integers(200, 2_000))
def test_a_history_longer_than_the_window_comes_in_parts(lengths: list[int], window: int) -> None:
    texts = [f"text{at} " + "word " * many for at, many in enumerate(lengths)]
    units = list(units_of([{"role": "user", "content": text} for text in texts]))
    model = Scripted(lambda body: f"part {len(model.requests)}", window=window)
    assert write(ACON, model, COUNTER, units, 500, query=units[-1]) == f"part {len(model.requests)}"
    read = [request["messages"][1]["content"] for request in model.requests]
    for at in range(len(texts)):
        assert sum(f"User: text{at} " in text for text in read) == 1
    for before, text in enumerate(read):
        assert (f"Summary so far:\npart {before}\n" in text) == (before > 0)
    assert all(request["max_tokens"] <= window // 4 for request in model.requests)
    assert all(COUNTER.text(text) <= window + 100 for text in read)


def test_a_reply_that_is_no_text_is_an_empty_summary() -> None:
    units = list(units_of(TALK))
    for reply in ({"content": None}, {"refusal": "No."}, {}):
        assert write(SUMMARY, Scripted([reply]), COUNTER, units, 50) == ""
