"""What goes wrong with the store: the client gets its reply, and no record is half there."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import httpx2
import pytest

from asked import KEY, PATH, Start, ask, body, figure, until
from forgetless.errors import StoreError
from forgetless.proxy import journal
from forgetless.stores.inmemory import InMemory
from forgetless.stores.sqlite import Sqlite
from live import Provider, Said
from sent import count


class Weak(InMemory):
    """A store that is away when it is told to be, and takes no record of a conversation that it was told not to.

    `script` says what becomes of the next writes: `fail`, `pass`, or `leave`, after which it is away.
    """

    down = False
    hates = ""

    def __init__(self) -> None:
        super().__init__()
        self.script: list[str] = []

    def _check(self) -> None:
        if self.down:
            raise StoreError("the store is away")

    def write(self, exchanges: Any) -> None:
        self._check()
        step = self.script.pop(0) if self.script else "pass"
        self.down = step == "leave"
        if step != "pass":
            raise StoreError("it failed this once")
        if any(one.conversation == self.hates for one in exchanges):
            raise StoreError("it will not have it")
        super().write(exchanges)

    def locate(self, *args: Any) -> Any:
        self._check()
        return super().locate(*args)

    def state(self, *args: Any) -> Any:
        self._check()
        return super().state(*args)

    def request(self, *args: Any) -> Any:
        self._check()
        return super().request(*args)

    def pins(self, *args: Any) -> Any:
        self._check()
        return super().pins(*args)

    def pin(self, *args: Any, **options: Any) -> None:
        self._check()
        super().pin(*args, **options)


@pytest.fixture
def weak(monkeypatch: pytest.MonkeyPatch, provider: Provider) -> Weak:
    monkeypatch.setattr(journal, "PATIENCE", 0.1)
    monkeypatch.setattr(journal, "PAUSE", 0.02)
    provider.answer = same
    return Weak()


def same(_: str, body: Any) -> Said:
    """The reply that stands in `history`."""
    last = body["messages"][-1]["content"]
    return Said(f"ok {last.split()[1]}", tokens=count(body))


def test_a_store_that_is_away_is_written_to_when_it_is_back(
    weak: Weak, provider: Provider, start: Start, http: httpx2.Client
) -> None:
    base = start(weak)
    assert ask(http, base, body(1)).status_code == 200
    weak.down = True
    for turns in range(2, 12):
        answer = ask(http, base, body(turns))
        assert answer.status_code == 200
        assert answer.headers["x-forgetless-outcome"] in ("unchanged", "compacted"), "a known conversation goes on"
    new = http.post(base + PATH, content=body(15), headers={"authorization": "Bearer other"})
    assert (new.status_code, new.headers["x-forgetless-outcome"]) == (200, "fault")
    assert figure(http, base, 'forgetless_faults_total{kind="store"}') == 1
    assert http.get(f"{base}/forgetless/requests/{answer.headers['x-forgetless-request-id']}").status_code == 503
    assert figure(http, base, 'forgetless_records_total{fate="late"}') == 10
    assert figure(http, base, "forgetless_records_waiting") == 10
    weak.down = False
    until(lambda: figure(http, base, "forgetless_records_waiting") == 0)
    assert figure(http, base, 'forgetless_records_total{fate="kept"}') == 11
    (summary,) = weak.conversations()
    assert (summary.messages, summary.requests, weak.check()) == (22, 11, [])


def test_records_are_counted_once_however_often_they_are_tried(
    weak: Weak, provider: Provider, start: Start, http: httpx2.Client
) -> None:
    base = start(weak)
    for turns in (1, 2):
        weak.down = turns == 2
        for n in range(5):
            named = {"x-forgetless-conversation": f"c{n}"}
            assert ask(http, base, body(turns), **named).headers["x-forgetless-outcome"] == "unchanged"
    weak.script = ["fail", "pass", "leave"]  # all of them; the first half of them; the rest
    weak.down = False
    until(lambda: weak.down)
    weak.down = False
    until(lambda: figure(http, base, "forgetless_records_waiting") == 0)
    fates = {name: figure(http, base, f'forgetless_records_total{{fate="{name}"}}') for name in ("kept", "refused")}
    assert fates == {"kept": 10, "refused": 0}
    assert [summary.requests for summary in weak.conversations()] == [2] * 5


def test_a_record_that_is_refused_holds_up_nothing_and_the_next_stands_whole(
    weak: Weak, provider: Provider, start: Start, http: httpx2.Client
) -> None:
    base = start(weak)
    named = {"x-forgetless-conversation": "c"}
    assert ask(http, base, body(6), **named).status_code == 200
    weak.hates = "c"
    for turns in (7, 8):
        assert ask(http, base, body(turns), **named).status_code == 200
    weak.hates = ""
    answer = ask(http, base, body(9), **named)
    assert figure(http, base, 'forgetless_records_total{fate="refused"}') == 2
    assert weak.check() == []
    (summary,) = weak.conversations()
    assert (summary.messages, summary.requests) == (18, 2)
    told = http.get(f"{base}/forgetless/requests/{answer.headers['x-forgetless-request-id']}", headers=KEY).json()
    assert {index for entry in told["ledger"] for index in entry["messages"]} == set(range(18))


def test_a_full_queue_refuses_and_counts(
    weak: Weak, provider: Provider, start: Start, http: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "MOST", 3)
    monkeypatch.setattr(journal, "PATIENCE", 0.01)
    base = start(weak)
    assert ask(http, base, body(1)).status_code == 200
    weak.down = True
    for turns in range(2, 9):
        assert ask(http, base, body(turns)).status_code == 200
    assert figure(http, base, 'forgetless_records_total{fate="refused"}') == 4
    weak.down = False
    until(lambda: figure(http, base, "forgetless_records_waiting") == 0)
    assert ask(http, base, body(9)).status_code == 200
    (summary,) = weak.conversations()
    assert (summary.messages, summary.requests, weak.check()) == (18, 5, [])


def test_a_conversation_that_was_removed_begins_anew(
    store: InMemory, provider: Provider, start: Start, http: httpx2.Client
) -> None:
    base = start(store)
    provider.answer = same
    for turns in range(1, 6):
        ask(http, base, body(turns))
    assert store.purge() == 1
    statuses = [ask(http, base, body(turns)).status_code for turns in (6, 7)]
    assert statuses == [200, 200]
    (summary,) = store.conversations()
    assert (summary.messages, store.check()) == (14, [])


def test_without_contents_only_decisions_and_numbers_stay(
    provider: Provider, start: Start, http: httpx2.Client, tmp_path: Any
) -> None:
    provider.answer = lambda _, body: Said("unmistakable reply", tokens=count(body))
    base = start(store=str(tmp_path / "s.db"), contents=False)
    for turns in range(1, 12):
        answer = ask(http, base, body(turns))
    assert answer.headers["x-forgetless-outcome"] == "compacted"
    told = http.get(f"{base}/forgetless/requests/{answer.headers['x-forgetless-request-id']}", headers=KEY).json()
    assert len(told["ledger"]) == 22
    bytes_ = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert not any(said in bytes_ for said in (b"question", b"word word", b"unmistakable", b"brief"))


def test_what_is_older_than_is_to_be_kept_is_removed(
    provider: Provider, start: Start, http: httpx2.Client, tmp_path: Any
) -> None:
    base = start(store=str(tmp_path / "s.db"))
    assert ask(http, base, body(3)).status_code == 200
    with closing(Sqlite(tmp_path / "s.db")) as store:
        assert len(store.conversations()) == 1
        start(store=str(tmp_path / "s.db"), keep_days=30)
        start(store=str(tmp_path / "s.db"), keep_days=1e-9)
        until(lambda: store.conversations() == [])
    assert ask(http, base, body(4)).status_code == 200
