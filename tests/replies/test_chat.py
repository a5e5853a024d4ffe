from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from forgetless.replies.base import Completion, Usage
from forgetless.replies.chat import ChatReader
from forgetless.replies.sse import Events, encode

HEAD = {"id": "c1", "created": 1, "model": "m"}
USAGE = {
    "prompt_tokens": 30,
    "completion_tokens": 5,
    "total_tokens": 35,
    "prompt_tokens_details": {"cached_tokens": 20},
}

texts = st.text(max_size=12)
arguments = st.dictionaries(st.sampled_from(["q", "id"]), texts, max_size=2).map(json.dumps)
calls = st.lists(st.tuples(st.sampled_from(["look", "read"]), arguments), max_size=3)


def streamed(*chunks: Any) -> Completion:
    reader = ChatReader()
    for chunk in chunks:
        reader.event("", chunk)
    return reader.done()


def whole(body: Any) -> Completion:
    reader = ChatReader()
    reader.body(body)
    return reader.done()


def deltas(*given: dict[str, Any]) -> Completion:
    return streamed(*({"choices": [{"index": 0, "delta": delta}]} for delta in given))


def calls_of(done: Completion) -> list[tuple[Any, ...]]:
    return [
        (c.get("id"), c["function"].get("name"), c["function"]["arguments"]) for c in done.messages[0]["tool_calls"]
    ]


def says(message: Any) -> dict[str, Any]:
    return {key: value for key, value in message.items() if value not in (None, "", [])}


def wire(provider: Any) -> Completion:
    """What a reader makes of the bytes that the provider sends."""
    events, reader = Events(), ChatReader()
    for chunk in (*provider.chunks, None):
        for event in events.rest() if chunk is None else events.feed(chunk):
            if event.data and event.data != "[DONE]":
                reader.event(event.name, json.loads(event.data))
    return reader.done()


@pytest.fixture(scope="module")
def sdk(provider: Any) -> Iterator[OpenAI]:
    with OpenAI(base_url=provider.url, api_key="key", max_retries=0) as client:
        yield client


@st.composite
def replies(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A body, and the chunks in which the same reply is streamed."""
    content, refusal = draw(st.one_of(st.none(), texts)), draw(st.one_of(st.none(), st.text(min_size=1, max_size=5)))
    reasoning, made = draw(st.one_of(st.none(), texts)), draw(calls)
    message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": refusal, "annotations": []}
    given = [{"role": "assistant", "content": ""}]
    if reasoning is not None:
        message["reasoning_content"] = reasoning
        given += [{"reasoning_content": piece} for piece in pieces(draw, reasoning)]
    given += [{"content": piece} for piece in pieces(draw, content or "")]
    given += [{"refusal": piece} for piece in pieces(draw, refusal or "")]
    if made:
        message["tool_calls"] = [
            {"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": text}}
            for n, (name, text) in enumerate(made)
        ]
    for n, (name, text) in enumerate(made):
        function = {"name": name, "arguments": ""}
        given.append({"tool_calls": [{"index": n, "id": f"call_{n}", "type": "function", "function": function}]})
        given += [{"tool_calls": [{"index": n, "function": {"arguments": piece}}]} for piece in pieces(draw, text)]
    finish = "tool_calls" if made else "stop"
    body = {**HEAD, "object": "chat.completion", "usage": USAGE}
    body["choices"] = [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}]
    if draw(st.booleans()):
        other = {"index": 1, "message": {"role": "assistant", "content": "other"}, "finish_reason": "stop"}
        body["choices"].append(other)
        given.append(None)
    head = {**HEAD, "object": "chat.completion.chunk"}
    chunks = [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        if delta is not None
        else {**head, "choices": [{"index": 1, "delta": {"content": "other"}, "finish_reason": "stop"}]}
        for delta in given
    ]
    chunks.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    chunks.append({**head, "choices": [], "usage": USAGE})
    return body, chunks


def pieces(draw: st.DrawFn, text: str) -> list[str]:
    edges = sorted(draw(st.lists(st.integers(0, len(text)), max_size=3)))
    return [text[start:end] for start, end in zip([0, *edges], [*edges, len(text)], strict=True)]


@given(replies())
def test_a_reply_reads_the_same_streamed_or_not(reply: tuple[dict[str, Any], list[dict[str, Any]]]) -> None:
    body, chunks = reply
    ChatCompletion.model_validate(body)
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk)
    done = whole(body)
    assert done == streamed(*chunks)
    assert done.usage == Usage(30, 20, 5)
    assert says(done.messages[0]) == says(body["choices"][0]["message"])


@given(replies())
def test_a_message_is_what_the_sdk_puts_together(
    provider: Any, sdk: OpenAI, reply: tuple[dict[str, Any], list[dict[str, Any]]]
) -> None:
    _, chunks = reply
    provider.streams(*(encode(json.dumps(chunk)) for chunk in chunks), encode("[DONE]"))
    with sdk.chat.completions.stream(model="m", messages=[]) as stream:
        message = stream.get_final_completion().choices[0].message
    theirs = message.to_dict(exclude_none=True)
    for call in theirs.get("tool_calls", []):
        del call["index"]
        call["function"].pop("parsed_arguments", None)
    theirs.pop("parsed", None)
    assert says(wire(provider).messages[0]) == says(theirs)


def test_an_sdk_reads_the_body_that_a_reader_reads(provider: Any, sdk: OpenAI) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    body = {**HEAD, "object": "chat.completion", "usage": USAGE}
    body["choices"] = [{"index": 0, "message": message, "finish_reason": "tool_calls"}]
    provider.answers(json.dumps(body).encode())
    reply = sdk.chat.completions.create(model="m", messages=[])
    done = whole(reply.to_dict())
    assert done == Completion((message,), Usage(30, 20, 5), "tool_calls")


def one(name: str | None, text: str, **more: Any) -> dict[str, Any]:
    function = {"arguments": text} if name is None else {"name": name, "arguments": text}
    return {"tool_calls": [{**more, "function": function}]}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(
            [one("f", "", index=0, id="a"), one("", '{"x"', index=0, id=""), one(None, ":1}", index=0)],
            [("a", "f", '{"x":1}')],
            id="empty names and ids beside the pieces",
        ),
        pytest.param(
            [one("f", '{"x"', index=0, id="a"), one("f", ":1}", index=0, id="a")],
            [("a", "f", '{"x":1}')],
            id="name and id again with every piece",
        ),
        pytest.param(
            [one("f", '{"x"', index=0, id="a"), one(None, ":1}", index=0, id="b")],
            [("a", "f", '{"x":1}')],
            id="a new id with every piece",
        ),
        pytest.param(
            [one("get_", "{", index=0, id="a"), one("time", "}", index=0)],
            [("a", "get_time", "{}")],
            id="a name in pieces",
        ),
        pytest.param(
            [one("f", "{}", index=0, id="a"), one("f", "{}", index=0, id="b")],
            [("a", "f", "{}"), ("b", "f", "{}")],
            id="whole calls, all numbered 0",
        ),
        pytest.param(
            [one("f", "{}", id="a"), one("f", "{}", id="b")],
            [("a", "f", "{}"), ("b", "f", "{}")],
            id="whole calls without numbers",
        ),
        pytest.param(
            [one("f", "{}"), one("f", "{}")],
            [(None, "f", "{}"), (None, "f", "{}")],
            id="whole calls without numbers and ids",
        ),
        pytest.param(
            [one("f", "{", id="a"), one(None, "}"), one("g", "{", id="b"), one(None, "}", id="b")],
            [("a", "f", "{}"), ("b", "g", "{}")],
            id="pieces without numbers",
        ),
        pytest.param(
            [one("g", "[", index=1, id="b"), one("f", "{", index=0, id="a"), one(None, "]", index=1)],
            [("a", "f", "{"), ("b", "g", "[]")],
            id="pieces of two calls in turn",
        ),
    ],
)
def test_calls_are_put_together(given: list[dict[str, Any]], expected: list[tuple[Any, ...]]) -> None:
    done = deltas(*given)
    assert calls_of(done) == expected
    assert all(call["type"] == "function" and "index" not in call for call in done.messages[0]["tool_calls"])
    merged = {"tool_calls": [call for delta in given for call in delta["tool_calls"]]}
    assert deltas(merged) == done


def test_calls_of_a_body_stand_as_they_are() -> None:
    made = [{"id": "x", "index": 0, "function": {"name": "f", "arguments": "{}"}}] * 2
    done = whole({"choices": [{"message": {"tool_calls": made}}]})
    assert calls_of(done) == [("x", "f", "{}")] * 2


def test_other_fields_are_put_together() -> None:
    done = deltas(
        {"reasoning": "Let ", "thinking": "a", "audio": {"id": "au", "data": "QUJD", "transcript": "Hel"}},
        {"reasoning": "me.", "thinking": "b", "audio": {"data": "REVG", "transcript": "lo", "expires_at": 9}},
        {"tool_calls": [{"index": 0, "id": "c", "type": "custom", "custom": {"name": "sh", "input": "l"}}]},
        {"tool_calls": [{"index": 0, "custom": {"input": "s"}}]},
        {"function_call": {"name": "old", "arguments": "{"}},
        {"function_call": {"arguments": "}"}},
        {"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "a", "signature": None}]},
        {"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "b", "signature": "sig"}]},
        {"annotations": [{"type": "url_citation", "url_citation": {"url": "u"}}]},
        {"annotations": [{"type": "url_citation", "url_citation": {"url": "v"}}]},
    )
    assert done.messages[0] == {
        "role": "assistant",
        "content": None,
        "reasoning": "Let me.",
        "thinking": "ab",
        "audio": {"id": "au", "data": "QUJDREVG", "transcript": "Hello", "expires_at": 9},
        "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "sh", "input": "ls"}}],
        "function_call": {"name": "old", "arguments": "{}"},
        "reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "ab", "signature": "sig"}],
        "annotations": [
            {"type": "url_citation", "url_citation": {"url": "u"}},
            {"type": "url_citation", "url_citation": {"url": "v"}},
        ],
    }


def test_content_may_come_as_parts() -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "ab"}]}
    done = deltas(
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "a"}]}]},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "b"}]}]},
        {"content": "Yes"},
        {"content": "."},
    )
    assert done.messages[0]["content"] == [thought, {"type": "text", "text": "Yes."}]
    image = {"type": "image_url", "image_url": {"url": "u"}}
    done = deltas({"content": "See"}, {"content": [{"type": "text", "text": ":"}, image, "?"]})
    assert done.messages[0]["content"] == [{"type": "text", "text": "See:"}, image, "?"]


def test_a_stream_may_hold_a_whole_message() -> None:
    message = {"role": "assistant", "content": "Hi"}
    done = streamed({"choices": [{"message": message, "finish_reason": "stop"}]})
    assert done == Completion((message,), None, "stop")


def test_the_last_usage_counts() -> None:
    first, last = {"prompt_tokens": 9, "completion_tokens": 1}, {"prompt_tokens": 9, "completion_tokens": 4}
    choice = [{"index": 0, "delta": {"content": "a"}}]
    done = streamed({"choices": choice, "usage": first}, {"choices": [], "usage": last}, {"choices": [], "usage": None})
    assert done.usage == Usage(9, 0, 4)


@pytest.mark.parametrize(
    "more",
    [{"prompt_tokens_details": {"cached_tokens": 7}}, {"prompt_cache_hit_tokens": 7}, {"cached_tokens": 7}],
)
def test_servers_count_what_was_cached_each_in_its_way(more: dict[str, Any]) -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 4, **more}
    assert whole({"choices": [], "usage": usage}).usage == Usage(9, 7, 4)


def test_an_error_in_mid_stream_is_told_with_what_came_before() -> None:
    error = {"message": "The server had an error", "type": "server_error", "code": None}
    done = streamed({"choices": [{"index": 0, "delta": {"content": "Hel"}}]}, {"error": error})
    assert done == Completion(({"role": "assistant", "content": "Hel"},), None, "", error)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"error": {"message": "no", "code": 400}}, "no"),
        ({"error": "model 'x' not found"}, "model 'x' not found"),
        ({"object": "error", "message": "too long", "type": "BadRequestError", "code": 400}, "too long"),
    ],
)
def test_an_error_body_is_no_message(body: dict[str, Any], message: str) -> None:
    done = whole(body)
    assert (done.messages, done.finish, done.usage) == ((), "", None)
    assert done.error is not None
    assert done.error["message"] == message


def test_a_reply_that_says_nothing_is_an_empty_message_and_a_stream_without_one_is_none() -> None:
    empty = {"role": "assistant", "content": ""}
    assert whole({"choices": [{"message": {**empty, "content": None}, "finish_reason": "stop"}]}).messages == (empty,)
    assert streamed({"choices": [{"index": 0, "delta": empty}]}).messages == ()
    assert streamed().messages == ()
