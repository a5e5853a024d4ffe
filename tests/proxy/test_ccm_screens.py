"""Replies screened: memory blocks stay behind in every dialect, and all else comes through, however it comes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forgetless.policies.ccm.field import Field
from forgetless.policies.ccm.stream import Stream
from forgetless.proxy.screens.anthropic import AnthropicScreen
from forgetless.proxy.screens.base import Screen
from forgetless.proxy.screens.chat import ChatScreen
from forgetless.proxy.screens.responses import ResponsesScreen
from forgetless.replies.base import Completion
from forgetless.replies.readers import reader
from forgetless.replies.sse import Events, encode
from live import Said, reply

SCREENS: dict[str, Callable[..., Screen]] = {
    "chat": ChatScreen,
    "responses": ResponsesScreen,
    "anthropic": AnthropicScreen,
}
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "anthropic": "/v1/messages"}
TOKENS = [
    "<memory>",
    "</memory>",
    "<memory_edit>",
    "</memory_edit>",
    "`",
    "```",
    "\n",
    " ",
    "key=7",
    "é👩‍👧",
    "<mem",
    "</",
]

texts = st.lists(st.sampled_from(TOKENS), max_size=12).map("".join)
calls = st.lists(st.tuples(st.sampled_from(["a", "b"]), st.just("look"), st.just('{"at": "<memory>"}')), max_size=2)
replies = st.builds(Said, texts, calls.map(lambda made: [(f"{n}{i}", *rest) for n, (i, *rest) in enumerate(made)]))


def stream(dialect: str, said: Said) -> bytes:
    return b"".join(
        encode(data if isinstance(data, str) else json.dumps(data), name)
        for name, data in reply(PATHS[dialect], said, stream=True)
    )


def screened(screen: Screen, data: bytes, cuts: Sequence[int] = ()) -> bytes:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    events, out = Events(), b""
    for start, end in pairwise(places):
        out += b"".join(map(screen.feed, events.feed(data[start:end])))
    return out + b"".join(map(screen.feed, events.rest())) + screen.end()


def heard(dialect: str, data: bytes) -> Completion:
    read, events = reader(dialect), Events()
    for event in [*events.feed(data), *events.rest()]:
        if event.data and event.data != "[DONE]":
            read.event(event.name, json.loads(event.data))
    return read.done()


def read(dialect: str, body: Any) -> Completion:
    made = reader(dialect)
    made.body(body)
    return made.done()


def text(dialect: str, done: Completion) -> str:
    if dialect == "responses":
        return "".join(part["text"] for item in done.messages for part in item.get("content", ()))
    (message,) = done.messages or ({},)
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


@pytest.mark.parametrize("dialect", SCREENS)
@given(replies, st.lists(st.integers(0, 5_000), max_size=8))
@example(Said("<memory>\nkey=7\n</memory>\n"), [])
@example(Said("<memory>k</memory>\n", [("c", "look", "{}")], "hm"), [9])
def test_a_stream_says_what_the_body_says_and_no_more(dialect: str, said: Said, cuts: list[int]) -> None:
    taker = Stream()
    visible = taker.feed(said.text) + taker.end()
    one, other = SCREENS[dialect](Stream), SCREENS[dialect](Stream)
    data = stream(dialect, said)
    out = screened(one, data, cuts)
    streamed, whole = heard(dialect, out), read(dialect, other.whole(reply(PATHS[dialect], said)))
    assert streamed == whole
    assert text(dialect, streamed) == visible
    assert [b for t in one.takers for b in t.blocks] == [b for t in other.takers for b in t.blocks] == taker.blocks
    before = heard(dialect, data)
    assert (streamed.usage, streamed.finish, streamed.error) == (before.usage, before.finish, before.error)
    if not taker.blocks and not taker.broken:
        assert whole == before
        assert streamed == before
    if not any(mark in said.text for mark in "`<\n "):
        assert out == data, "byte for byte"


@pytest.mark.parametrize("dialect", SCREENS)
def test_what_is_left_is_numbered_without_gaps(dialect: str) -> None:
    said = Said("<memory>k</memory>", [("c", "look", "{}")], "hm")
    out = screened(SCREENS[dialect](Stream), stream(dialect, said))
    events = Events()
    data = [json.loads(e.data) for e in events.feed(out) if e.data and e.data != "[DONE]"]
    for key in ("sequence_number", "index", "output_index"):
        numbers = list(dict.fromkeys(one[key] for one in data if key in one))
        assert numbers == list(range(len(numbers)))
    assert b"memory" not in out


@pytest.mark.parametrize("dialect", SCREENS)
def test_a_stream_that_breaks_off_has_let_go_of_its_text(dialect: str) -> None:
    data = stream(dialect, Said("so <memory", []))
    end = data.index(b"\n\n", data.index(b'"ory"')) + 2
    out = screened(SCREENS[dialect](Stream), data[:end])
    assert text(dialect, heard(dialect, out)) == "so <memory"


@pytest.mark.parametrize("dialect", SCREENS)
def test_an_object_comes_whole_and_without_its_memory(dialect: str) -> None:
    said = Said('{"context_window": "key=7", "commands": ["ls"]}')
    out = screened(SCREENS[dialect](Field), stream(dialect, said))
    assert text(dialect, heard(dialect, out)) == '{"commands": ["ls"]}'
    assert heard(dialect, out) == read(dialect, SCREENS[dialect](Field).whole(reply(PATHS[dialect], said)))


def test_log_probabilities_do_not_tell_what_was_taken() -> None:
    body = reply(PATHS["chat"], Said("<memory>key</memory>ok"))
    body["choices"][0]["logprobs"] = {"content": [{"token": "key", "logprob": -1.0}]}
    assert "key" not in json.dumps(ChatScreen(Stream).whole(body))


def test_lists_of_parts_are_read_and_thoughts_among_them_pass() -> None:
    parts = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "<memory>k</memory>ok"}]
    body = {"choices": [{"index": 0, "message": {"role": "assistant", "content": parts}, "finish_reason": "stop"}]}
    (choice,) = ChatScreen(Stream).whole(body)["choices"]
    assert choice["message"]["content"] == [parts[0], {"type": "text", "text": "ok"}]


def test_a_whole_message_at_the_end_of_a_stream_is_screened_too() -> None:
    message = {"role": "assistant", "content": "<memory>key</memory>ok"}
    data = encode(json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}))
    screen = ChatScreen(Stream)
    assert text("chat", heard("chat", screened(screen, data))) == "ok"
    assert [block.text for taker in screen.takers for block in taker.blocks] == ["key"]


def test_of_several_choices_none_leaks_and_the_first_counts() -> None:
    choices = [
        {"index": n, "message": {"role": "assistant", "content": f"<memory>{n}</memory>{n}"}, "finish_reason": "stop"}
        for n in range(2)
    ]
    screen = ChatScreen(Stream)
    made = screen.whole({"choices": choices})
    assert [choice["message"]["content"] for choice in made["choices"]] == ["0", "1"]
    assert [block.text for taker in screen.takers for block in taker.blocks] == ["0"]


@pytest.mark.parametrize("text", ["<memory>key</memory>", "<memory>key</memory>ok", "ok"])
def test_servers_of_responses_that_send_no_deltas_leak_nothing(text: str) -> None:
    data = stream("responses", Said(text, [("c", "look", "{}")]))
    events = Events()
    few = [e for e in events.feed(data) if not e.name.startswith(("response.output_text", "response.content_part"))]
    out = screened(ResponsesScreen(Stream), b"".join(e.raw for e in few))
    assert heard("responses", out) == read(
        "responses", ResponsesScreen(Stream).whole(reply(PATHS["responses"], Said(text, [("c", "look", "{}")])))
    )
    assert b"key" not in out
