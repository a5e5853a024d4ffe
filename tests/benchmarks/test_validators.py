"""Validators: they accept what providers' own types accept, and name each fault that is put in."""

import copy
from random import Random

import pytest
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
from pydantic import TypeAdapter
from pydantic_core import SchemaValidator

from forgetless.benchmarks.histories import DIALECTS, make
from forgetless.benchmarks.promises import VALIDATORS
from forgetless.benchmarks.validators import anthropic, chat, responses

RULES = {"chat": chat.RULES, "responses": responses.RULES, "anthropic": anthropic.RULES}
EACH = 4  # faults of each kind
PARAMS = {
    "chat": CompletionCreateParamsNonStreaming,
    "responses": ResponseCreateParamsNonStreaming,
    "anthropic": MessageCreateParamsNonStreaming,
}


def first(items, test):
    """Index of the first item that passes; no such item makes the mutation unfit for this history."""
    return next(i for i, item in enumerate(items) if test(item))


def user(messages):
    return messages[first(messages, lambda m: m.get("role") == "user")]


def blocks(message, kind):
    content = message.get("content")
    return [b for b in content if b["type"] == kind] if isinstance(content, list) else []


def content(value, role="user"):
    def put(messages, body):
        messages[first(messages, lambda m: m.get("role") == role)]["content"] = value

    return put


def insert(at, *items):
    return lambda messages, body: messages.__setitem__(slice(at, at), copy.deepcopy(items))


# --- chat


def step(messages):
    return first(messages, lambda m: m.get("tool_calls") and m["tool_calls"][0]["type"] == "function")


def chat_call(change):
    return lambda messages, body: change(messages[step(messages)]["tool_calls"])


def tool(messages):
    return first(messages, lambda m: m["role"] == "tool")


ORPHAN = {"role": "tool", "tool_call_id": "call_nowhere", "content": "x"}
WORDS = {"role": "user", "content": "wait"}

CHAT = {
    "empty_messages": lambda m, b: m.clear(),
    "bad_role": lambda m, b: m[0].update(role="robot"),
    "bad_content_type": content(5),
    "null_content": content(None),
    "empty_content": content([]),
    "bad_block": content([{"type": "refusal", "refusal": "no"}]),
    "bad_text": content([{"type": "text", "text": None}]),
    "image_without_source": content([{"type": "image_url", "image_url": {"url": ""}}]),
    "audio_without_source": content([{"type": "input_audio", "input_audio": {"format": "wav"}}]),
    "file_without_source": content([{"type": "file", "file": {"filename": "a.pdf"}}]),
    "empty_calls": lambda m, b: m[step(m)].update(tool_calls=[], content="x"),
    "bad_call": chat_call(lambda calls: calls[0]["function"].pop("name")),
    "missing_id": chat_call(lambda calls: calls[0].pop("id")),
    "arguments_not_json": chat_call(lambda calls: calls[0]["function"].update(arguments='{"a": ')),
    "duplicate_call_id": chat_call(lambda calls: calls.append(calls[0])),
    "orphan_result": insert(0, ORPHAN),
    "result_not_adjacent": lambda m, b: m.insert(tool(m), WORDS),
    "duplicate_result": lambda m, b: m.insert(tool(m), m[tool(m)]),
    "missing_result": lambda m, b: m.pop(tool(m)),
}

# --- anthropic


def used(messages):
    return first(messages, lambda m: blocks(m, "tool_use"))


def answered(messages):
    return first(messages, lambda m: blocks(m, "tool_result"))


def use(change):
    return lambda messages, body: change(blocks(messages[used(messages)], "tool_use")[0])


def result(change):
    return lambda messages, body: change(messages[answered(messages)]["content"])


def thought(change):
    def put(messages, body):
        change(messages[first(messages, lambda m: blocks(m, "thinking"))]["content"])

    return put


def served(kind):
    def put(messages, body):
        content = messages[first(messages[:-1], lambda m: blocks(m, kind))]["content"]
        content.pop(first(content, lambda b: b["type"] == kind))

    return put


def unthinking(messages, body):
    body["thinking"] = {"type": "enabled", "budget_tokens": 1024}
    call = {"type": "tool_use", "id": "toolu_new", "name": "t", "input": {}}
    answer = {"type": "tool_result", "tool_use_id": "toolu_new", "content": "x"}
    messages += [WORDS, {"role": "assistant", "content": [call]}, {"role": "user", "content": [answer]}]


def marked(messages, body):
    block = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}
    user(messages)["content"] = [block] * 5


ANTHROPIC = {
    "empty_messages": lambda m, b: m.clear(),
    "bad_role": lambda m, b: m[0].update(role="developer"),
    "first_not_user": insert(0, {"role": "assistant", "content": "Hello"}),
    "system_misplaced": insert(0, {"role": "system", "content": "Be brief"}),
    "bad_content_type": content(None),
    "empty_content": content([]),
    "empty_text": content([{"type": "text", "text": ""}]),
    "whitespace_text": content(" \n\t"),
    "bad_block": content([{"type": "thinking", "thinking": "x", "signature": "x"}]),
    "image_without_source": content([{"type": "image"}]),
    "file_without_source": content([{"type": "document", "source": {"type": "base64"}}]),
    "bad_call_id": use(lambda block: block.update(id="call|1")),
    "input_not_object": use(lambda block: block.update(input="{}")),
    "duplicate_call_id": lambda m, b: m[used(m)]["content"].append(blocks(m[used(m)], "tool_use")[0]),
    "orphan_result": result(lambda content: content[0].update(tool_use_id="toolu_nowhere")),
    "result_not_adjacent": lambda m, b: m.insert(answered(m), WORDS),
    "duplicate_result": result(lambda content: content.insert(0, content[0])),
    "missing_result": result(lambda content: content.pop(0)),
    "result_after_text": result(lambda content: content.insert(0, {"type": "text", "text": "Here:"})),
    "server_result_without_use": served("server_tool_use"),
    "server_use_without_result": served("web_search_tool_result"),
    "thinking_unsigned": thought(lambda c: c[first(c, lambda b: b["type"] == "thinking")].pop("signature")),
    "thinking_changed": thought(lambda c: c[first(c, lambda b: b["type"] == "thinking")].update(thinking="y")),
    "thinking_not_first": unthinking,
    "thinking_last": thought(lambda content: content.append(content[0])),
    "final_assistant_trailing_space": lambda m, b: m.append({"role": "assistant", "content": "Sure: "}),
    "too_many_cache_marks": marked,
    "bad_cache_mark": thought(lambda c: c[0].update(cache_control={"type": "ephemeral"})),
}

# --- responses


def of(kind):
    return lambda items: items[first(items, lambda i: i.get("type") == kind)]


def item(kind, change):
    return lambda items, body: change(of(kind)(items))


def placed(kind, change):
    return lambda items, body: change(items, first(items, lambda i: i.get("type") == kind))


RESPONSES = {
    "empty_messages": lambda m, b: m.clear(),
    "bad_role": lambda m, b: user(m).update(role="tool"),
    "bad_item": insert(0, {"type": "thought", "text": "x"}),
    "bad_content_type": content(None),
    "empty_content": content([]),
    "bad_block": content([{"type": "output_text", "text": "x"}]),
    "bad_text": content([{"type": "input_text"}]),
    "image_without_source": content([{"type": "input_image", "detail": "auto"}]),
    "file_without_source": content([{"type": "input_file", "filename": "a.pdf"}]),
    "bad_item_id": item("function_call", lambda call: call.update(id="call_1")),
    "duplicate_item_id": placed("reasoning", lambda m, at: m.insert(at, m[at])),
    "missing_id": item("function_call", lambda call: call.pop("call_id")),
    "duplicate_call_id": placed("function_call", lambda m, at: m.insert(at, {**m[at], "id": "fc_other"})),
    "arguments_not_json": item("function_call", lambda call: call.update(arguments={"a": 1})),
    "bad_output_type": item("function_call_output", lambda output: output.update(output=None)),
    "output_without_call": placed("function_call", lambda m, at: m.pop(at)),
    "duplicate_output": placed("function_call_output", lambda m, at: m.insert(at, m[at])),
    "call_without_output": placed("function_call_output", lambda m, at: m.pop(at)),
    "reasoning_without_follower": placed("reasoning", lambda m, at: m.pop(at + 1)),
    "item_without_reasoning": placed("reasoning", lambda m, at: m[at + 1]["id"] and m.pop(at)),
    "reasoning_changed": item("reasoning", lambda reasoning: reasoning.update(encrypted_content="gAAAAother")),
}

MUTATIONS = {"chat": CHAT, "responses": RESPONSES, "anthropic": ANTHROPIC}
FAULTS = [(dialect, kind) for dialect in DIALECTS for kind in MUTATIONS[dialect]]


def whole(history):
    """The history as a body with a list of messages."""
    key = "input" if history.dialect == "responses" else "messages"
    body = history.body if isinstance(history.body, dict) else {}
    return {**copy.deepcopy(body), key: copy.deepcopy(history.messages)}, key


def inject(dialect, kind, many):
    """As many histories with the fault as asked for, from the first seeds that it can be put in."""
    found = 0
    for seed in range(2_000):
        history = make(seed, dialect)
        body, key = whole(history)
        origin = copy.deepcopy(body)
        if history.pending:
            continue
        try:
            MUTATIONS[dialect][kind](body[key], body)
        except (StopIteration, KeyError):
            continue
        yield body, origin
        found += 1
        if found == many:
            return
    pytest.fail(f"{kind} could be put into {found} histories only")


def test_enough_kinds_and_each_has_its_rule():
    assert len(FAULTS) * EACH >= 200
    assert len({kind for _, kind in FAULTS}) >= 20
    for dialect in DIALECTS:
        assert set(MUTATIONS[dialect]) == set(RULES[dialect])


@pytest.mark.parametrize(("dialect", "kind"), FAULTS)
def test_names_the_fault(dialect, kind):
    for body, origin in inject(dialect, kind, EACH):
        assert VALIDATORS[dialect](origin, origin=origin) == []
        faults = VALIDATORS[dialect](body, origin=origin)
        assert kind in {fault.kind for fault in faults}, faults
        assert {fault.kind for fault in faults} <= set(RULES[dialect])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_accepts_valid_histories(dialect):
    for seed in range(400):
        history = make(seed, dialect)
        assert VALIDATORS[dialect](history.body, pending_ok=history.pending, origin=history.body) == []
        if history.pending:
            assert VALIDATORS[dialect](history.body)


def test_pending_calls_are_allowed_at_the_end_only():
    for dialect in DIALECTS:
        history = next(h for h in (make(seed, dialect) for seed in range(200)) if h.pending)
        body, key = whole(history)
        body[key].append({"role": "user", "content": "and?"})
        assert VALIDATORS[dialect](body, pending_ok=True)


def eager(schema):
    """Pydantic checks an `Iterable` when it is consumed; as a list it is checked at once."""
    if isinstance(schema, dict):
        changed = {key: eager(value) for key, value in schema.items()}
        return {**changed, "type": "list"} if changed.get("type") == "generator" else changed
    return [eager(value) for value in schema] if isinstance(schema, list) else schema


@pytest.mark.parametrize("dialect", DIALECTS)
def test_valid_histories_are_of_the_types_of_the_providers(dialect):
    provider = SchemaValidator(eager(TypeAdapter(PARAMS[dialect]).core_schema))
    with pytest.raises(ValueError, match="role"):
        provider.validate_python({"model": "m", "max_tokens": 1, "messages": [{"content": "x"}], "input": [{}]})
    for seed in range(300):
        body, _ = whole(make(seed, dialect))
        provider.validate_python({"model": "m", **({"max_tokens": 1} if dialect == "anthropic" else {}), **body})


def test_histories_are_what_their_seed_says():
    for seed in Random(1).sample(range(10_000), 30):
        for dialect in DIALECTS:
            history = make(seed, dialect)
            assert history == make(seed, dialect)
            assert 1 <= len(history.messages) <= 90
            assert all(0 <= pin < len(history.messages) for pin in history.pins)
