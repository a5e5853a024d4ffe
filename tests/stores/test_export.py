"""Conversations as JSON lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

from exchanges import exchange, nodes_of
from forgetless.stores.base import Conversation, Store
from forgetless.stores.export import lines
from forgetless.stores.inmemory import InMemory


def parsed(store: Store, **only: str) -> list[Any]:
    found = list(lines(store, **only))
    assert all(line.endswith(b"}\n") and line.count(b"\n") == 1 for line in found)
    return [json.loads(line) for line in found]


def test_a_line_for_each_branch_with_its_messages_and_requests() -> None:
    with closing(InMemory()) as store:
        first = exchange("r1", ["a", "b"], at=1.0, system=(b'"old"',), tokens_before=9, tokens_after=5, budget=7)
        store.write([first, exchange("r2", ["a", "b", "c"], at=2.0, system=(b'{"content":"new"}',))])
        store.write([exchange("r3", ["a", "x"], at=3.0, input_tokens=4, policy="fifo")])
        newest, oldest = parsed(store)
    assert [newest["branch"], oldest["branch"]] == [0, 1]
    assert newest["messages"] == [{"role": "user", "content": "a"}, {"role": "assistant", "content": "x"}]
    assert [m.get("content") for m in oldest["messages"]] == ["new", "a", "b", "c"]
    assert {key: value for key, value in oldest.items() if key not in ("messages", "requests")} == {
        "conversation": "c1",
        "caller": "ann",
        "dialect": "chat",
        "model": "m",
        "policy": "fifo",
        "created": 1.0,
        "updated": 3.0,
        "branch": 1,
    }
    assert [r["id"] for r in oldest["requests"]] == ["r1", "r2"]
    assert oldest["requests"][0] == {
        "id": "r1",
        "at": 1.0,
        "outcome": "unchanged",
        "status": 200,
        "budget": 7,
        "tokens_before": 9,
        "tokens_after": 5,
        "reused_tokens": 0,
        "input_tokens": None,
        "cached_tokens": None,
        "output_tokens": None,
        "model": "m",
        "policy": "bm25",
        "scorer": "",
    }


def test_messages_stand_in_it_byte_for_byte_but_for_line_breaks_between_tokens() -> None:
    wires = [rb'{"b":1e5, "a":"\u00e9\ud83d\n"}', '{"role":"user","content":"漢\u2028"}'.encode(), b'{\r\n  "x" :\n1}']
    nodes = [node._replace(wire=wire) for node, wire in zip(nodes_of(["1", "2", "3"]), wires, strict=True)]
    with closing(InMemory()) as store:
        store.write([exchange("r1", ["1", "2", "3"], nodes=tuple(nodes))])
        (line,) = lines(store)
    assert b'"messages":[' + b",".join([*wires[:2], b'{    "x" : 1}']) + b"]," in line


def test_without_contents_a_message_is_its_role_and_tokens() -> None:
    with closing(InMemory(contents=False)) as store:
        store.write([exchange("r1", ["a", "bcd"], system=(b'"s"',))])
        (line,) = parsed(store)
    assert line["messages"] == [{"role": "user", "tokens": 1}, {"role": "assistant", "tokens": 3}]


def test_only_one_caller_or_conversation() -> None:
    with closing(InMemory()) as store:
        for caller in ("ann", "bob"):
            for name in ("c1", "c2"):
                store.write([exchange(f"{caller}-{name}", ["a"], caller=caller, conversation=name)])
        assert len(parsed(store)) == 4
        assert {line["conversation"] for line in parsed(store, caller="bob")} == {"c1", "c2"}
        assert [line["caller"] for line in parsed(store, caller="bob", conversation="c2")] == ["bob"]
        assert parsed(store, conversation="none") == []


def test_it_holds_one_branch_at_a_time() -> None:
    class Counting(InMemory):
        alive = 0

        def branches(self, caller: str, conversation: str) -> Iterator[Conversation]:
            for branch in super().branches(caller, conversation):
                self.alive += 1
                yield branch

    with closing(Counting()) as store:
        store.write([exchange(f"r{n}", ["a", f"b{n}"]) for n in range(5)])
        found = lines(store)
        next(found)
        assert store.alive == 1
        store.purge()
        rest = [json.loads(line)["messages"] for line in found]
        assert [m for m in rest if m] == [], "what is purged meanwhile does not come"


Make = Callable[..., Store]


def test_every_kind_of_store_exports_the_same(make: Make) -> None:
    store = make()
    with closing(InMemory()) as other:
        for each in (store, other):
            each.write([exchange(f"r{n}", ["a", f"b{n % 3}", f"c{n}"], at=float(n)) for n in range(9)])
        assert list(lines(store)) == list(lines(other))
