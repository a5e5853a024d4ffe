"""Conversations as JSON lines, a branch a line: what the scorers learn from, and what a user takes along."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Final

import msgspec

from forgetless.stores.base import Conversation, Store, Summary

__all__ = ["lines", "members"]

MEMBERS: Final = ("conversation", "caller", "dialect", "model", "policy", "created", "updated")

REQUEST: Final = (
    *("id", "at", "outcome", "status", "budget", "tokens_before", "tokens_after", "reused_tokens"),
    *("input_tokens", "cached_tokens", "output_tokens", "model", "policy", "scorer"),
)


def lines(store: Store, caller: str | None = None, conversation: str | None = None) -> Iterator[bytes]:
    """Every branch as one line with a newline at its end; one branch is held at a time.

    Messages stand in it byte for byte, but that a line break between two tokens of their JSON becomes a blank. Where
    contents were off a message is its role and its tokens.

    Args:
        store: where they are kept.
        caller: only this caller's.
        conversation: only the one with this id.
    """
    for summary in store.conversations(caller):
        if conversation in (None, summary.conversation):
            for number, branch in enumerate(store.branches(summary.caller, summary.conversation)):
                yield _line(branch, number)


def members(summary: Summary) -> dict[str, object]:
    """What a line says of its conversation."""
    found = asdict(summary)
    return {name: found[name] for name in MEMBERS}


def _line(branch: Conversation, number: int) -> bytes:
    encode = msgspec.json.encode
    bare = (
        encode({"role": node.role, "tokens": node.tokens}) if node.wire is None else node.wire for node in branch.nodes
    )
    wires = (*branch.system, *bare)
    messages = b",".join(wire.replace(b"\r", b" ").replace(b"\n", b" ") for wire in wires)
    requests = encode([{name: getattr(request, name) for name in REQUEST} for request in branch.exchanges])
    head = encode({**members(branch.summary), "branch": number})[:-1]
    return head + b',"messages":[' + messages + b'],"requests":' + requests + b"}\n"
