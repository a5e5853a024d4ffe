"""Replies cut off inside a memory block: the client sees nothing of the memory, and all else as it would have been."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import anthropic
import httpx2
import openai
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from starlette.responses import StreamingResponse

from forgetless.models.served import Served
from forgetless.policies.ccm.field import Field
from forgetless.policies.ccm.stream import Stream
from forgetless.proxy.screens.anthropic import AnthropicScreen
from forgetless.proxy.screens.base import Screen
from forgetless.proxy.screens.chat import ChatScreen
from forgetless.proxy.screens.responses import ResponsesScreen
from forgetless.replies.base import Completion
from forgetless.replies.readers import reader
from forgetless.replies.sse import Event, Events, encode
from live import Call, Provider, Said, reply

SCREENS: dict[str, Callable[..., Screen]] = {
    "chat": ChatScreen,
    "responses": ResponsesScreen,
    "anthropic": AnthropicScreen,
}
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "anthropic": "/v1/messages"}
DIALECTS = pytest.mark.parametrize("dialect", SCREENS)
LOOK: Call = ("c", "look", '{"at": "x"}')
OBJECT = '{"analysis": "hm", "context_window": "key=7'

Named: TypeAlias = tuple[str, Any]


def stopped(dialect: str, made: Any) -> Any:
    """A reply, whole or as events, that its token limit cut off."""
    if isinstance(made, list):
        return [_stopped_event(dialect, *one) for one in made]
    if dialect == "chat":
        (choice,) = made["choices"]
        return {**made, "choices": [{**choice, "finish_reason": "length"}]}
    if dialect == "anthropic":
        return {**made, "stop_reason": "max_tokens"}
    return {**made, "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}


def _stopped_event(dialect: str, name: str, data: Any) -> Named:
    if dialect == "chat" and data != "[DONE]" and data["choices"] and data["choices"][0]["finish_reason"]:
        return name, stopped("chat", data)
    if name == "message_delta":
        return name, {**data, "delta": {**data["delta"], "stop_reason": "max_tokens"}}
    if name == "response.completed":
        name = "response.incomplete"
        return name, {**data, "type": name, "response": stopped("responses", data["response"])}
    return name, data


def streamed(dialect: str, said: Said) -> list[Named]:
    made: list[Named] = stopped(dialect, reply(PATHS[dialect], said, stream=True))
    return made


def sent(events: Sequence[Named]) -> list[Event]:
    made = Events()
    data = (encode(data if isinstance(data, str) else json.dumps(data), name) for name, data in events)
    return [event for one in data for event in made.feed(one)]


def screened(screen: Screen, events: Sequence[Named]) -> bytes:
    return b"".join(map(screen.feed, sent(events))) + screen.end()


def loads(data: bytes) -> list[Any]:
    return [json.loads(e.data) for e in Events().feed(data) if e.data and e.data != "[DONE]"]


def heard(dialect: str, data: bytes) -> Completion:
    """What a client reads, where the events are those of a reply."""
    read, open_, at = reader(dialect), set[int](), 0
    for one in loads(data):
        kind, index = one.get("type", ""), one.get("index", one.get("output_index", -1))
        if kind in ("content_block_start", "response.output_item.added"):
            assert index == at
            open_.add(index)
            at += 1
        elif kind in ("content_block_stop", "response.output_item.done"):
            open_.remove(index)
        elif kind in ("content_block_delta", "response.output_text.delta"):
            assert index in open_
        elif kind in ("message_delta", "response.completed", "response.incomplete"):
            assert not open_
        read.event(kind, one)
    return read.done()


def whole(dialect: str, said: Said, make: Callable[[], Any] = Stream) -> Completion:
    read = reader(dialect)
    read.body(SCREENS[dialect](make).whole(stopped(dialect, reply(PATHS[dialect], said))))
    return read.done()


def text(dialect: str, done: Completion) -> str:
    if dialect == "responses":
        return "".join(part["text"] for item in done.messages for part in item.get("content", ()))
    (message,) = done.messages or ({},)
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


PIECES = ["<memory>", "</memory>", "<memory_edit>", "</memory_edit>", "`", "```", "\n", " ", "key=7", "é👩‍👧", "<mem"]
texts = st.lists(st.sampled_from(PIECES), max_size=10).map("".join)


@DIALECTS
@given(texts, st.booleans())
@example("<memory>key=7", False)
@example("ls\n<memory>key=7", False)
@example("<memory>key=7", True)
def test_a_stream_that_is_cut_off_says_what_the_body_says(dialect: str, said: str, calls: bool) -> None:
    made = Said(said, [LOOK] if calls else [])
    taker, screen = Stream(), SCREENS[dialect](Stream)
    visible = taker.feed(said) + taker.end(not calls)
    done = heard(dialect, screened(screen, streamed(dialect, made)))
    assert done == whole(dialect, made)
    assert text(dialect, done) == visible
    assert [b for t in screen.takers for b in t.blocks] == taker.blocks
    assert sum(t.broken for t in screen.takers) == taker.broken
    read = reader(dialect)
    read.body(stopped(dialect, reply(PATHS[dialect], made)))
    before = read.done()
    assert (done.finish, done.usage) == (before.finish, before.usage)
    if not taker.blocks and not taker.broken:
        assert done == before


@DIALECTS
@pytest.mark.parametrize("before", ["", "ls -la\n", "\n", "<memory>old</memory>ls"])
def test_wherever_a_block_is_cut_off_nothing_of_it_is_seen(dialect: str, before: str) -> None:
    block = "<memory>\nkey=7 `a\n```\n<mem </memory"
    visible = before.replace("<memory>old</memory>", "").strip("\n") and before.replace("<memory>old</memory>", "")
    for end in range(len("<memory>"), len(block) + 1):
        said = Said(before + block[:end])
        out = screened(SCREENS[dialect](Stream), streamed(dialect, said))
        assert text(dialect, heard(dialect, out)) == text(dialect, whole(dialect, said)) == visible
        assert b"key" not in out
        assert b"mem" not in out


@DIALECTS
@pytest.mark.parametrize("calls", [[], [LOOK]])
def test_a_stream_that_breaks_off_anywhere_shows_no_memory(dialect: str, calls: list[Call]) -> None:
    events = reply(PATHS[dialect], Said("so:\n<memory>key=7</memory>ok", calls, "hm"), stream=True)
    least = next(at for at, (_, data) in enumerate(events) if ">ok" in json.dumps(data))
    for end in range(least + 1):
        out = screened(SCREENS[dialect](Stream), events[:end])
        assert b"key" not in out
        assert b"mem" not in out


@DIALECTS
def test_where_the_model_went_on_after_an_open_block_its_text_does_too(dialect: str) -> None:
    said = Said("ls\n<memory>key=7", [LOOK])
    for made in (reply(PATHS[dialect], said, stream=True), streamed(dialect, said)):
        done = heard(dialect, screened(SCREENS[dialect](Stream), made))
        assert text(dialect, done) == "ls\nkey=7"


@DIALECTS
def test_a_reply_that_was_nothing_but_a_cut_memory_has_no_text_left(dialect: str) -> None:
    events = streamed(dialect, Said("<memory>key=7"))
    out = loads(screened(SCREENS[dialect](Stream), events))
    assert not any("content_block" in one.get("type", "") or "output_index" in one for one in out)
    if dialect == "responses":
        assert [one["sequence_number"] for one in out] == [0, 1]
        assert out[-1]["response"]["output"] == []
        assert out[-1]["response"]["status"] == "incomplete"


def test_anthropic_holds_back_the_open_block_and_its_end_and_no_more() -> None:
    *events, ended, over = sent(streamed("anthropic", Said("one <memory>key", [], "hm")))
    screen = AnthropicScreen(Stream)
    before = b"".join(map(screen.feed, events))
    assert text("anthropic", _read("anthropic", before)) == "one "
    assert loads(before)[-1]["type"] == "content_block_delta"
    ping = sent([("ping", {"type": "ping"})])[0]
    assert screen.feed(ping) == ping.raw
    assert [one["type"] for one in loads(screen.feed(ended))] == ["content_block_stop", "message_delta"]
    assert screen.feed(over) == over.raw
    assert screen.end() == b""


def test_anthropic_goes_on_with_an_open_block_once_the_next_block_begins() -> None:
    events = sent(reply(PATHS["anthropic"], Said("<memory>key", [LOOK]), stream=True))
    screen = AnthropicScreen(Stream)
    kinds = [[(one["type"], one.get("index")) for one in loads(screen.feed(event))] for event in events]
    at = next(n for n, event in enumerate(events) if '"tool_use"' in event.data)
    assert kinds[at] == [
        ("content_block_start", 0),
        ("content_block_delta", 0),
        ("content_block_stop", 0),
        ("content_block_start", 1),
    ]


def test_responses_holds_back_the_open_block_and_its_end_and_no_more() -> None:
    *events, ended = sent(streamed("responses", Said("one <memory>key")))
    screen = ResponsesScreen(Stream)
    assert loads(b"".join(map(screen.feed, events)))[-1]["delta"] == "one "
    alive = sent([("keepalive", {"type": "keepalive"})])[0]
    assert screen.feed(alive) == alive.raw
    kinds = [one["type"].removeprefix("response.") for one in loads(screen.feed(ended))]
    assert kinds == ["output_text.done", "output_item.done", "incomplete"]


@pytest.mark.parametrize(
    "few", [("output_text", "content_part"), ("output_text.done", "content_part.done"), (".done",)]
)
@pytest.mark.parametrize("ends", ["response.incomplete", "response.completed", "response.failed"])
def test_servers_of_responses_that_leave_events_out_leak_nothing(few: Sequence[str], ends: str) -> None:
    *events, (_, last) = streamed("responses", Said("ls\n<memory>key=7"))
    left = [one for one in events if not any(part in one[0] for part in few)]
    out = screened(ResponsesScreen(Stream), [*left, (ends, {**last, "type": ends})])
    assert b"key" not in out
    assert text("responses", _read("responses", out)) == "ls\n"


def _read(dialect: str, data: bytes) -> Completion:
    read = reader(dialect)
    for one in loads(data):
        read.event(one.get("type", ""), one)
    return read.done()


def chunk(delta: Mapping[str, Any], why: str | None) -> Named:
    return "", {"choices": [{"index": 0, "delta": delta, "finish_reason": why}]}


@pytest.mark.parametrize(
    ("why", "seen"), [("length", "ls\n"), ("content_filter", "ls\n"), ("stop", "ls\nkey=7"), (None, "ls\nkey=7")]
)
def test_a_last_chunk_may_have_content_and_the_reason_together(why: str | None, seen: str) -> None:
    events = [chunk({"role": "assistant", "content": "ls\n<memory>ke"}, None), chunk({"content": "y=7"}, why)]
    assert text("chat", heard("chat", screened(ChatScreen(Stream), [*events, ("", "[DONE]")]))) == seen


@DIALECTS
def test_an_error_in_mid_stream_cuts_a_reply_off(dialect: str) -> None:
    error = {"message": "overloaded", "type": "overloaded_error"}
    made: dict[str, Named] = {
        "chat": ("", {"error": error}),
        "anthropic": ("error", {"type": "error", "error": error}),
        "responses": ("error", {"type": "error", "message": "overloaded", "sequence_number": 9}),
    }
    events = reply(PATHS[dialect], Said("ls\n<memory>key=7"), stream=True)
    for end in range(3, len(events) - 2):
        out = screened(SCREENS[dialect](Stream), [*events[:end], made[dialect], *events[-1:][: dialect == "chat"]])
        assert b"key=" not in out
        assert b"overloaded" in out


@DIALECTS
@pytest.mark.parametrize(
    ("said", "seen"), [(OBJECT, '{"analysis": "hm", '), (OBJECT + '", "a": 1', '{"analysis": "hm", "a": 1')]
)
def test_an_object_goes_on_up_to_the_field_that_it_was_cut_off_in(dialect: str, said: str, seen: str) -> None:
    done = heard(dialect, screened(SCREENS[dialect](Field), streamed(dialect, Said(said))))
    assert done == whole(dialect, Said(said), Field)
    assert text(dialect, done) == seen


def test_of_several_texts_the_last_one_is_cut_off() -> None:
    def text_of(said: str) -> dict[str, Any]:
        return {"type": "output_text", "text": said, "annotations": []}

    for contents in ([["a<memory>b", "c<memory>d"]], [["a<memory>b"], ["c<memory>d"]]):
        items = [{"type": "message", "content": list(map(text_of, said))} for said in contents]
        made = ResponsesScreen(Stream).whole({"status": "incomplete", "output": items})
        assert [part["text"] for item in made["output"] for part in item["content"]] == ["ab", "c"]
        events = [
            ("response.output_item.done", {"type": "response.output_item.done", "output_index": at, "item": item})
            for at, item in enumerate(items)
        ]
        out = loads(screened(ResponsesScreen(Stream), events))
        assert [part["text"] for one in out for part in one["item"]["content"]] == ["ab", "c"]


def test_where_a_call_was_cut_off_the_text_that_is_repeated_beside_the_output_says_the_same() -> None:
    made = stopped("responses", reply(PATHS["responses"], Said("ls\n<memory>key", [LOOK])))
    for more, seen in (({}, "ls\nkey"), ({"output": made["output"][:1]}, "ls\n")):
        bare = ResponsesScreen(Stream).whole({**made, "output_text": "ls\n<memory>key", **more})
        assert bare["output_text"] == bare["output"][0]["content"][0]["text"] == seen


def test_of_several_choices_each_is_cut_off_for_itself() -> None:
    message = {"role": "assistant", "content": "ls\n<memory>key"}
    choices = [{"index": n, "message": message, "finish_reason": why} for n, why in enumerate(("stop", "length"))]
    made = ChatScreen(Stream).whole({"choices": choices})
    assert [choice["message"]["content"] for choice in made["choices"]] == ["ls\nkey", "ls\n"]


class Short:
    """A model whose token limit cuts every reply off."""

    name, window = "short", None

    def __init__(self, said: str) -> None:
        self.said = said

    def __call__(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return dict(stopped("chat", reply(PATHS["chat"], Said(self.said))))

    def stream(self, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        return (data for _, data in streamed("chat", Said(self.said)) if data != "[DONE]")


@DIALECTS
@pytest.mark.parametrize("said", ["<memory>key=7", "ls\n<memory>key=7"])
def test_replies_of_the_embedded_upstream_are_screened_as_others(dialect: str, said: str) -> None:
    key = "input" if dialect == "responses" else "messages"
    body = {"model": "m", "max_tokens": 500, key: [{"role": "user", "content": "hi"}]}
    if dialect == "responses":
        del body["max_tokens"]
    served = Served(Short(said))  # type: ignore[arg-type]
    data = b"".join(served.stream(dialect, {**body, "stream": True}))
    screen = SCREENS[dialect](Stream)
    out = b"".join(map(screen.feed, Events().feed(data))) + screen.end()
    status, answer = served.answer(dialect, body)
    assert status == 200
    read = reader(dialect)
    read.body(SCREENS[dialect](Stream).whole(answer))
    assert text(dialect, heard(dialect, out)) == text(dialect, read.done()) == said.partition("<")[0]
    assert b"key" not in out


@DIALECTS
@pytest.mark.parametrize("stream", [False, True])
def test_through_the_proxy_the_old_memory_stays_and_the_next_prompt_has_what_it_does_not_know(
    dialect: str, stream: bool, provider: Provider, start: Callable[..., str], http: httpx2.Client
) -> None:
    said = iter(["<memory>\nold=1\n</memory>\nfirst", "so:\n<memory>\nnew=2", "<memory>\nnew=3", "last"])
    begun: list[str] = []

    def answer(path: str, body: Mapping[str, Any]) -> Any:
        made = reply(path, Said(next(said)), stream=stream)
        begun.append("")
        return stopped(dialect, made) if 1 < len(begun) < 4 else made

    provider.answer = answer
    base = start(policy="ccm", budget=4_000)
    key = "input" if dialect == "responses" else "messages"
    history: list[Any] = []
    seen = []
    for turn in range(4):
        history.append({"role": "user", "content": f"question {turn}"})
        body = {"model": "m", "max_tokens": 500, "stream": stream, key: history}
        got = http.post(base + PATHS[dialect], json=body)
        assert got.status_code == 200
        assert b"new=" not in got.content
        read = reader(dialect)
        if stream:
            done = heard(dialect, got.content)
        else:
            read.body(got.json())
            done = read.done()
        history.extend(message for message in done.messages if message.get("content"))
        seen.append(text(dialect, done))
    assert [one.strip() for one in seen] == ["first", "so:", "", "last"]
    prompt = json.dumps(provider.bodies[-1])
    assert "old=1" in prompt
    assert "question 1" in prompt
    assert "new=" not in prompt
    assert 'forgetless_memories_total{outcome="broken"} 2.0' in http.get(f"{base}/metrics").text


@DIALECTS
@pytest.mark.parametrize("clean", [True, False])
def test_a_connection_that_breaks_off_in_a_block_counts_as_one_that_is_broken(
    *, clean: bool, dialect: str, provider: Provider, start: Callable[..., str], http: httpx2.Client
) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for event in sent(streamed(dialect, Said("ls\n<memory>key=7"))[:6]):
            yield event.raw
        if not clean:
            raise ConnectionError("cut")

    provider.answer = lambda path, body: StreamingResponse(chunks(), media_type="text/event-stream")
    base = start(policy="ccm", budget=4_000)
    key = "input" if dialect == "responses" else "messages"
    body = {"model": "m", "max_tokens": 500, "stream": True, key: [{"role": "user", "content": "hi"}]}
    got = b""
    with suppress(httpx2.RemoteProtocolError), http.stream("POST", base + PATHS[dialect], json=body) as answer:
        for piece in answer.iter_bytes():
            got += piece
    assert b"ls" in got
    assert b"key" not in got
    assert 'forgetless_memories_total{outcome="broken"} 1.0' in http.get(f"{base}/metrics").text


@DIALECTS
@pytest.mark.parametrize("said", ["<memory>key=7", "ls\n<memory>key=7"])
def test_sdks_read_what_is_left_of_a_stream(
    dialect: str, said: str, provider: Provider, start: Callable[..., str]
) -> None:
    provider.answer = lambda path, body: streamed(dialect, Said(said))
    base, seen = start(policy="ccm", budget=4_000), said.partition("<")[0]
    asked: Any = [{"role": "user", "content": "hi"}]
    if dialect == "anthropic":
        with (
            anthropic.Anthropic(api_key="k", base_url=base, http_client=httpx2.Client()) as client,
            client.messages.stream(model="m", max_tokens=500, messages=asked) as events,
        ):
            message = events.get_final_message()
        assert ([block.text for block in message.content], message.stop_reason) == (
            [seen] if seen else [],
            "max_tokens",
        )
        return
    with openai.OpenAI(api_key="k", base_url=f"{base}/v1", http_client=httpx2.Client()) as client:
        if dialect == "chat":
            chunks = list(client.chat.completions.create(model="m", messages=asked, stream=True))
            assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == seen
            assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"
        else:
            *_, last = client.responses.create(model="m", input=asked, stream=True)
            assert last.type == "response.incomplete"
            assert last.response.output_text == seen
