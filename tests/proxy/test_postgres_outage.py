"""PostgreSQL goes away under load: requests are served, and what was said while it was away is kept or counted."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field

import httpx2
import pytest

from forgetless.proxy import journal
from forgetless.proxy.app import build
from forgetless.proxy.incoming import caller_of
from forgetless.proxy.settings import Settings
from forgetless.stores.open import open_store
from live import Provider, serving
from postgres_server import PostgresServer, running

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with running() as server:
        yield server


@dataclass
class Talk:
    """Clients that go on with their conversations until told to stop; `seen` is released once for each reply."""

    base: str
    seen: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    end: threading.Event = field(default_factory=threading.Event)
    replies: list[tuple[str, int, str, str]] = field(default_factory=list)  # key, status, id, outcome

    def client(self, key: str) -> None:
        said: list[dict[str, str]] = []
        with httpx2.Client(base_url=self.base, headers={"authorization": key}, timeout=30) as http:
            while not self.end.is_set():
                said.append({"role": "user", "content": f"{key} asks for the {len(said)}th time"})
                answer = http.post("/v1/chat/completions", json={"model": "m", "messages": said})
                told = answer.headers
                self.replies.append(
                    (key, answer.status_code, told["x-forgetless-request-id"], told["x-forgetless-outcome"])
                )
                said.append({"role": "assistant", "content": answer.json()["choices"][0]["message"]["content"]})
                self.seen.release()

    def wait(self, many: int) -> None:
        """Until so many more replies have come."""
        for _ in range(many):
            assert self.seen.acquire(timeout=30), "no more replies"


def figure(base: str, name: str) -> float:
    text = httpx2.get(f"{base}/metrics").text
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


@pytest.mark.parametrize(
    ("how", "room"),
    [(signal.SIGINT, 10_000), (signal.SIGQUIT, 10_000), (signal.SIGINT, 3)],
    ids=["in order", "as in a crash", "with a short queue"],
)
def test_requests_are_served_while_it_is_away_and_kept_or_counted_when_it_is_back(postgres, monkeypatch, how, room):
    monkeypatch.setattr(journal, "MOST", room)
    monkeypatch.setattr(journal, "PATIENCE", 0.05)  # of a request for its record
    monkeypatch.setattr(journal, "PAUSE", 0.05)
    spec = postgres.database()
    with (
        serving(Provider().app) as upstream,
        serving(build(Settings(upstream=upstream, budget=1_000, store=spec))) as base,
    ):
        talk = Talk(base)
        threads = [threading.Thread(target=talk.client, args=(f"Bearer k{n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        try:
            talk.wait(12)
            postgres.stop(how)
            before = len(talk.replies)
            talk.wait(12)
            new = httpx2.post(f"{base}/v1/chat/completions", json={"model": "m", "messages": [user("a new one")]})
            waiting, away = figure(base, "forgetless_records_waiting"), len(talk.replies) - before
        finally:
            postgres.start()
        talk.wait(12)
        talk.end.set()
        for thread in threads:
            thread.join()
        end = time.monotonic() + 30
        while figure(base, "forgetless_records_waiting") and time.monotonic() < end:
            time.sleep(0.01)
        faults = figure(base, 'forgetless_faults_total{kind="store"}')
        refused = figure(base, 'forgetless_records_total{fate="refused"}')

    assert {status for _, status, _, _ in talk.replies} == {200}
    assert away >= 8
    assert waiting == room if room < 8 else waiting >= 8
    # Who is new is not known while the store is away: served as it came, and counted.
    assert (new.status_code, new.headers["x-forgetless-outcome"]) == (200, "fault")
    unplanned = sum(outcome == "fault" for _, _, _, outcome in talk.replies)
    assert faults == unplanned + 1
    with closing(open_store(spec)) as store:
        gone = [
            ident
            for key, _, ident, outcome in talk.replies
            if outcome != "fault" and store.request(caller_of([("authorization", key)], store.salt), ident) is None
        ]
        assert len(gone) == refused
        assert (refused > 0) == (room < 8)
        assert store.check() == []


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}
