from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetless.dialects.base import Dialect
from forgetless.errors import ConfigError
from forgetless.registry import DIALECTS, load_dialect
from forgetless.replies.base import Completion
from forgetless.replies.readers import READERS, reader

KEYS = [
    "annotation", "annotations", "arguments", "cache_read_input_tokens", "choices", "citation", "citations", "content",
    "content_block", "content_index", "custom", "delta", "error", "finish_reason", "function", "function_call", "id",
    "incomplete_details", "index", "input", "input_tokens", "input_tokens_details", "item", "item_id", "message",
    "name", "object", "output", "output_index", "output_tokens", "part", "partial_json", "prompt_tokens", "reason",
    "prompt_tokens_details", "cached_tokens", "reasoning_content", "reasoning_details", "response", "role", "signature",
    "status", "stop_reason", "summary", "summary_index", "text", "thinking", "tool_calls", "type", "usage",
]  # fmt: skip
TYPES = [
    "content_block_delta", "content_block_start", "error", "function", "input_json_delta", "message_delta",
    "message_start", "output_text", "response.completed", "response.content_part.added", "response.failed",
    "response.function_call_arguments.delta", "response.function_call_arguments.done", "response.output_item.added",
    "response.output_item.done", "response.output_text.annotation.added", "response.output_text.delta",
    "response.output_text.done", "response.reasoning_summary_part.added", "response.reasoning_summary_text.delta",
    "text", "text_delta", "thinking",
]  # fmt: skip

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 3),
    st.just(10**12),
    st.floats(),
    st.sampled_from(["", "a", '{"a"', *TYPES]),
)
nodes = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
        st.fixed_dictionaries({"type": st.sampled_from(TYPES), "index": st.integers(0, 2)}, optional={"delta": inner}),
    ),
    max_leaves=40,
)


def shaped(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Events that are right on the outside, so that what is wrong lies deeper."""
    choice = st.fixed_dictionaries({"index": st.just(0)}, optional={"delta": inner, "message": inner})
    names = ("content_block", "delta", "item", "message", "part", "response", "usage", "annotation")
    return st.one_of(
        inner,
        st.fixed_dictionaries({"choices": st.lists(choice, max_size=2)}, optional={"usage": inner}),
        st.fixed_dictionaries(
            {"type": st.sampled_from(TYPES)},
            optional={
                **dict.fromkeys(names, inner),
                "index": scalars,
                "output_index": scalars,
                "content_index": scalars,
            },
        ),
    )


def read(dialect: str, body: Any, events: list[tuple[str, Any]]) -> Completion:
    read = reader(dialect)
    if body is not None:
        read.body(body)
    for name, data in events:
        read.event(name, data)
    return read.done()


@pytest.mark.parametrize("dialect", READERS)
@given(st.one_of(st.none(), nodes), st.lists(st.tuples(st.sampled_from(["", *TYPES]), shaped(nodes)), max_size=6))
def test_no_reply_makes_a_reader_fail(dialect: str, body: Any, events: list[tuple[str, Any]]) -> None:
    before = copy.deepcopy((body, events))
    done = read(dialect, body, events)
    assert repr((body, events)) == repr(before)
    assert repr(done) == repr(read(dialect, body, events))
    assert all(isinstance(message, Mapping) for message in done.messages)
    assert done.error is None or isinstance(done.error, Mapping)
    assert isinstance(done.finish, str)
    if done.usage is not None:
        assert all(type(number) is int and number >= 0 for number in (done.usage.input, done.usage.cached))
    json.dumps(done.messages)  # plain JSON, whatever came


@pytest.mark.parametrize("dialect", READERS)
def test_done_may_be_asked_for_at_any_time(dialect: str) -> None:
    events: list[Any] = [
        {"choices": [{"index": 0, "delta": {"content": "a"}}]},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}},
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "content": []}},
        {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "a"},
    ]
    read = reader(dialect)
    for event in events:
        read.event("", event)
    first = read.done()
    kept = copy.deepcopy(first)
    for event in events[2:3] + events[4:]:
        read.event("", event)
    assert first == kept
    assert "a" in json.dumps(first.messages)


def test_every_dialect_has_a_reader_and_reads_back_what_it_gives() -> None:
    assert set(READERS) == set(DIALECTS)
    with pytest.raises(ConfigError, match="'chatt'"):
        reader("chatt")


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("chat", {"choices": [{"message": {"content": None, "tool_calls": [{"id": "c", "function": {"name": "f"}}]}}]}),
        ("anthropic", {"content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]}),
        ("responses", {"output": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}]}),
    ],
)
def test_messages_are_of_the_dialect(name: str, body: dict[str, Any]) -> None:
    dialect: Dialect = load_dialect(name)
    messages = list(read(name, body, []).messages)
    request = dialect.parse(messages)
    assert [message.calls[0].id for message in request.messages] == ["c"]
    assert list(dialect.emit(request, request.messages)) == messages
