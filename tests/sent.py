"""What a client sent and what its provider got in its place, and all that is promised of the two."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from forgetless.benchmarks.validators import anthropic, chat, responses
from forgetless.intake import Terms, take

__all__ = ["KEYS", "Pair", "breaks", "check", "count", "pieces", "subsequence"]

KEYS = {"chat": "messages", "responses": "input", "anthropic": "messages"}

VALIDATORS = {"chat": chat.validate, "responses": responses.validate, "anthropic": anthropic.validate}

Pair = tuple[bytes, bytes]
"""A body as its client sent it, and as its provider got it."""


def count(body: Any) -> int:
    """Tokens of a whole request, as forgetless estimates them."""
    return take(body, Terms(10**9)).tokens


def pieces(body: bytes, key: str = "messages") -> list[bytes]:
    """The bytes of each message in a body."""
    return [
        bytes(raw)
        for raw in msgspec.json.decode(
            msgspec.json.decode(body, type=dict[str, msgspec.Raw])[key], type=list[msgspec.Raw]
        )
    ]


def fields(body: bytes, key: str) -> list[tuple[str, bytes]]:
    """The bytes of each other field, in order."""
    found = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    return [(name, bytes(raw)) for name, raw in found.items() if name != key]


def subsequence(some: Sequence[bytes], all_: Sequence[bytes]) -> bool:
    """Whether `some` stands in `all_` in the same order."""
    rest: Iterator[bytes] = iter(all_)
    return all(one in rest for one in some)


def bare(piece: bytes) -> str:
    """A message without cache marks, which clients move about and which no provider's cache looks at."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: strip(inner) for name, inner in value.items() if name != "cache_control"}
        return [strip(inner) for inner in value] if isinstance(value, list) else value

    return json.dumps(strip(json.loads(piece)))


def breaks(bodies: Sequence[bytes], key: str = "messages") -> int:
    """How many requests do not begin with the whole of the one before."""
    made = [[bare(piece) for piece in pieces(body, key)] for body in bodies]
    return sum(now[: len(before)] != before for before, now in pairwise(made))


def check(pairs: Sequence[Pair], dialect: str, budget: int, *, selects: bool = True) -> int:
    """Assert all that is promised of the requests of one conversation; says how many evictions there were.

    Args:
        pairs: its requests in order.
        dialect: of them all.
        budget: of the proxy.
        selects: whether the policy keeps or drops whole messages and changes none.
    """
    key = KEYS[dialect]
    evicted = False
    for came, went in pairs:
        faults = VALIDATORS[dialect](json.loads(went), origin=json.loads(came))
        assert faults == []
        assert count(json.loads(went)) <= budget
        assert fields(came, key) == fields(went, key)
        if selects:
            assert subsequence(pieces(went, key), pieces(came, key))
        evicted = evicted or count(json.loads(came)) > budget
        assert evicted or came == went, "under the budget nothing changes"
    return breaks([went for _, went in pairs], key)
