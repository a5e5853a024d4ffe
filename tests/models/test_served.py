"""A model behind the three wire formats, called by the providers' own clients over a real socket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import anthropic
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from forgetless.errors import ModelError
from forgetless.messages import Call
from forgetless.models.base import Model
from forgetless.models.scripted import Reply, Scripted
from forgetless.models.served import Served
from forgetless.replies.readers import reader
from forgetless.replies.sse import Events
from live import serving

PATHS = {"/v1/chat/completions": "chat", "/v1/responses": "responses", "/v1/messages": "anthropic"}
SAY = "Grüße, 世界!"
LOOK = [Call("call_1", "look", '{"at": "the sea"}'), Call("call_2", "wait", "{}")]
ASK: dict[str, dict[str, Any]] = {
    "chat": {"messages": [{"role": "user", "content": "Hi"}]},
    "responses": {"input": "Hi"},
    "anthropic": {"max_tokens": 99, "messages": [{"role": "user", "content": "Hi"}]},
}
SCHEMA = {"type": "object", "properties": {"at": {"type": "string"}}}
TOOLS: dict[str, Any] = {
    "chat": [{"type": "function", "function": {"name": "look", "description": "Look.", "parameters": SCHEMA}}],
    "responses": [{"type": "function", "name": "look", "description": "Look.", "parameters": SCHEMA, "strict": None}],
    "anthropic": [{"name": "look", "description": "Look.", "input_schema": SCHEMA}],
}


class Upstream:
    """An app around whatever model a test puts in."""

    model: Model

    async def handle(self, request: Request) -> Response:
        body, dialect = json.loads(await request.body()), PATHS[request.url.path]
        served = Served(self.model)
        try:
            if not body.get("stream"):
                status, reply = await run_in_threadpool(served.answer, dialect, body)
                return JSONResponse(reply, status)
            events = await run_in_threadpool(served.stream, dialect, body)
        except ModelError as error:
            return JSONResponse(error.body, error.status or 500)
        return StreamingResponse(iterate_in_threadpool(events), media_type="text/event-stream")

    async def models(self, request: Request) -> Response:
        return JSONResponse(Served(self.model).models())


@pytest.fixture(scope="module")
def upstream() -> Iterator[tuple[str, Upstream]]:
    app = Upstream()
    routes = [Route(path, app.handle, methods=["POST"]) for path in PATHS]
    with serving(Starlette(routes=[*routes, Route("/v1/models", app.models)])) as url:
        yield url, app


@pytest.fixture
def script(upstream: tuple[str, Upstream]) -> Any:
    def put(*replies: Reply) -> Scripted:
        upstream[1].model = made = Scripted(replies, name="tiny", window=2048)
        return made

    return put


@pytest.fixture
def gpt(upstream: tuple[str, Upstream]) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{upstream[0]}/v1", api_key="k", max_retries=0) as client:
        yield client


@pytest.fixture
def claude(upstream: tuple[str, Upstream]) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=upstream[0], api_key="k", max_retries=0) as client:
        yield client


def test_chat_by_openais_client(gpt: openai.OpenAI, script: Any) -> None:
    model = script(SAY, SAY, LOOK, LOOK)
    chat = gpt.chat.completions
    whole = chat.create(model="any", **ASK["chat"])
    assert whole.choices[0].message.content == SAY
    assert whole.usage is not None
    with chat.create(model="any", stream=True, stream_options={"include_usage": True}, **ASK["chat"]) as stream:
        chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == SAY
    assert chunks[-1].usage == whole.usage
    calls = chat.create(model="any", tools=TOOLS["chat"], **ASK["chat"]).choices[0]
    assert [c.function.name for c in calls.message.tool_calls or ()] == ["look", "wait"]  # type: ignore[union-attr]
    with chat.stream(model="any", tools=TOOLS["chat"], **ASK["chat"]) as streamed:
        final = streamed.get_final_completion().choices[0]
    assert [c.function.arguments for c in final.message.tool_calls or ()] == [c.arguments for c in LOOK]
    assert (calls.finish_reason, final.finish_reason) == ("tool_calls", "tool_calls")
    assert model.requests[2]["tools"] == TOOLS["chat"]


def test_responses_by_openais_client(gpt: openai.OpenAI, script: Any) -> None:
    model = script(SAY, SAY, LOOK, LOOK)
    whole = gpt.responses.create(model="any", instructions="Be kind.", max_output_tokens=9, **ASK["responses"])
    assert (whole.output_text, whole.status) == (SAY, "completed")
    assert whole.usage is not None
    assert whole.usage.input_tokens > 0 < whole.usage.output_tokens
    with gpt.responses.stream(model="any", **ASK["responses"]) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == SAY
    assert final.output_text == SAY
    assert final.id != whole.id
    calls = gpt.responses.create(model="any", tools=TOOLS["responses"], tool_choice="required", **ASK["responses"])
    with gpt.responses.stream(model="any", tools=TOOLS["responses"], **ASK["responses"]) as stream:
        streamed = stream.get_final_response()
    for response in (calls, streamed):
        items = [item for item in response.output if item.type == "function_call"]
        assert [(i.call_id, i.name, i.arguments) for i in items] == [(c.id, c.name, c.arguments) for c in LOOK]
    first, third = model.requests[0], model.requests[2]
    assert first["messages"] == [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]
    assert first["max_completion_tokens"] == 9
    assert third["tool_choice"] == "required"
    assert third["tools"] == TOOLS["chat"]


def test_messages_by_anthropics_client(claude: anthropic.Anthropic, script: Any) -> None:
    model = script(SAY, SAY, LOOK, LOOK)
    whole = claude.messages.create(model="any", system="Be kind.", stop_sequences=["X"], **ASK["anthropic"])
    assert [b.type == "text" and b.text for b in whole.content] == [SAY]
    assert whole.stop_reason == "end_turn"
    with claude.messages.stream(model="any", **ASK["anthropic"]) as stream:
        assert "".join(stream.text_stream) == SAY
        final = stream.get_final_message()
    assert final.id != whole.id
    assert whole.usage.input_tokens > final.usage.input_tokens > 0
    assert final.usage.output_tokens == whole.usage.output_tokens > 0
    choice: Any = {"type": "any", "disable_parallel_tool_use": True}
    calls = claude.messages.create(model="any", tools=TOOLS["anthropic"], tool_choice=choice, **ASK["anthropic"])
    with claude.messages.stream(model="any", tools=TOOLS["anthropic"], **ASK["anthropic"]) as stream:
        streamed = stream.get_final_message()
    for message in (calls, streamed):
        assert message.stop_reason == "tool_use"
        blocks = [b for b in message.content if b.type == "tool_use"]
        assert [(b.id, b.name, b.input) for b in blocks] == [(c.id, c.name, json.loads(c.arguments)) for c in LOOK]  # type: ignore[arg-type]
    first, third = model.requests[0], model.requests[2]
    assert first["messages"][0] == {"role": "system", "content": "Be kind."}
    assert (first["stop"], first["max_completion_tokens"]) == (["X"], 99)
    assert third["tools"] == TOOLS["chat"]
    assert (third["tool_choice"], third["parallel_tool_calls"]) == ("required", False)


def test_the_answers_of_tools_come_as_chat_has_them(script: Any) -> None:
    model = script("a", "b")
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "Go"}]},
        {"type": "reasoning", "id": "r", "summary": []},
        *({"type": "function_call", "call_id": c.id, "name": c.name, "arguments": c.arguments} for c in LOOK),
        *({"type": "function_call_output", "call_id": c.id, "output": c.name} for c in LOOK),
        {"role": "developer", "content": "Now."},
    ]
    uses = [{"type": "tool_use", "id": c.id, "name": c.name, "input": json.loads(str(c.arguments))} for c in LOOK]
    results = [{"type": "tool_result", "tool_use_id": c.id, "content": c.name} for c in LOOK]
    turns = [
        {"role": "user", "content": "Go"},
        {"role": "assistant", "content": uses},
        {"role": "user", "content": [*results, {"type": "text", "text": "Now."}]},
    ]
    served = Served(model)
    assert served.answer("responses", {"input": items})[0] == 200
    assert served.answer("anthropic", {"messages": turns, "max_tokens": 5})[0] == 200
    roles = [[m["role"] for m in request["messages"]] for request in model.requests]
    assert roles == [["user", "assistant", "tool", "tool", last] for last in ("system", "user")]
    for request in model.requests:
        assert [c["id"] for c in request["messages"][1]["tool_calls"]] == [c.id for c in LOOK]
        assert [m["tool_call_id"] for m in request["messages"][2:4]] == [c.id for c in LOOK]


def test_a_form_of_the_reply_is_passed_on(script: Any) -> None:
    model = script("{}", "{}", "{}")
    form = {"type": "json_schema", "name": "place", "schema": SCHEMA}
    Served(model).answer("responses", {**ASK["responses"], "text": {"format": form, "verbosity": "low"}})
    Served(model).answer("anthropic", {**ASK["anthropic"], "output_config": {"format": form}})
    Served(model).answer("responses", {**ASK["responses"], "text": {"format": {"type": "text"}}})
    wanted = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA}}
    assert [r.get("response_format") for r in model.requests] == [wanted, wanted, None]


def user(*parts: Any) -> list[Any]:
    return [{"role": "user", "content": list(parts)}]


def image(kind: str) -> dict[str, Any]:
    return {"type": kind, "image_url": "http://x/y.png"}


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("chat", {"messages": user(image("image_url"))}, "image_url"),
    ("chat", {"messages": user({"type": "input_audio"})}, "input_audio"),
    ("chat", {"messages": []}, "no message"),
    ("chat", {"messages": [{"role": "assistant", "function_call": {"name": "f"}}]}, "function_call"),
    ("chat", {"n": 2}, "'n'"),
    ("chat", {"store": True}, "'store'"),
    ("chat", {"tools": [{"type": "custom", "custom": {"name": "f"}}]}, "custom"),
    ("chat", {"tools": {}, "functions": [{"name": "f"}]}, "functions"),
    ("chat", {"tools": "all"}, "must be a list"),
    ("responses", {"input": user(image("input_image"))}, "input_image"),
    ("responses", {"input": [{"type": "computer_call", "call_id": "c", "action": {}}]}, "computer_call"),
    ("responses", {"input": [{"type": "function_call_output", "call_id": "c", "output": {"a": 1}}]}, "output"),
    ("responses", {"input": [{"type": "web_search_call", "id": "w"}]}, "web_search_call"),
    ("responses", {"previous_response_id": "resp_1"}, "previous_response_id"),
    ("responses", {"conversation": "conv_1"}, "conversation"),
    ("responses", {"store": True}, "store"),
    ("responses", {"background": True}, "background"),
    ("responses", {"include": ["message.output_text.logprobs"]}, "include"),
    ("responses", {"tools": [{"type": "web_search"}]}, "web_search"),
    ("responses", {"tools": [5]}, "a tool must be an object"),
    ("responses", {"tools": TOOLS["responses"], "tool_choice": {"type": "mcp"}}, "tool_choice mcp"),
    ("responses", {"text": {"style": "bold"}}, "text.style"),
    ("responses", {"text": 5}, "'text' must be an object"),
    ("responses", {"reasoning": {"effort": "high"}}, "reasoning"),
    ("anthropic", {"messages": user({"type": "image", "source": {"type": "url", "url": "http://x"}})}, "image"),
    ("anthropic", {"messages": user({"type": "search_result"})}, "search_result"),
    ("anthropic", {"thinking": {"type": "enabled", "budget_tokens": 1024}}, "thinking"),
    ("anthropic", {"logprobs": True}, "logprobs"),
    ("anthropic", {"tools": [{"type": "bash_20250124", "name": "bash"}]}, "bash_20250124"),
    ("anthropic", {"mcp_servers": [{"name": "m"}]}, "mcp_servers"),
]


@pytest.mark.parametrize(("dialect", "more", "told"), REFUSED)
def test_what_a_text_model_cannot_do_is_refused_by_name(dialect: str, more: dict[str, Any], told: str) -> None:
    model = Scripted(["never"], name="tiny")
    status, body = Served(model).answer(dialect, {**ASK[dialect], **more})
    assert status == 400
    assert told in body["error"]["message"]
    assert ("type" in body) == (dialect == "anthropic")
    with pytest.raises(ModelError) as caught:
        Served(model).stream(dialect, {**ASK[dialect], **more})
    assert (caught.value.status, caught.value.body) == (status, body)
    assert model.requests == []


IDLE: list[tuple[str, dict[str, Any]]] = [
    ("chat", {"n": 1, "user": "u", "store": False, "logprobs": True, "modalities": ["text"], "seed": None}),
    ("responses", {"previous_response_id": None, "truncation": "disabled", "include": ["reasoning.encrypted_content"]}),
    ("responses", {"store": False, "metadata": {"a": "b"}, "reasoning": None, "text": None, "tools": []}),
    ("anthropic", {"thinking": {"type": "disabled"}, "service_tier": "auto", "temperature": 0.5}),
]


@pytest.mark.parametrize(("dialect", "more"), IDLE)
def test_what_asks_for_nothing_more_passes(dialect: str, more: dict[str, Any]) -> None:
    model = Scripted(["yes"])
    assert Served(model).answer(dialect, {**ASK[dialect], **more})[0] == 200
    asked = model.requests[0]
    assert {k: v for k, v in more.items() if k in ("logprobs", "temperature")}.items() <= asked.items()
    assert "store" not in asked


def test_errors_reach_the_clients_as_their_own(gpt: openai.OpenAI, claude: anthropic.Anthropic, script: Any) -> None:
    native = {"error": {"code": 400, "message": "too long", "type": "exceed_context_size_error", "n_ctx": 9}}
    long = "request (17 tokens) exceeds the available context size (9 tokens)"
    script(*(ModelError(long, status=400, body=native) for _ in range(3)), ModelError("down"))
    with pytest.raises(openai.BadRequestError, match="too long"):
        gpt.chat.completions.create(model="m", stream=True, **ASK["chat"])
    with pytest.raises(openai.BadRequestError) as refused:
        gpt.responses.create(model="m", **ASK["responses"])
    assert refused.value.code == "context_length_exceeded"
    with pytest.raises(anthropic.BadRequestError, match="exceeds the available"):
        claude.messages.create(model="m", **ASK["anthropic"])
    with pytest.raises(anthropic.InternalServerError, match="down"):
        claude.messages.create(model="m", stream=True, **ASK["anthropic"])


class Failing(Scripted):
    """Breaks after the third chunk, and tells when it was let go of."""

    closed = False

    def stream(self, body: Any) -> Any:
        try:
            for number, chunk in enumerate(super().stream(body)):
                if number == 3:
                    raise ModelError("out of memory")
                yield chunk
        finally:
            self.closed = True


def test_a_stream_that_breaks_ends_in_an_error(
    gpt: openai.OpenAI, claude: anthropic.Anthropic, upstream: tuple[str, Upstream]
) -> None:
    upstream[1].model = Failing(lambda body: "a long reply")
    with pytest.raises(openai.APIError, match="out of memory"):
        list(gpt.chat.completions.create(model="m", stream=True, **ASK["chat"]))
    *_, last = gpt.responses.create(model="m", stream=True, **ASK["responses"])
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert "out of memory" in last.response.error.message
    with pytest.raises(anthropic.APIStatusError, match="out of memory"):
        list(claude.messages.create(model="m", stream=True, **ASK["anthropic"]))


@pytest.mark.parametrize("dialect", ASK)
def test_closing_a_stream_stops_the_model(dialect: str) -> None:
    model = Failing(["a long reply"])
    stream = Served(model).stream(dialect, ASK[dialect])
    next(stream)
    assert not model.closed
    stream.close()
    assert model.closed


@pytest.mark.parametrize("dialect", ASK)
@pytest.mark.parametrize("reply", [SAY, LOOK, {"content": "Look:", "tool_calls": None}, ""])
def test_our_own_readers_find_the_same_in_both_ways(dialect: str, reply: Any) -> None:
    whole, pieces, events = reader(dialect), reader(dialect), Events()
    whole.body(Served(Scripted([reply])).answer(dialect, ASK[dialect])[1])
    asked = {**ASK[dialect], **({"stream_options": {"include_usage": True}} if dialect == "chat" else {})}
    with closing(Served(Scripted([reply])).stream(dialect, asked)) as stream:
        for event in events.feed(b"".join(stream)):
            pieces.event(event.name, json.loads(event.data) if event.data != "[DONE]" else None)
    one, other = whole.done(), pieces.done()
    assert one.usage == other.usage is not None
    assert one.finish == other.finish != ""
    assert said(one.messages) == said(other.messages)


def said(messages: Any) -> str:
    """The messages without what is made anew each time."""
    return json.dumps([{k: v for k, v in m.items() if k != "id"} for m in messages])


def test_a_reply_cut_short_says_so() -> None:
    class Cut(Scripted):
        def __call__(self, body: Any) -> Any:
            done = super().__call__(body)
            done["choices"][0]["finish_reason"] = "length"
            done["usage"]["prompt_tokens_details"] = {"cached_tokens": 2}
            return done

    served = Served(Cut(["a", "b", [Call("c", "look", '{"at": "th')]]))
    response = served.answer("responses", ASK["responses"])[1]
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert response["usage"]["input_tokens_details"] == {"cached_tokens": 2}
    message = served.answer("anthropic", ASK["anthropic"])[1]
    assert message["stop_reason"] == "max_tokens"
    assert message["usage"]["cache_read_input_tokens"] == 2
    assert served.answer("anthropic", ASK["anthropic"])[0] == 502, "arguments that are no JSON can't be a tool_use"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", "auto", "function", "text", "user"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "role", "content", "name", "format", "function", "a"]), inner, max_size=4
        )
    ),
    max_leaves=8,
)
FIELDS = ["messages", "input", "system", "instructions", "tools", "tool_choice", "text", "output_config", "stop", "n"]


@settings(max_examples=400)
@given(st.sampled_from(list(ASK)), st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=3))
def test_whatever_comes_is_answered_or_refused(dialect: str, more: dict[str, Any]) -> None:
    status, body = Served(Scripted(["yes"])).answer(dialect, {**ASK[dialect], **more})
    assert status in (200, 400)
    assert ("error" in body and body["error"] is not None) == (status == 400)


@pytest.mark.parametrize("body", [None, [], 5, "x", {}])
def test_a_body_that_is_none(body: Any) -> None:
    for dialect in ASK:
        assert Served(Scripted([])).answer(dialect, body)[0] == 400


def test_the_list_of_models(gpt: openai.OpenAI, script: Any) -> None:
    script()
    (model,) = gpt.models.list().data
    assert model.id == "tiny"
    assert model.model_extra == {"max_model_len": 2048}
