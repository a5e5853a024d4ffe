"""One conformance suite over every dialect: nothing is lost on the way in and out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from forgetless import RequestError, compact
from forgetless.dialects.base import detect
from forgetless.registry import load_dialect
from strategies import any_dialect

DATA = "data:image/png;base64,QUJD"

CHAT = {
    "model": "gpt-4o",
    "temperature": 0.2,
    "x_unknown": {"a": [1, None]},
    "tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}],
    "messages": [
        {
            "role": "developer",
            "content": [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}],
        },
        {"content": "Keys in another order", "role": "user", "name": "ada"},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "look first",
            "tool_calls": [
                {
                    "id": "a",
                    "type": "function",
                    "function": {"name": "look", "arguments": '{"q": 1}'},
                    "index": 0,
                },
                {"id": "b", "type": "custom", "custom": {"name": "shell", "input": "ls"}},
            ],
        },
        {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "bin"}]},
        {"role": "tool", "tool_call_id": "a", "content": ""},
        {"role": "assistant", "content": "", "refusal": None, "annotations": []},
        {"role": "assistant", "content": None, "refusal": "I can't."},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"role": "assistant", "audio": {"id": "audio_1"}},
        {"role": "assistant", "tool_calls": [], "content": "empty list of calls"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "See"},
                {"type": "image_url", "image_url": {"url": DATA, "detail": "low"}},
                {"type": "input_audio", "input_audio": {"data": "UklG", "format": "wav"}},
                {"type": "file", "file": {"file_id": "file-1"}},
            ],
        },
        {"role": "assistant", "content": None, "function_call": {"name": "old", "arguments": "{}"}},
        {"role": "function", "name": "old", "content": "done"},
        {"role": "user", "content": []},
        {"role": "user", "content": "   "},
    ],
}

ANTHROPIC = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 100,
    "system": [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}],
    "tools": [{"name": "look", "input_schema": {"type": "object"}}],
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "messages": [
        {"role": "user", "content": "Hello"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "sig=="},
                {"type": "redacted_thinking", "data": "AAAA" * 20},
                {"type": "text", "text": "Let me look.", "citations": None},
                {
                    "type": "tool_use",
                    "id": "t1",
                    "name": "look",
                    "input": {"q": ["x"]},
                    "caller": {"type": "direct"},
                },
                {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "y"}},
                {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "is_error": True,
                    "content": [
                        {"type": "text", "text": "no"},
                        {
                            "type": "image",
                            "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"},
                        },
                    ],
                },
                {"type": "text", "text": "and mind this", "cache_control": {"type": "ephemeral"}},
                {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}},
            ],
        },
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t2", "name": "look", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t2"}]},
        {"role": "assistant", "content": []},
    ],
}

RESPONSES = {
    "model": "gpt-5",
    "instructions": "Be kind.",
    "store": False,
    "input": [
        {"role": "user", "content": "Hello"},
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Short."}]},
        {
            "type": "reasoning",
            "id": "rs",
            "summary": [{"type": "summary_text", "text": "s"}],
            "encrypted_content": "gAAA",
        },
        {
            "type": "function_call",
            "id": "fc",
            "call_id": "c1",
            "name": "look",
            "arguments": "{}",
            "status": "completed",
        },
        {"type": "custom_tool_call", "call_id": "c2", "name": "sh", "input": "ls"},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "x"}]},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": ""},
        {
            "type": "computer_call",
            "call_id": "c3",
            "id": "cu",
            "action": {"type": "screenshot"},
            "status": "completed",
        },
        {
            "type": "computer_call_output",
            "call_id": "c3",
            "output": {"type": "computer_screenshot", "image_url": DATA},
        },
        {"type": "shell_call", "call_id": "c4", "action": {"commands": ["ls"]}},
        {
            "type": "shell_call_output",
            "call_id": "c4",
            "output": [{"stdout": "a", "stderr": "", "outcome": {}}],
        },
        {
            "type": "web_search_call",
            "id": "ws",
            "status": "completed",
            "action": {"type": "search", "query": "q"},
        },
        {
            "type": "mcp_approval_request",
            "id": "ap",
            "name": "buy",
            "arguments": "{}",
            "server_label": "shop",
        },
        {"type": "mcp_approval_response", "approval_request_id": "ap", "approve": True},
        {"type": "item_reference", "id": "msg_9"},
        {"type": "compaction", "encrypted_content": "gAAA"},
        {
            "type": "message",
            "id": "m",
            "role": "assistant",
            "status": "completed",
            "content": [
                {"type": "output_text", "text": "Hi", "annotations": []},
                {"type": "refusal", "refusal": "no"},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "input_image", "image_url": DATA}, {"type": "input_file", "file_id": "f"}],
        },
    ],
}

BODIES = {"chat": CHAT, "anthropic": ANTHROPIC, "responses": RESPONSES}
KEY = {"chat": "messages", "anthropic": "messages", "responses": "input"}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_with_everything_comes_back_as_it_was(name: str) -> None:
    dialect, body = load_dialect(name), BODIES[name]
    for request in (body, body[KEY[name]]):
        parsed = dialect.parse(request)
        assert json.dumps(dialect.emit(parsed, parsed.messages)) == json.dumps(request)
        assert detect(request) == name


@pytest.mark.parametrize("name", BODIES)
def test_each_message_alone_comes_back_as_it_was(name: str) -> None:
    dialect = load_dialect(name)
    for wire in BODIES[name][KEY[name]]:
        parsed = dialect.parse([wire])
        assert json.dumps(dialect.emit(parsed, parsed.messages)) == json.dumps([wire])


@given(any_dialect())
def test_any_conversation_comes_back_as_it_was(conversation: tuple[str, Any]) -> None:
    name, messages = conversation
    dialect = load_dialect(name)
    parsed = dialect.parse(messages)
    assert json.dumps(dialect.emit(parsed, parsed.messages)) == json.dumps(messages)


def test_a_string_input_of_responses_stays_a_string() -> None:
    body = {"model": "gpt-5", "input": "Hello", "instructions": "Be kind."}
    done = compact(body, budget=1000)
    assert done.request == body
    assert [entry.messages for entry in done.ledger] == [(-1,), (0,)]


def test_tool_schemas_count_and_system_fields_are_index_minus_one() -> None:
    for name, body in BODIES.items():
        done = compact(body, budget=100_000)
        bare = compact(body[KEY[name]], budget=100_000, dialect=name)
        assert done.tokens > bare.tokens
        assert (done.ledger[0].messages == (-1,)) == (name != "chat")


@pytest.mark.parametrize(
    ("dialect", "messages", "index"),
    [
        ("anthropic", [{"role": "user", "content": "a"}, {"role": "tool", "content": "b"}], 1),
        ("chat", [{"role": "narrator", "content": "a"}], 0),
        ("chat", [{"role": "user", "content": 3}], 0),
        ("chat", [{"role": ["user"], "content": "a"}], 0),
        ("chat", [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]}], 0),
        ("anthropic", [{"role": "assistant", "content": "", "tool_calls": [{"id": "a"}]}], 0),
        ("responses", [{"role": [1], "content": "a"}], 0),
        ("chat", ["hello"], 0),
        ("chat", [{"role": "user", "content": [{"text": "no type"}]}], 0),
        ("chat", [{"role": "assistant", "content": "", "tool_calls": "x"}], 0),
        ("responses", [{"id": "x"}], 0),
        ("responses", [{"type": "message", "role": "tool", "content": ""}], 0),
    ],
)
def test_what_is_not_of_the_dialect_is_named(dialect: str, messages: Any, index: int) -> None:
    with pytest.raises(RequestError) as error:
        compact(messages, budget=100, dialect=dialect)
    assert error.value.message == index
    assert str(error.value).startswith(f"message {index}: ")


@pytest.mark.parametrize("body", [{"messages": "hello"}, {"model": "x"}, {"input": 3}])
def test_a_body_without_a_list_of_messages_is_refused(body: Any) -> None:
    with pytest.raises(RequestError, match=r"must be a list|has no 'messages'"):
        compact(body, budget=100)


def test_a_body_of_two_dialects_is_refused_and_an_empty_field_is_none() -> None:
    messages = [{"role": "user", "content": "hi"}]
    with pytest.raises(RequestError, match="both 'messages' and 'input'"):
        compact({"messages": messages, "input": "hi"}, budget=100)
    assert compact({"messages": messages, "input": []}, budget=100).dialect == "chat"


def test_reasoning_of_an_unknown_shape_is_passed_on() -> None:
    items = [{"role": "user", "content": "a"}, {"type": "reasoning", "id": "r", "summary": 5}]
    assert compact(items, budget=100, dialect="responses").request == items


@pytest.mark.parametrize(
    "field",
    [
        {"reasoning_content": ""},
        {"reasoning_content": None},
        {"reasoning": "hm", "reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
        {"thinking_blocks": [{"type": "thinking", "thinking": "hm " * 50, "signature": "s"}]},
    ],
)
def test_reasoning_under_any_name_comes_back_and_counts(field: dict[str, Any]) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "hi", **field}]
    done = compact(messages, budget=1000)
    assert json.dumps(done.request) == json.dumps(messages)
    bare = compact([messages[0], {"role": "assistant", "content": "hi"}], budget=1000)
    assert (done.tokens > bare.tokens) == any(field.values())


def test_the_output_shares_no_block_with_the_input() -> None:
    for name, body in BODIES.items():
        done = compact(body, budget=100_000, dialect=name)
        before = json.dumps(body)
        for message in done.request[KEY[name]]:
            message["mark"] = 1
            for block in message["content"] if isinstance(message.get("content"), list) else ():
                block["cache_control"] = {"type": "ephemeral"}
        assert json.dumps(body) == before
