"""Translation: what both dialects can say passes, the rest is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from forgetless import RequestError
from forgetless.dialects.translate import to_anthropic, to_chat
from forgetless.registry import load_dialect

DATA = "data:image/png;base64,QUJD"


def test_translation_to_anthropic_merges_results_and_drops_what_it_refuses() -> None:
    wire = [
        {"role": "system", "content": "You help."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "See"}, {"type": "image_url", "image_url": {"url": DATA}}],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"q": 1}'}},
                {"id": "b", "type": "function", "function": {"name": "look", "arguments": ""}},
            ],
        },
        {"role": "tool", "tool_call_id": "b", "content": "two"},
        {"role": "tool", "tool_call_id": "a", "content": "one"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "Go on"},
    ]
    messages = to_anthropic(load_dialect("chat").parse(wire).messages)
    target = load_dialect("anthropic")
    body = target.emit(target.parse({"system": "You help.", "messages": []}), messages)
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}}
    assert body == {
        "system": "You help.",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "See"}, image]},
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": "a", "name": "look", "input": {"q": 1}},
                    {"type": "tool_use", "id": "b", "name": "look", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "b", "content": "two"},
                    {"type": "tool_result", "tool_use_id": "a", "content": "one"},
                ],
            },
            {"role": "user", "content": "Go on"},
        ],
    }
    chat = load_dialect("chat")
    back = chat.emit(chat.parse([]), to_chat(target.parse(body).messages))
    assert [m["role"] for m in back] == ["system", "user", "assistant", "tool", "tool", "user"]
    assert back[1] == wire[1]


@pytest.mark.parametrize(
    "wire",
    [
        {"role": "assistant", "content": None, "refusal": "no"},
        {
            "role": "user",
            "content": [{"type": "input_audio", "input_audio": {"data": "UklG", "format": "wav"}}],
        },
        {"role": "user", "content": [{"type": "file", "file": {"file_id": "file-1"}}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "[1]"}}],
        },
    ],
)
def test_what_can_not_be_translated_is_refused_by_name(wire: Any) -> None:
    with pytest.raises(RequestError):
        to_anthropic(load_dialect("chat").parse([wire]).messages)
