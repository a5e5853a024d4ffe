"""Replies sewn together: a client reads one reply, out of which the calls of `recall` are gone, however it comes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetless.proxy.seams.anthropic import AnthropicSeam
from forgetless.proxy.seams.base import GAP, Seam, total
from forgetless.proxy.seams.chat import ChatSeam
from forgetless.proxy.seams.responses import ResponsesSeam
from forgetless.replies.base import Completion
from forgetless.replies.readers import READERS, reader
from forgetless.replies.sse import Events, encode
from live import Said, reply

SEAMS: dict[str, Callable[[], Seam]] = {"chat": ChatSeam, "responses": ResponsesSeam, "anthropic": AnthropicSeam}
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "anthropic": "/v1/messages"}

words = st.text('ab \n“é👩‍👧{}"', max_size=20)
ours = st.just("recall")
own = st.sampled_from(["look", "recall_more"])


def calls(name: st.SearchStrategy[str], least: int, most: int) -> st.SearchStrategy[Any]:
    return st.lists(st.tuples(name, words), min_size=least, max_size=most)


@st.composite
def replies(draw: st.DrawFn) -> list[Said]:
    """Replies that call `recall` and nothing else, and a last one that may do anything."""
    saids = []
    for n in range(draw(st.integers(1, 3))):
        made = [draw(st.one_of(calls(ours, 1, 2), calls(st.one_of(ours, own), 0, 3)))]
        given = [(f"call_{n}_{k}", name, json.dumps({"q": q})) for k, (name, q) in enumerate(made[0])]
        text = draw(words)
        saids.append(Said(text if given else text or "a", given, draw(st.sampled_from(["", "hm"])), 10 + n, n))
    alone = [bool(said.calls) and all(name == "recall" for _, name, _ in said.calls) for said in saids]
    end = next((at for at, follows in enumerate(alone) if not follows), len(saids) - 1)
    return saids[: end + 1]


def stream(dialect: str, said: Said) -> bytes:
    return b"".join(
        encode(data if isinstance(data, str) else json.dumps(data), name)
        for name, data in reply(PATHS[dialect], said, stream=True)
    )


def body(dialect: str, said: Said) -> Any:
    return reply(PATHS[dialect], said)


def pieces(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(places)]


def sewn(seam: Seam, streams: Sequence[bytes], cuts: Sequence[int] = ()) -> bytes:
    out = b""
    for n, data in enumerate(streams):
        out += seam.turn() if n else b""
        events = Events()
        for piece in pieces(data, cuts):
            out += b"".join(map(seam.feed, events.feed(piece)))
        out += b"".join(map(seam.feed, events.rest()))
    return out + seam.end()


def parsed(data: bytes) -> list[Any]:
    events = Events()
    return [json.loads(e.data) for e in [*events.feed(data), *events.rest()] if e.data and e.data != "[DONE]"]


def read(dialect: str, data: bytes) -> Completion:
    found = reader(dialect)
    for event in parsed(data):
        found.event("", event)
    return found.done()


def read_body(dialect: str, value: Any) -> Completion:
    found = reader(dialect)
    found.body(value)
    return found.done()


@pytest.mark.parametrize("dialect", SEAMS)
@given(replies(), st.lists(st.integers(0, 10**6), max_size=8))
def test_a_stream_reads_as_the_body_however_it_is_cut(dialect: str, saids: list[Said], cuts: list[int]) -> None:
    made = sewn(SEAMS[dialect](), [stream(dialect, said) for said in saids], cuts)
    whole = SEAMS[dialect]().whole([body(dialect, said) for said in saids])
    assert read(dialect, made) == read_body(dialect, whole)
    assert '"recall"' not in made.decode().replace('\\"', "")
    assert '"recall"' not in json.dumps(whole).replace('\\"', "")
    numbered(dialect, parsed(made))


@pytest.mark.parametrize("dialect", SEAMS)
@given(replies())
def test_a_reply_reads_as_one_without_the_call(dialect: str, saids: list[Said]) -> None:
    said = saids[-1]
    rest = [call for call in said.calls if call[1] != "recall"]
    # Reasoning of Responses goes with what it led to.
    thinking = "" if dialect == "responses" and said.calls and not rest and not said.text else said.thinking
    without = read_body(dialect, body(dialect, replace(said, calls=rest, thinking=thinking)))
    found = read(dialect, sewn(SEAMS[dialect](), [stream(dialect, said)]))
    assert found.usage == without.usage
    assert found.finish == without.finish
    assert content(found) == content(without)


def content(completion: Completion) -> Any:
    """What is said. A reply of Chat Completions that says nothing has null or "" for content."""
    return [{**m, "content": m["content"] or None} if "content" in m else m for m in completion.messages]


@pytest.mark.parametrize("dialect", SEAMS)
@given(replies(), st.lists(st.integers(0, 10**6), max_size=8))
def test_a_reply_that_calls_no_recall_keeps_its_bytes(dialect: str, saids: list[Said], cuts: list[int]) -> None:
    said = replace(saids[-1], calls=[call for call in saids[-1].calls if call[1] != "recall"])
    data = b": hello\n\n" + stream(dialect, said)
    assert sewn(SEAMS[dialect](), [data], cuts) == data


@pytest.mark.parametrize("dialect", SEAMS)
def test_texts_and_tokens_of_all_replies_are_there(dialect: str) -> None:
    first = Said("I look.", [("c1", "recall", "{}")], "hm", 100, 1)
    last = Said("It is 7.", [("c2", "look", '{"a": 1}')], "so", 130, 2)
    done = read(dialect, sewn(SEAMS[dialect](), [stream(dialect, first), stream(dialect, last)]))
    assert done.usage is not None
    assert (done.usage.input, done.usage.cached, done.usage.output) == (230, 10, 4)
    said = json.dumps(done.messages, ensure_ascii=False)
    assert said.index("I look.") < said.index("It is 7.") < said.index("c2")
    if dialect == "chat":
        assert done.messages[0]["content"] == f"I look.{GAP}It is 7."


def numbered(dialect: str, events: list[Any]) -> None:
    """Indices and numbers go up by one, from nought."""
    if dialect == "chat":
        deltas = [choice["delta"] for event in events for choice in event["choices"]]
        indices = [call["index"] for delta in deltas for call in delta.get("tool_calls", ())]
        assert [role for delta in deltas if (role := delta.get("role"))] == ["assistant"]
        assert len({event["id"] for event in events}) == 1
    elif dialect == "anthropic":
        indices = [event["index"] for event in events if "index" in event]
        assert [event["type"] for event in events].count("message_start") == 1
        assert [event["type"] for event in events][-2:] == ["message_delta", "message_stop"]
    else:
        indices = [event["output_index"] for event in events if "output_index" in event]
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert len({event["response"]["id"] for event in events if "response" in event}) == 1
        assert events[0]["type"] == "response.created"
        assert [event["type"] for event in events].count("response.created") == 1
        items = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        assert events[-1]["response"]["output"] == items
    runs = [index for index, _ in groupby(indices)]
    assert runs == list(range(len(runs)))


@pytest.mark.parametrize("dialect", SEAMS)
@given(st.data())
def test_nothing_that_a_server_sends_makes_it_fail(dialect: str, data: st.DataObject) -> None:
    values = st.recursive(
        st.one_of(st.none(), st.integers(-1, 2), st.sampled_from(["", "recall", "function_call", "tool_use", "stop"])),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5)
        ),
        max_leaves=20,
    )
    kinds = st.sampled_from(KINDS)
    events = st.lists(st.tuples(kinds, st.dictionaries(st.sampled_from(FIELDS), values, max_size=6)), max_size=6)
    streams = [
        b"".join(encode(json.dumps({**event, "type": kind} if kind else event)) for kind, event in data.draw(events))
        for _ in range(2)
    ]
    sewn(SEAMS[dialect](), streams)
    bodies = [data.draw(st.dictionaries(st.sampled_from(FIELDS), values, max_size=6)) for _ in range(2)]
    SEAMS[dialect]().whole(bodies)


FIELDS = [
    "choices", "delta", "message", "tool_calls", "function", "function_call", "name", "index", "finish_reason", "usage",
    "content", "content_block", "output", "output_index", "item", "response", "sequence_number", "tools", "id", "role",
]  # fmt: skip
KINDS = [
    "", "message_start", "content_block_start", "content_block_delta", "message_delta", "message_stop", "error",
    "response.created", "response.output_item.added", "response.output_item.done", "response.completed",
    "response.failed", "response.function_call_arguments.delta", "keepalive",
]  # fmt: skip


def chunk(delta: Any, finish: str | None = None, **more: Any) -> bytes:
    return encode(json.dumps({"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}))


def test_chat_servers_that_number_every_call_0_or_say_all_in_the_last_chunk() -> None:
    def call(name: str, ident: str) -> dict[str, Any]:
        return {"index": 0, "id": ident, "function": {"name": name, "arguments": "{}"}}

    data = chunk({"tool_calls": [call("recall", "a")]}) + chunk(
        {"content": "see", "tool_calls": [call("look", "b")]}, "tool_calls", usage={"prompt_tokens": 5}
    )
    done = read("chat", sewn(ChatSeam(), [data]))
    assert [one["id"] for one in done.messages[0]["tool_calls"]] == ["b"]
    assert (done.messages[0]["content"], done.finish) == ("see", "tool_calls")

    first = chunk({"content": "one", "tool_calls": [call("recall", "a")]}, "tool_calls", usage={"prompt_tokens": 5})
    last = chunk({"content": "two"}, "stop", usage={"prompt_tokens": 7})
    done = read("chat", sewn(ChatSeam(), [first, last]))
    assert done.messages[0] == {"role": "assistant", "content": f"one{GAP}two"}
    assert done.usage is not None
    assert (done.usage.input, done.finish) == (12, "stop")


def test_a_response_of_which_nothing_was_seen_gives_way_to_the_next() -> None:
    streams = [
        stream("responses", Said("", [("c", "recall", "{}")], "hm", 9, 1)),
        stream("responses", Said("It is 7.", n=2)),
    ]
    assert {event["response"]["id"] for event in parsed(sewn(ResponsesSeam(), streams)) if "response" in event} == {
        "resp_2"
    }


def test_the_repeated_tools_of_a_response_are_the_clients() -> None:
    tools = [{"type": "function", "name": "look"}, {"type": "function", "name": "recall"}]
    assert ResponsesSeam().whole([{"output": [], "tools": tools}])["tools"] == tools[:1]
    data = encode(json.dumps({"type": "response.created", "response": {"id": "r", "tools": tools}}))
    data += encode(json.dumps({"type": "response.completed", "response": {"id": "r", "tools": tools, "output": []}}))
    assert [event["response"]["tools"] for event in parsed(sewn(ResponsesSeam(), [data]))] == [tools[:1]] * 2


def test_totals() -> None:
    assert total({"a": 1, "b": {"c": 2}, "d": "x"}, {"a": 2, "b": {"c": 3}, "e": None}) == {
        "a": 3, "b": {"c": 5}, "d": "x", "e": None,
    }  # fmt: skip
    assert set(SEAMS) == set(READERS)
