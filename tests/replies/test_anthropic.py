from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from anthropic import Anthropic
from anthropic.types import Message, RawMessageStreamEvent
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from forgetless.replies.anthropic import AnthropicReader
from forgetless.replies.base import Completion, Usage
from forgetless.replies.sse import Events, encode

EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
CITATION = {
    "type": "char_location",
    "cited_text": "ab",
    "document_index": 0,
    "document_title": None,
    "start_char_index": 0,
    "end_char_index": 2,
}
USAGE = {"input_tokens": 10, "cache_read_input_tokens": 200, "cache_creation_input_tokens": 3, "output_tokens": 7}

texts = st.text(max_size=12)
inputs = st.dictionaries(st.sampled_from(["q", "id"]), st.one_of(texts, st.integers(), st.lists(texts)), max_size=2)
blocks = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, texts),
    st.builds(lambda text, n: {"type": "text", "text": text, "citations": [CITATION] * n}, texts, st.integers(1, 2)),
    st.builds(lambda text, sig: {"type": "thinking", "thinking": text, "signature": sig}, texts, texts),
    st.builds(lambda data: {"type": "redacted_thinking", "data": data}, texts),
    st.builds(lambda given: {"type": "tool_use", "id": "toolu_1", "name": "f", "input": given}, inputs),
    st.builds(lambda given: {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": given}, inputs),
    st.just({"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []}),
)


def streamed(*events: dict[str, Any]) -> Completion:
    reader = AnthropicReader()
    for event in events:
        reader.event(event["type"], event)
    return reader.done()


def whole(body: Any) -> Completion:
    reader = AnthropicReader()
    reader.body(body)
    return reader.done()


def start(**usage: int) -> dict[str, Any]:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    usage = {"input_tokens": 10, "output_tokens": 1, **usage}
    return {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}}


def begin(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **given: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": f"{kind}_delta", **given}}


def end(reason: str = "end_turn", **usage: Any) -> list[dict[str, Any]]:
    told = {"stop_reason": reason, "stop_sequence": None}
    last = {"type": "message_delta", "delta": told, "usage": {"output_tokens": 7, **usage}}
    return [last, {"type": "message_stop"}]


def pieces(draw: st.DrawFn, text: str) -> list[str]:
    edges = sorted(draw(st.lists(st.integers(0, len(text)), max_size=3)))
    return [text[start:end] for start, end in zip([0, *edges], [*edges, len(text)], strict=True)]


def in_deltas(draw: st.DrawFn, index: int, block: dict[str, Any]) -> list[dict[str, Any]]:
    match block:
        case {"type": "text", "text": text}:
            opened = (
                {"type": "text", "text": "", "citations": []} if "citations" in block else {"type": "text", "text": ""}
            )
            given = [delta(index, "text", text=piece) for piece in pieces(draw, text)]
            given += [delta(index, "citations", citation=c) for c in block.get("citations", ())]
        case {"type": "thinking", "thinking": text, "signature": signature}:
            opened = {"type": "thinking", "thinking": "", "signature": ""}
            given = [delta(index, "thinking", thinking=piece) for piece in pieces(draw, text)]
            given.append(delta(index, "signature", signature=signature))
        case {"input": made}:
            opened = {**block, "input": {}}
            given = [delta(index, "input_json", partial_json="")]
            if made:
                given += [delta(index, "input_json", partial_json=p) for p in pieces(draw, json.dumps(made))]
        case _:
            opened, given = block, []
    return [begin(index, **opened), *given, {"type": "content_block_stop", "index": index}]


@st.composite
def replies(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A body, and the events in which the same reply is streamed."""
    content = draw(st.lists(blocks, max_size=4))
    body = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content, "usage": USAGE}
    body |= {"stop_reason": "end_turn", "stop_sequence": None}
    events = [start(cache_read_input_tokens=200, cache_creation_input_tokens=3), {"type": "ping"}]
    for index, block in enumerate(content):
        events += in_deltas(draw, index, block)
    return body, [*events, *end()]


@pytest.fixture(scope="module")
def sdk(provider: Any) -> Iterator[Anthropic]:
    with Anthropic(base_url=provider.url, api_key="key", max_retries=0) as client:
        yield client


@given(replies())
def test_a_reply_reads_the_same_streamed_or_not(reply: tuple[dict[str, Any], list[dict[str, Any]]]) -> None:
    body, events = reply
    Message.model_validate(body)
    for event in events:
        if event["type"] != "ping":
            EVENT.validate_python(event)
    done = streamed(*events)
    assert done == whole(body)
    assert done == Completion(({"role": "assistant", "content": body["content"]},), Usage(213, 200, 7), "end_turn")


@given(replies())
def test_a_message_is_what_the_sdk_puts_together(
    provider: Any, sdk: Anthropic, reply: tuple[dict[str, Any], list[dict[str, Any]]]
) -> None:
    _, sent = reply
    provider.streams(*(encode(json.dumps(event), event["type"]) for event in sent))
    with sdk.messages.stream(model="m", messages=[], max_tokens=9) as stream:
        message = stream.get_final_message()
    events, reader = Events(), AnthropicReader()
    for event in (*(e for chunk in provider.chunks for e in events.feed(chunk)), *events.rest()):
        reader.event(event.name, json.loads(event.data))
    done = reader.done()
    theirs = message.to_dict()
    for block in theirs["content"]:  # type: ignore[attr-defined]
        if not block.get("citations", True):
            del block["citations"]
    assert list(done.messages) == [{"role": theirs["role"], "content": theirs["content"]}]
    assert done.finish == message.stop_reason
    assert done.usage == Usage(213, 200, message.usage.output_tokens)


def test_counts_of_the_last_event_are_totals() -> None:
    done = streamed(start(), *end(input_tokens=40, cache_read_input_tokens=None, cache_creation_input_tokens=2))
    assert done.usage == Usage(42, 0, 7)


def test_a_text_without_citations_is_the_same_however_that_is_said() -> None:
    bare = {"type": "text", "text": "Hi"}
    for block in (bare, {**bare, "citations": None}, {**bare, "citations": []}):
        assert whole({"content": [block]}) == streamed(begin(0, **block)) == whole({"content": [bare]})


def test_blocks_of_kinds_yet_to_come_grow_too() -> None:
    done = streamed(
        begin(0, type="compaction", content=None),
        delta(0, "compaction", content="so "),
        delta(0, "compaction", content="far"),
        delta(0, "thinking", estimated_tokens=3),
    )
    assert done.messages[0]["content"] == [{"type": "compaction", "content": "so far"}]


def test_a_stream_that_breaks_off_gives_what_came() -> None:
    done = streamed(
        start(),
        begin(0, type="text", text="Hel"),
        delta(0, "text", text="lo"),
        begin(1, type="tool_use", id="t", name="f", input={}),
        delta(1, "input_json", partial_json='{"path": "/sr'),
    )
    call = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    said = {"role": "assistant", "content": [{"type": "text", "text": "Hello"}, call]}
    assert done == Completion((said,), Usage(10, 0, 1), "")


def test_an_error_in_mid_stream_is_told_with_what_came_before() -> None:
    error = {"type": "overloaded_error", "message": "Overloaded"}
    done = streamed(start(), begin(0, type="text", text="Hel"), {"type": "error", "error": error})
    assert done.messages == ({"role": "assistant", "content": [{"type": "text", "text": "Hel"}]},)
    assert (done.finish, done.error) == ("", error)


def test_an_error_body_is_no_message() -> None:
    error = {"type": "invalid_request_error", "message": "max_tokens: Field required"}
    assert whole({"type": "error", "error": error}) == Completion((), None, "", error)


def test_a_call_without_numbers_goes_on_with_the_last_block() -> None:
    done = streamed(
        {"type": "content_block_start", "content_block": {"type": "tool_use", "id": "t", "name": "f", "input": {}}},
        {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": '{"a": [1'}},
        {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": "]}"}},
    )
    assert done.messages[0]["content"][0]["input"] == {"a": [1]}
