"""Hypothesis strategies: valid conversations in each dialect, as wire JSON."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from hypothesis import strategies as st

WORDS = [
    "ledger", "harbour", "tracking", "number", "RMA-2231", "7f3c9a52-0d41", "/srv/out.parquet", "合同编号",
    "こんにちは", "refund", "please", "the", "of", "3.14", "<|endoftext|>", "👩‍👩‍👧", "ok", "\n\n", "def f(x):", "é",
]  # fmt: skip


def _words(number: int) -> str:
    return " ".join(Random(number).choices(WORDS, k=1 + number % 60))


# One draw in the place of up to sixty: hypothesis takes longer over what it draws than we over what we do with it.
words = st.integers(0, 99_999).map(_words)
odd = st.sampled_from(["", " ", "\u0000", "\ud83d", "a" * 3000])
text = st.one_of(words, words, words, odd)
arguments = st.dictionaries(st.sampled_from(["q", "id", "path"]), words, max_size=2)


@st.composite
def chat(draw: st.DrawFn, *, pending: bool = True) -> list[dict[str, Any]]:
    """A chat conversation: steps with parallel calls answered in any order, developer messages, images, nulls."""
    messages: list[dict[str, Any]] = []
    if draw(st.booleans()):
        messages.append({"role": "system", "content": draw(words)})
    for turn in range(draw(st.integers(1, 6))):
        messages.append({"role": "user", "content": draw(_chat_content())})
        for step in range(draw(st.integers(0, 3))):
            messages.extend(_chat_step(draw, f"c{turn}_{step}"))
        if draw(st.booleans()):
            messages.append({"role": "assistant", "content": draw(text)})
        if draw(st.integers(0, 7)) == 0:
            messages.append({"role": "developer", "content": draw(words)})
    if pending and draw(st.integers(0, 3)) == 0:
        messages.append(_chat_step(draw, "open")[0])
    return messages


def _chat_content() -> st.SearchStrategy[Any]:
    image = st.just({"type": "image_url", "image_url": {"url": "data:image/png;base64," + "QUJD" * 500}})
    part = st.one_of(words.map(lambda t: {"type": "text", "text": t}), image)
    return st.one_of(text, text, st.lists(part, min_size=1, max_size=3))


def _chat_step(draw: st.DrawFn, name: str) -> list[dict[str, Any]]:
    ids = [f"{name}_{i}" for i in range(draw(st.integers(1, 3)))]
    calls = [
        {"id": i, "type": "function", "function": {"name": "look", "arguments": json.dumps(draw(arguments))}}
        for i in ids
    ]
    head = {"role": "assistant", "content": draw(st.one_of(st.none(), words)), "tool_calls": calls}
    results = [{"role": "tool", "tool_call_id": i, "content": draw(text)} for i in draw(st.permutations(ids))]
    return [head, *results]


@st.composite
def anthropic(draw: st.DrawFn) -> list[dict[str, Any]]:
    """An Anthropic conversation: thinking, results together in one user message with the user's own words."""
    messages: list[dict[str, Any]] = []
    for turn in range(draw(st.integers(1, 6))):
        messages.append({"role": "user", "content": draw(st.one_of(words, _blocks()))})
        for step in range(draw(st.integers(0, 3))):
            ids = [f"toolu_{turn}_{step}_{i}" for i in range(draw(st.integers(1, 3)))]
            head: list[Any] = []
            if draw(st.booleans()):
                head.append({"type": "thinking", "thinking": draw(words), "signature": f"sig{turn}{step}=="})
            head += [{"type": "tool_use", "id": i, "name": "look", "input": draw(arguments)} for i in ids]
            tail: list[Any] = [
                {"type": "tool_result", "tool_use_id": i, "content": draw(st.one_of(words, _blocks()))} for i in ids
            ]
            if draw(st.integers(0, 2)) == 0:
                tail.append({"type": "text", "text": draw(words)})
            messages += [{"role": "assistant", "content": head}, {"role": "user", "content": tail}]
        messages.append({"role": "assistant", "content": draw(st.one_of(words, _blocks()))})
    if draw(st.booleans()):
        messages.append({"role": "user", "content": draw(words)})
    return messages


def _blocks() -> st.SearchStrategy[Any]:
    block = words.map(lambda t: {"type": "text", "text": t, "cache_control": {"type": "ephemeral"}})
    return st.lists(block, min_size=1, max_size=2)


@st.composite
def responses(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Responses items: reasoning before calls, parallel calls, outputs in any order, other items between."""
    items: list[dict[str, Any]] = []
    for turn in range(draw(st.integers(1, 6))):
        items.append({"role": "user", "content": draw(words)})
        for step in range(draw(st.integers(0, 3))):
            ids = [f"fc_{turn}_{step}_{i}" for i in range(draw(st.integers(1, 3)))]
            if draw(st.booleans()):
                items.append(
                    {
                        "type": "reasoning",
                        "id": f"rs_{turn}_{step}",
                        "summary": [],
                        "encrypted_content": "gA==",
                    }
                )
            items += [
                {
                    "type": "function_call",
                    "call_id": i,
                    "name": "look",
                    "arguments": json.dumps(draw(arguments)),
                }
                for i in ids
            ]
            if draw(st.integers(0, 5)) == 0:
                items.append({"role": "user", "content": draw(words)})
            items += [
                {"type": "function_call_output", "call_id": i, "output": draw(text)} for i in draw(st.permutations(ids))
            ]
        answer = [{"type": "output_text", "text": draw(words), "annotations": []}]
        items.append(
            {
                "type": "message",
                "id": f"msg_{turn}",
                "role": "assistant",
                "status": "completed",
                "content": answer,
            }
        )
    return items


def any_dialect() -> st.SearchStrategy[tuple[str, list[dict[str, Any]]]]:
    """A dialect's name with a conversation in it."""
    return st.one_of(
        chat().map(lambda m: ("chat", m)),
        anthropic().map(lambda m: ("anthropic", m)),
        responses().map(lambda m: ("responses", m)),
    )
