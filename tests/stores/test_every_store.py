"""What every store promises, in memory, in SQLite, in PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exchanges import exchange, keys_of, nodes_of, row
from forgetless.errors import StoreError
from forgetless.stores.base import Exchange, Node, Place, Store

Make: TypeAlias = Callable[..., Store]

HELLO = ["hello", "hi", "how are you", "well"]


def one(store: Store, caller: str = "ann", conversation: str = "c1") -> Any:
    (branch,) = store.branches(caller, conversation)
    return branch


def test_what_is_written_is_read_back_whole(store: Store) -> None:
    written = exchange(
        "r1",
        HELLO,
        scorer="lre-1",
        outcome="compacted",
        status=201,
        budget=900,
        tokens_before=1000,
        tokens_after=800,
        reused_tokens=300,
        input_tokens=790,
        cached_tokens=0,
        output_tokens=20,
        system=(b'"be kind"', b'{"role":"system","content":"be short"}', b'"be kind"'),
        rows=(row(0), [1, [1, 2], "omitted", True, 0.125, "over_budget", 7, 0]),
    )
    store.write([written])
    assert store.request("ann", "r1") == replace(written, nodes=())
    branch = one(store)
    assert branch.nodes == nodes_of(HELLO)
    assert branch.system == written.system
    assert branch.exchanges == (replace(written, nodes=(), rows=()),)
    (summary,) = store.conversations()
    assert branch.summary == summary
    assert (summary.caller, summary.conversation, summary.dialect, summary.model) == ("ann", "c1", "chat", "m")
    assert (summary.messages, summary.requests, summary.tokens_before, summary.tokens_after) == (4, 1, 1000, 800)
    assert store.check() == []


def test_what_is_not_there_is_none(store: Store) -> None:
    assert store.conversations() == []
    assert list(store.branches("ann", "c1")) == []
    assert store.locate("ann", keys_of(HELLO)) is None
    assert store.locate("ann", []) is None
    assert store.state("ann", "c1", keys_of(HELLO)) is None
    assert store.memory("ann", "c1", []) is None
    assert store.request("ann", "r1") is None
    assert store.pins("ann", "c1") == frozenset()
    assert store.purge() == 0
    store.write([])
    store.pin("ann", "c1", b"k", on=False)
    assert store.conversations() == [], "taking a pin away begins no conversation"


def test_an_id_that_is_there_is_left_as_it_is(store: Store) -> None:
    first = exchange("r1", HELLO[:2], at=10.0, state=b"first")
    store.write([first, exchange("r1", HELLO, at=30.0, state=b"twice in a batch")])
    store.write([exchange("r1", HELLO, at=20.0, state=b"second", model="other")])
    assert store.request("ann", "r1") == replace(first, nodes=(), state=None)
    assert store.state("ann", "c1", keys_of(HELLO)) == b"first"
    (summary,) = store.conversations()
    assert (summary.created, summary.updated, summary.messages, summary.model) == (10.0, 10.0, 2, "m")


def test_a_known_message_stays_as_it_is(store: Store) -> None:
    store.write([exchange("r1", HELLO[:2])])
    marked = tuple(replace_wire(node, b'{"cache_control":1}') for node in nodes_of(HELLO))
    store.write([exchange("r2", HELLO, nodes=marked)])
    assert [node.wire for node in one(store).nodes] == [
        *(node.wire for node in nodes_of(HELLO)[:2]),
        *(node.wire for node in marked[2:]),
    ]


def replace_wire(node: Node, wire: bytes | None) -> Node:
    return node._replace(wire=wire)


@pytest.mark.parametrize(
    ("faulty", "names"),
    [
        (exchange("bad", HELLO, nodes=nodes_of(HELLO)[2:]), "parent"),
        (exchange("bad", HELLO, nodes=nodes_of(HELLO)[::-1]), "parent"),
        (exchange("bad", HELLO[:2], head=b"x" * 16), "head"),
        (exchange("bad", HELLO[:2], base="none", kept=0), "'none'"),
        (exchange("bad", HELLO[:2], base="good", kept=2), "2 rows"),
        (exchange("bad", HELLO[:2], kept=1), "1 rows"),
        (exchange("bad", HELLO[:2], base="good", kept=1, conversation="c2"), "'good'"),
        (exchange("bad", HELLO[:2], base="good", kept=1, caller="bob"), "'good'"),
    ],
)
def test_what_goes_on_from_nothing_is_refused_with_its_whole_batch(store: Store, faulty: Exchange, names: str) -> None:
    good = exchange("good", ["good"], rows=(row(0),))
    with pytest.raises(StoreError, match=f"'bad'.*{names}"):
        store.write([good, exchange("other", ["x"], caller="eve"), faulty])
    assert store.conversations() == []
    store.write([good])
    assert [s.conversation for s in store.conversations()] == ["c1"]


def test_the_state_of_the_longest_prefix_and_of_two_the_later(store: Store) -> None:
    keys = keys_of(HELLO)
    store.write([exchange("r1", HELLO[:2], state=b"two"), exchange("r2", HELLO, state=b"four"), exchange("r3", HELLO)])
    store.write([exchange("r4", [*HELLO[:3], "badly"], state=b"other branch")])
    assert store.state("ann", "c1", keys) == b"four"
    assert store.state("ann", "c1", keys[:3]) == b"two"
    assert store.state("ann", "c1", keys[:1]) is None
    assert store.state("ann", "c1", [*keys[:2], *keys_of(["new"])]) == b"two"
    store.write([exchange("r5", HELLO, state=b"later")])
    assert store.state("ann", "c1", keys) == b"later"


def test_locate_prefers_the_conversation_updated_last(store: Store) -> None:
    store.write([exchange("r1", HELLO, at=3.0), exchange("r2", HELLO[:2], conversation="c2", at=5.0)])
    assert store.locate("ann", keys_of(HELLO)) == Place("c1", 3)
    assert store.locate("ann", keys_of([*HELLO[:2], "else"])) == Place("c2", 1)
    store.write([exchange("r3", HELLO, at=7.0)])
    assert store.locate("ann", keys_of([*HELLO[:2], "else"])) == Place("c1", 1)


def test_a_long_ledger_comes_back_from_its_chain(store: Store) -> None:
    said: list[str] = []
    before: tuple[str, int] = ("", 0)
    for n in range(300):
        said.append(f"m{n}")
        nodes = nodes_of(said)[-1:]
        store.write([exchange(f"r{n}", said, nodes=nodes, base=before[0], kept=before[1], rows=(row(n), row(n + 1)))])
        before = f"r{n}", n + 1  # the last row of each changes in the next
    found = store.request("ann", "r299")
    assert found is not None
    assert found.rows == tuple(row(n) for n in range(301))
    assert (found.base, found.kept) == ("", 0)
    assert store.locate("ann", keys_of([*said, "next"])) == Place("c1", 299)
    assert store.purge() == 1
    assert store.check() == []


def test_pins_and_memories(store: Store) -> None:
    keys = keys_of(HELLO)
    store.pin("ann", "c1", keys[0])
    store.pin("ann", "c1", keys[0])
    store.pin("ann", "c1", keys[2])
    store.pin("ann", "c1", keys[2], on=False)
    assert store.pins("ann", "c1") == {keys[0]}
    store.remember("ann", "c1", keys[1], "one")
    store.remember("ann", "c1", keys[3], "two \0 \ud800 漢")
    store.remember("ann", "c1", keys[1], "one again")
    assert store.memory("ann", "c1", keys[:3]) == (1, "one again")
    assert store.memory("ann", "c1", keys) == (3, "two \0 \ud800 漢")
    assert store.memory("ann", "c1", keys[:1]) is None
    store.write([exchange("r1", HELLO)])
    assert [s.messages for s in store.conversations()] == [4], "a conversation that began with a pin goes on"


def test_odd_names_and_numbers_do_not_keep_a_batch_from_being_written(store: Store) -> None:
    odd = exchange("r\0", ["x"], conversation="c\ud800", model="m\0\udfff", input_tokens=10**30, budget=-(10**30))
    store.write([exchange("r1", HELLO), odd])
    found = one(store, "ann", "c\ud800").exchanges[0]
    assert found.model == "m\ufffd\ufffd"
    assert found.input_tokens == 2**63 - 1
    assert store.request("ann", "no\0such") is None
    assert store.check() == []


def test_callers_never_see_one_another(store: Store) -> None:
    keys = keys_of(HELLO)
    for caller, text in (("ann", "of ann"), ("bob", "of bob")):
        store.write([exchange(f"{caller}-1", HELLO, caller=caller, state=text.encode(), rows=(row(0),))])
        store.write([exchange("same-id", [*HELLO, text], caller=caller, conversation=f"by {caller}")])
        store.remember(caller, "c1", keys[3], text)
    store.pin("ann", "c1", keys[0])
    for caller, other in (("ann", "bob"), ("bob", "ann")):
        assert store.request(caller, f"{other}-1") is None
        same = store.request(caller, "same-id")
        assert same is not None
        assert same.conversation == f"by {caller}"
        assert store.state(caller, "c1", keys) == f"of {caller}".encode()
        assert store.memory(caller, "c1", keys) == (3, f"of {caller}")
        assert store.locate(caller, keys_of([*HELLO, f"of {other}"])) == Place(f"by {caller}", 3)
        assert list(store.branches(caller, f"by {other}")) == []
        assert {s.caller for s in store.conversations(caller)} == {caller}
    assert store.pins("bob", "c1") == frozenset()
    assert store.locate("eve", keys) is None
    assert store.purge(caller="eve") == 0
    assert store.purge(caller="bob", conversation="by ann") == 0
    assert store.purge(caller="bob") == 2
    assert store.locate("bob", keys) is None
    assert store.state("ann", "c1", keys) == b"of ann"
    assert len(store.conversations()) == 2
    assert store.check() == []


def test_purge_by_age_and_by_name(store: Store) -> None:
    for n in range(4):
        store.write([exchange(f"r{n}", HELLO, conversation=f"c{n}", caller="ann" if n % 2 else "bob", at=float(n))])
    assert store.purge(before=2.0, caller="ann") == 1
    assert store.purge(before=2.0) == 1
    assert store.purge(before=2.0) == 0
    assert store.purge(conversation="c3") == 1
    assert [s.conversation for s in store.conversations()] == ["c2"]
    store.pin("ann", "gone", b"k")
    assert store.purge() == 2
    assert store.pins("ann", "gone") == frozenset()
    store.write([exchange("r0", HELLO, conversation="c0")])
    assert one(store, "ann", "c0").nodes == nodes_of(HELLO), "what was purged may begin anew"


def test_without_contents_no_word_is_kept_but_all_numbers_are(make: Make) -> None:
    store = make(contents=False)
    store.write([exchange("r1", HELLO, state=b"{}", system=(b'"secret"',), rows=(row(0),), tokens_before=9)])
    store.remember("ann", "c1", keys_of(HELLO)[1], "secret")
    branch = one(store)
    assert branch.nodes == tuple(replace_wire(node, None) for node in nodes_of(HELLO))
    assert branch.system == ()
    assert store.state("ann", "c1", keys_of(HELLO)) is None
    assert store.memory("ann", "c1", keys_of(HELLO)) is None
    found = store.request("ann", "r1")
    assert found is not None
    assert found.rows == (row(0),)
    assert store.conversations()[0].tokens_before == 9
    assert store.check() == []


def test_contents_may_be_switched_on_and_off(make: Make, spec: str) -> None:
    if spec == "memory":
        pytest.skip("memory is not opened twice")
    make(contents=False).write([exchange("r1", ["a"])])
    make().write([exchange("r2", ["a", "b"]), exchange("r3", ["c", "a"], conversation="c2")])
    make(contents=False).write([exchange("r4", ["a", "b", "c"])])
    wires = [node.wire and node.wire[-4:] for node in one(make()).nodes]
    assert wires == [None, b'"b"}', None]


def test_many_that_open_at_once_agree_on_the_salt(make: Make, spec: str) -> None:
    count = 1 if spec == "memory" else 8
    barrier = threading.Barrier(count)

    def work(_: int) -> bytes:
        barrier.wait()
        return make().salt

    with ThreadPoolExecutor(count) as pool:
        salts = set(pool.map(work, range(count)))
    assert len(salts) == 1
    assert len(salts.pop()) == 16


def test_threads_write_and_read_at_once(store: Store) -> None:
    said = [f"m{n}" for n in range(20)]

    def work(thread: int) -> None:
        for n in range(1, 20):
            own = exchange(f"{thread}-{n}", said[: n + 1], caller=f"caller {thread}", base=f"{thread}-{n - 1}", kept=n)
            own = replace(own, rows=(row(n),)) if n > 1 else replace(own, base="", kept=0, rows=(row(0), row(1)))
            store.write([own, exchange(f"shared-{thread}-{n}", [*said[: n % 3 + 1], f"by {thread}-{n}"])])
            assert store.locate(f"caller {thread}", keys_of(said)) == Place("c1", n)
            assert store.request(f"caller {thread}", f"{thread}-{n}") is not None
            if n % 7 == 0:
                store.purge(caller=f"caller {thread}", conversation="other")
                assert len(next(store.branches(f"caller {thread}", "c1")).nodes) == n + 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert len(list(store.branches("ann", "c1"))) == 8 * 19
    for thread in range(8):
        found = store.request(f"caller {thread}", f"{thread}-19")
        assert found is not None
        assert [r[0] for r in found.rows] == list(range(20))
    assert store.check() == []


def test_a_closed_store_says_so(store: Store) -> None:
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.conversations()


@dataclass
class Held:
    """A conversation as the simple model has it."""

    nodes: dict[bytes, Node] = field(default_factory=dict)
    requests: list[Exchange] = field(default_factory=list)
    states: dict[bytes, bytes] = field(default_factory=dict)
    ledgers: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def updated(self) -> float:
        return max(request.at for request in self.requests)

    def path(self, key: bytes) -> list[bytes]:
        return [*self.path(self.nodes[key].parent), key] if key else []

    def branches(self) -> list[tuple[list[bytes], list[str]]]:
        parents = {node.parent for node in self.nodes.values()}
        found = []
        for place, key in enumerate(self.nodes):
            if key not in parents:
                path = self.path(key)
                on = [(r.at, n, r.id) for n, r in enumerate(self.requests) if r.head in path]
                found.append((max(on)[:2], place, path, [ident for *_, ident in sorted(on)]))
        return [(path, ids) for *_, path, ids in sorted(found, reverse=True)]


Step: TypeAlias = tuple[str, str, int, list[str], bool, bool, int, int]

STEP = st.tuples(
    st.sampled_from(["ann", "bob"]),
    st.sampled_from(["c1", "c2"]),
    st.integers(0, 10),  # which of the branches' places it goes on from
    st.lists(st.sampled_from("abc"), min_size=1, max_size=3),
    st.booleans(),  # whether it sends the whole history again
    st.booleans(),  # whether it brings a state
    st.integers(0, 10),  # which request's ledger it goes on from
    st.integers(0, 4),  # how much of it
)


def played(steps: list[Step], times: list[float]) -> tuple[list[Exchange], dict[tuple[str, str], Held]]:
    """The exchanges that the steps make, and what a store must know after them."""
    world: dict[tuple[str, str], Held] = {}
    paths: dict[tuple[str, str], list[list[str]]] = {}
    made: list[Exchange] = []
    for number, (step, at) in enumerate(zip(steps, times, strict=True)):
        caller, conversation, start, more, whole, state, base, kept = step
        held = world.setdefault((caller, conversation), Held())
        known = paths.setdefault((caller, conversation), [[]])
        before = known[start % len(known)]
        said = [*before, *more]
        own = exchange(f"r{number}", said, caller=caller, conversation=conversation, at=at)
        earlier = [""] + [r.id for r in held.requests]
        chosen = earlier[base % len(earlier)]
        kept = min(kept, len(held.ledgers.get(chosen, ())))
        rows = tuple(row(unit) for unit in range(number, number + 2))
        held.ledgers[own.id] = held.ledgers.get(chosen, [])[:kept] + list(rows)
        nodes = own.nodes if whole else own.nodes[len(before) :]
        system = (f'"system {number % 2}"'.encode(),)
        own = replace(own, nodes=nodes, base=chosen, kept=kept, rows=rows, system=system)
        own = replace(own, state=own.id.encode()) if state else own
        for node in nodes:
            held.nodes.setdefault(node.key, node)
        held.requests.append(own)
        if own.state:
            held.states[own.head] = own.state
        known += [said[:n] for n in range(len(before) + 1, len(said) + 1)]
        made.append(own)
    return made, world


def agrees(store: Store, world: dict[tuple[str, str], Held]) -> None:
    assert {(s.caller, s.conversation): (s.updated, s.messages, s.requests) for s in store.conversations()} == {
        name: (held.updated, len(held.nodes), len(held.requests)) for name, held in world.items()
    }
    for (caller, conversation), held in world.items():
        branches = list(store.branches(caller, conversation))
        assert [([n.key for n in b.nodes], [r.id for r in b.exchanges]) for b in branches] == held.branches()
        for branch in branches:
            assert all(node == held.nodes[node.key] for node in branch.nodes)
            assert branch.system == branch.exchanges[-1].system
            keys = [*(node.key for node in branch.nodes), *keys_of(["unknown"])]
            states = [held.states[key] for key in keys if key in held.states]
            assert store.state(caller, conversation, keys) == (states[-1] if states else None)
            there = [(h.updated, c) for (who, c), h in world.items() if who == caller and keys[-2] in h.nodes]
            assert store.locate(caller, keys) == Place(max(there)[1], len(keys) - 2)
        for request in held.requests:
            found = store.request(caller, request.id)
            expected = replace(request, nodes=(), base="", kept=0, state=None, rows=tuple(held.ledgers[request.id]))
            assert found == expected
    assert store.check() == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=25)
@given(st.lists(STEP, min_size=1, max_size=14), st.data())
def test_a_store_agrees_with_a_simple_model(store: Store, steps: list[Step], data: st.DataObject) -> None:
    store.purge()
    times = data.draw(st.permutations([float(n + 1) for n in range(len(steps))]))
    made, world = played(steps, times)
    cuts = sorted({0, len(made), *data.draw(st.lists(st.integers(0, len(made)), max_size=4))})
    batches = [made[start:end] for start, end in pairwise(cuts)]
    for batch in batches:
        store.write(batch)
    agrees(store, world)
    store.write(data.draw(st.sampled_from(batches)))
    agrees(store, world)
    gone = data.draw(st.sampled_from(sorted(world)))
    assert store.purge(caller=gone[0], conversation=gone[1]) == 1
    agrees(store, {name: held for name, held in world.items() if name != gone})
