"""Exchanges as a proxy writes them, for tests of what keeps and shows them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from forgetless.stores.base import Exchange, Node

__all__ = ["exchange", "keys_of", "nodes_of", "row"]


def keys_of(said: Sequence[str]) -> list[bytes]:
    """Rolling keys of messages."""
    keys: list[bytes] = []
    for text in said:
        keys.append(
            blake2b((keys[-1] if keys else b"") + text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        )
    return keys


def nodes_of(said: Sequence[str]) -> tuple[Node, ...]:
    """Messages by turns of a user and an assistant."""
    keys = keys_of(said)
    roles = [("user", "assistant")[n % 2] for n in range(len(said))]
    wires = [json.dumps({"role": r, "content": t}).encode() for r, t in zip(roles, said, strict=True)]
    return tuple(map(Node, keys, [b"", *keys], roles, map(len, said), wires))


def row(unit: int, form: str = "raw", reason: str = "fits") -> list[Any]:
    """A row of a ledger."""
    return [unit, [unit], form, False, None, reason, 10, 10 if form == "raw" else 0]


def exchange(
    ident: str, said: Sequence[str], *, caller: str = "ann", conversation: str = "c1", **more: Any
) -> Exchange:
    """A request and its reply, which is the last of what was said; it brings all its messages."""
    nodes = nodes_of(said)
    given: dict[str, Any] = {"at": 1000.0, "dialect": "chat", "model": "m", "policy": "bm25", "nodes": nodes}
    given["head"] = nodes[-1].key if nodes else b""
    return Exchange(id=ident, caller=caller, conversation=conversation, **(given | more))
