from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import OpenAI
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from forgetless.replies.base import Completion, Usage
from forgetless.replies.responses import ResponsesReader
from forgetless.replies.sse import Events, encode

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
USAGE = {
    "input_tokens": 30,
    "input_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 0},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 35,
}
CITATION = {"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 1}
HEAD = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "error": None,
    "incomplete_details": None,
    "instructions": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "temperature": 1.0,
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
}

texts = st.text(max_size=12)
_said = st.builds(
    lambda t, n: {"type": "output_text", "text": t, "annotations": [CITATION] * n}, texts, st.integers(0, 2)
)
_refused = st.builds(lambda text: {"type": "refusal", "refusal": text}, texts)
items = st.one_of(
    st.builds(
        lambda content: {"type": "message", "role": "assistant", "status": "completed", "content": content},
        st.lists(st.one_of(_said, _refused), min_size=1, max_size=2),
    ),
    st.builds(
        lambda parts: {"type": "reasoning", "summary": [{"type": "summary_text", "text": text} for text in parts]},
        st.lists(texts, max_size=2),
    ),
    st.builds(
        lambda parts: {
            "type": "reasoning",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": text} for text in parts],
        },
        st.lists(texts, min_size=1, max_size=2),
    ),
    st.builds(lambda text: {"type": "function_call", "call_id": "c", "name": "f", "arguments": text}, texts),
    st.builds(lambda text: {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": text}, texts),
)


def streamed(*events: Any) -> Completion:
    reader = ResponsesReader()
    for event in events:
        reader.event(event["type"], event)
    return reader.done()


def whole(body: Any) -> Completion:
    reader = ResponsesReader()
    reader.body(body)
    return reader.done()


def pieces(draw: st.DrawFn, text: str) -> list[str]:
    edges = sorted(draw(st.lists(st.integers(0, len(text)), max_size=3)))
    return [text[start:end] for start, end in zip([0, *edges], [*edges, len(text)], strict=True)]


_FIELDS = {
    "output_text": ("response.output_text", "text", "content_part", "content_index"),
    "refusal": ("response.refusal", "refusal", "content_part", "content_index"),
    "reasoning_text": ("response.reasoning_text", "text", "content_part", "content_index"),
    "summary_text": ("response.reasoning_summary_text", "text", "reasoning_summary_part", "summary_index"),
}


def part(draw: st.DrawFn, n: int, part: dict[str, Any], at: dict[str, Any]) -> list[dict[str, Any]]:
    stem, field, kind, index = _FIELDS[part["type"]]
    at = {**at, index: n}
    opened = {**part, field: ""}
    if "annotations" in part:
        opened["annotations"] = []
    logprobs = {"logprobs": []} if field == "text" and kind == "content_part" else {}
    given = [{"type": f"response.{kind}.added", **at, "part": opened}]
    given += [{"type": f"{stem}.delta", **at, "delta": piece, **logprobs} for piece in pieces(draw, part[field])]
    for number, annotation in enumerate(part.get("annotations", ())):
        added = {"annotation_index": number, "annotation": annotation}
        given.append({"type": "response.output_text.annotation.added", **at, **added})
    if draw(st.booleans()):
        given.append({"type": f"{stem}.done", **at, field: part[field], **logprobs})
        given.append({"type": f"response.{kind}.done", **at, "part": part})
    return given


def in_deltas(draw: st.DrawFn, index: int, item: dict[str, Any]) -> list[dict[str, Any]]:
    at = {"output_index": index, "item_id": item["id"]}
    opened, given = dict(item), []
    for parts in ("content", "summary"):
        if parts in item:
            opened[parts] = []
            given += [e for n, found in enumerate(item[parts]) for e in part(draw, n, found, at)]
    for field, stem in (("arguments", "function_call_arguments"), ("input", "custom_tool_call_input")):
        if field in item:
            opened[field] = ""
            given += [{"type": f"response.{stem}.delta", **at, "delta": p} for p in pieces(draw, item[field])]
    return [{"type": "response.output_item.added", "output_index": index, "item": opened}, *given]


@st.composite
def replies(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A body, and the events in which the same reply is streamed, the final one last."""
    output = [
        {**item, "id": f"item_{n}", **({"call_id": f"call_{n}"} if "call_id" in item else {})}
        for n, item in enumerate(draw(st.lists(items, min_size=1, max_size=3)))
    ]
    body = {**HEAD, "status": "completed", "output": output, "usage": USAGE}
    events = [{"type": "response.created", "response": {**HEAD, "status": "in_progress", "output": []}}]
    for index, item in enumerate(output):
        events += in_deltas(draw, index, item)
        if draw(st.booleans()):
            events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": "response.completed", "response": body})
    return body, [{**event, "sequence_number": n} for n, event in enumerate(events)]


@pytest.fixture(scope="module")
def sdk(provider: Any) -> Iterator[OpenAI]:
    with OpenAI(base_url=provider.url, api_key="key", max_retries=0) as client:
        yield client


@given(replies())
def test_a_reply_reads_the_same_streamed_or_not(reply: tuple[dict[str, Any], list[dict[str, Any]]]) -> None:
    body, events = reply
    Response.model_validate(body)
    for event in events:
        EVENT.validate_python({"name": "f", **event} if event["type"].endswith("arguments.done") else event)
    done = streamed(*events)
    assert done == whole(body) == Completion(tuple(body["output"]), Usage(30, 20, 5), "completed")


@given(replies())
def test_a_stream_that_breaks_off_gives_the_same_items(reply: tuple[dict[str, Any], list[dict[str, Any]]]) -> None:
    body, events = reply
    assert streamed(*events[:-1]) == Completion(tuple(body["output"]), None, "")
    without = {"type": "response.completed", "response": {**body, "output": []}}  # as servers that store nothing end it
    assert streamed(*events[:-1], without) == whole(body)


@given(replies())
def test_items_are_what_the_sdk_puts_together(
    provider: Any, sdk: OpenAI, reply: tuple[dict[str, Any], list[dict[str, Any]]]
) -> None:
    _, sent = reply
    provider.streams(*(encode(json.dumps(event), event["type"]) for event in sent))
    with sdk.responses.stream(model="m", input="hi") as stream:
        response = stream.get_final_response()
    events, reader = Events(), ResponsesReader()
    for event in (*(e for chunk in provider.chunks for e in events.feed(chunk)), *events.rest()):
        reader.event(event.name, json.loads(event.data))
    theirs = response.to_dict()["output"]
    for item in theirs:  # type: ignore[attr-defined]
        item.pop("parsed_arguments", None)
        for part in item.get("content") or ():
            part.pop("parsed", None)
    assert list(reader.done().messages) == theirs


def test_code_and_calls_of_servers_grow() -> None:
    done = streamed(
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "code_interpreter_call", "id": "a"}},
        {"type": "response.code_interpreter_call_code.delta", "output_index": 0, "delta": "1 +"},
        {"type": "response.code_interpreter_call_code.delta", "output_index": 0, "delta": " 1"},
        {"type": "response.output_item.added", "output_index": 1, "item": {"type": "mcp_call", "id": "b"}},
        {"type": "response.mcp_call_arguments.delta", "output_index": 1, "delta": "{"},
        {"type": "response.mcp_call_arguments.done", "output_index": 1, "arguments": "{}"},
    )
    assert [(item.get("code"), item.get("arguments")) for item in done.messages] == [("1 + 1", None), (None, "{}")]


def test_items_without_numbers_are_told_by_their_id() -> None:
    added = [{"type": "response.output_item.added", "item": {"type": "function_call", "id": name}} for name in "ab"]
    kind = "response.function_call_arguments.delta"
    done = streamed(*added, *({"type": kind, "item_id": name, "delta": name} for name in "abba"))
    assert [item["arguments"] for item in done.messages] == ["aa", "bb"]
    last = {"type": "response.output_item.done", "item": {"type": "function_call", "id": "a", "arguments": "{}"}}
    assert [item["arguments"] for item in streamed(*added, last).messages if "arguments" in item] == ["{}"]


def test_what_stopped_a_reply_is_its_finish() -> None:
    reason = {"reason": "max_output_tokens"}
    body = {**HEAD, "status": "incomplete", "incomplete_details": reason, "output": [], "usage": USAGE}
    done = Completion((), Usage(30, 20, 5), "max_output_tokens")
    assert whole(body) == streamed({"type": "response.incomplete", "response": body}) == done
    assert whole({**HEAD, "status": "queued", "output": []}).finish == ""


def test_a_failed_response_tells_its_error() -> None:
    error = {"code": "server_error", "message": "The model failed."}
    body = {**HEAD, "status": "failed", "output": [], "error": error}
    done = Completion((), None, "failed", error)
    assert whole(body) == streamed({"type": "response.failed", "response": body}) == done


@pytest.mark.parametrize("nested", [False, True])
def test_an_error_event_tells_its_error(nested: bool) -> None:
    error = {"code": "context_length_exceeded", "message": "Too long.", "param": "input"}
    event = {"type": "error", "sequence_number": 2, **({"error": error} if nested else error)}
    done = streamed(event)
    assert done.messages == ()
    assert done.error is not None
    assert {key: done.error[key] for key in error} == error


def test_an_error_body_is_no_item() -> None:
    error = {"message": "no", "type": "invalid_request_error", "param": None, "code": None}
    assert whole({"error": error}) == Completion((), None, "", error)
