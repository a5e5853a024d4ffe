"""Prompts of one message, as REA sends them: instruction, background, question (REA, Table 13).

The policy `rea` keeps roles, which chat endpoints are made for. This form is for comparing with the paper, and for
models that were tuned on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["one_message"]

ROLES = {"user": "User", "assistant": "Assistant"}


def one_message(messages: Sequence[Mapping[str, Any]], instructions: Sequence[str]) -> list[dict[str, Any]]:
    """A conversation of chat messages, plain text alone, as one user message.

    Args:
        messages: the conversation, its last message the question; system messages stay before it.
        instructions: standing instructions, which come first; a message that is one of them is not said twice.
    """
    system = [dict(message) for message in messages if message["role"] == "system"]
    *before, question = (message for message in messages if message["role"] != "system")
    said = {text.strip() for text in instructions}
    lines = [
        f"{ROLES[message['role']]}: {message['content']}"
        for message in before
        if str(message["content"]).strip() not in said
    ]
    head = "\n".join(text.strip() for text in instructions)
    text = f"Instruction: {head}\nBackground: {chr(10).join(lines)}\nQuestion: {question['content']}"
    return [*system, {"role": "user", "content": text}]
