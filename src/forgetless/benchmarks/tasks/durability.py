"""`forgetless bench durability`: whether what a client has read is in the store after `kill -9`, again and again.

Clients talk in every dialect, streamed and not, each its own conversation, all at once. In the middle of it the proxy
is killed; it starts again on the same store, and what broke off is asked again. After each kill the store is looked
through: every request whose last byte a client had read is there, and so is every message of its conversation.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from json import dumps
from pathlib import Path
from random import Random
from typing import Any

import httpx2
import msgspec

from forgetless.benchmarks.loopback import Server, forgetless
from forgetless.benchmarks.mock_upstream import PATHS, asking
from forgetless.benchmarks.plots import draw, durability_plot
from forgetless.benchmarks.results import open_run
from forgetless.benchmarks.tasks.overhead import history
from forgetless.errors import ConfigError
from forgetless.proxy.incoming import caller_of
from forgetless.replies.readers import reader
from forgetless.replies.sse import Events
from forgetless.stores.base import Store
from forgetless.stores.open import open_store

__all__ = ["Talker", "durability", "faults_of", "talk"]

BENCHMARK = "durability@1"
BUDGET = 1_500
"""Tokens: conversations are over it from their seventh turn on."""

PIECES, PAUSE = 3, 0.1
"""Of a reply: how many, and seconds before each."""

LIMIT = 120.0
"""Seconds for a round."""

KINDS = tuple((dialect, stream) for dialect in PATHS for stream in (False, True))
LAST = {"chat": b"data: [DONE]", "responses": b"event: response.completed", "anthropic": b"event: message_stop"}
"""How the last event of a stream begins."""


def durability(
    *,
    requests: int = 500,
    kills: int = 10,
    out: Path = Path("results/durability"),
    seed: int = 0,
    json: bool = False,
) -> None:
    """Kill `forgetless serve` under load, and look whether its store has what clients have read.

    Args:
        requests: at the same time.
        kills: of the proxy, one after the other on one store.
        out: the results folder.
        seed: of the moments of the kills.
        json: print the summary to stdout.
    """
    if requests < 1 or kills < 1:
        raise ConfigError(f"at least 1 request and 1 kill, not {requests} and {kills}")
    rng = Random(seed)
    config = {"seed": seed, "requests": requests, "kills": kills, "budget": BUDGET, "policy": "the default"}
    talkers = [Talker(n, *KINDS[n % len(KINDS)]) for n in range(requests)]
    rounds: list[dict[str, Any]] = []
    upstream = Server([sys.executable, "-m", "forgetless.benchmarks.mock_upstream"])
    with open_run(out, BENCHMARK, data="seeded words", **config) as run, upstream, tempfile.TemporaryDirectory() as at:
        path = Path(at) / "store.db"
        for number in range(kills + 1):
            # The last round is not cut short: everybody is answered once more.
            wanted = rng.randint(requests // 2, requests * 2) if number < kills else None
            with forgetless(upstream.address, path, budget=BUDGET) as server:
                row = asyncio.run(talk(server, talkers, wanted))
            with closing(open_store(str(path))) as store:
                row |= faults_of(store, talkers)
            row = {"round": number, "killed": wanted is not None, **row}
            run.record(**row)
            rounds.append(row)
            print(row, file=sys.stderr, flush=True)
        summary = _summary(rounds)
        run.finish(summary)
    draw(durability_plot, summary, out / "durability.png")
    if json:
        print(dumps(summary, indent=2))
    if not all(target["met"] for target in summary["targets"]):
        raise SystemExit(1)


@dataclass
class Talker:
    """A client with one conversation.

    Attributes:
        number: of the client.
        dialect: that it speaks.
        stream: whether it has replies streamed.
        said: its history; it ends with what is to be asked.
        read: ids of the requests whose last byte it has read.
        known: its history at the last of them, the reply included.
        conversation: what the proxy called it then.
        waiting: whether a reply is under way.
    """

    number: int
    dialect: str
    stream: bool
    said: list[Any] = field(default_factory=list)
    read: list[str] = field(default_factory=list)
    known: list[Any] = field(default_factory=list)
    conversation: str = ""
    waiting: bool = False

    def __post_init__(self) -> None:
        self._asks()

    @property
    def headers(self) -> dict[str, str]:
        """Its credential."""
        return {"authorization": f"Bearer talker-{self.number}"}

    def _asks(self) -> None:
        words = history(2, self.number * 1_009 + len(self.said))[1]["content"]
        self.said.append({"role": "user", "content": f"{words} {asking(self.number, PIECES, PAUSE)}"})

    async def turn(self, http: httpx2.AsyncClient) -> None:
        """Ask once, and take note when the last byte is there.

        Raises:
            HTTPError: the connection broke off before.
        """
        field = "input" if self.dialect == "responses" else "messages"
        body = {"model": "mock", "max_tokens": 100, "stream": self.stream, field: self.said}
        content, data = msgspec.json.encode(body), b""
        self.waiting = True
        async with http.stream("POST", PATHS[self.dialect], headers=self.headers, content=content) as answer:
            answer.raise_for_status()
            ids = answer.headers["x-forgetless-request-id"], answer.headers.get("x-forgetless-conversation", "")
            if not self.stream:
                self._took(await answer.aread(), ids)
                return
            async for chunk in answer.aiter_bytes():
                data += chunk
                if self.waiting and LAST[self.dialect] in data and data.endswith(b"\n\n"):
                    self._took(data, ids)

    def _took(self, data: bytes, ids: tuple[str, str]) -> None:
        self.waiting = False
        read, events = reader(self.dialect), Events()
        if not self.stream:
            read.body(msgspec.json.decode(data))
        for event in events.feed(data) if self.stream else ():
            if event.data and event.data != "[DONE]":
                read.event(event.name, msgspec.json.decode(event.data))
        self.read.append(ids[0])
        self.known = [*self.said, *read.done().messages]
        self.conversation = ids[1]
        self.said = list(self.known)
        self._asks()


async def talk(server: Server, talkers: Sequence[Talker], wanted: int | None) -> dict[str, Any]:
    """Let all talk at once.

    Args:
        server: the proxy.
        talkers: its clients.
        wanted: replies read to their end after which the server is killed; None has each ask once.

    Returns:
        replies read, requests under way at the kill, seconds, and what clients saw go wrong.

    Raises:
        ConfigError: it took too long.
    """
    read, errors, start = 0, Counter[str](), time.monotonic()
    killed = asyncio.Event()
    waiting = 0

    async def one(http: httpx2.AsyncClient, talker: Talker) -> None:
        nonlocal read, waiting
        while not killed.is_set():
            try:
                await talker.turn(http)
            except httpx2.HTTPError as error:
                if not killed.is_set():
                    errors[type(error).__name__] += 1
                return
            read += 1
            if wanted is None:
                return
            if read == wanted:
                waiting = sum(other.waiting for other in talkers)
                killed.set()
                server.kill()

    limits = httpx2.Limits(max_connections=None)
    try:
        async with httpx2.AsyncClient(base_url=server.address, timeout=LIMIT, limits=limits) as http:
            async with asyncio.timeout(LIMIT):
                await asyncio.gather(*(one(http, talker) for talker in talkers))
    except TimeoutError:
        raise ConfigError(f"{len(talkers)} clients were not answered in {LIMIT:g} s: ask for fewer requests") from None
    return {"read": read, "under_way": waiting, "seconds": time.monotonic() - start, "errors": dict(errors)}


def faults_of(store: Store, talkers: Sequence[Talker]) -> dict[str, Any]:
    """What is not in a store of what clients have read, and what is broken in it."""
    missing = half = 0
    for talker in talkers:
        caller = caller_of(list(talker.headers.items()), store.salt)
        missing += sum(store.request(caller, ident) is None for ident in talker.read)
        half += bool(talker.read) and not _whole(store, caller, talker)
    return {
        "in_store": sum(summary.requests for summary in store.conversations()),
        "missing": missing,
        "half_written": half,
        "check": store.check(),
    }


def _whole(store: Store, caller: str, talker: Talker) -> bool:
    """Whether a branch of the conversation begins with all that the client knows of it."""
    wanted = talker.known
    for branch in store.branches(caller, talker.conversation):
        wires = [None if node.wire is None else msgspec.json.decode(node.wire) for node in branch.nodes]
        if wires[: len(wanted)] == wanted:
            return True
    return False


def _summary(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    wrong = {name: sum(row[name] for row in rounds) for name in ("missing", "half_written")}
    wrong["faults of the check"] = sum(len(row["check"]) for row in rounds)
    wrong["errors before a kill"] = sum(sum(row["errors"].values()) for row in rounds)
    return {
        "rounds": list(rounds),
        "read": sum(row["read"] for row in rounds),
        "under_way_at_kills": sum(row["under_way"] for row in rounds),
        "targets": [{"what": w, "limit": 0, "measured": m, "met": m == 0} for w, m in wrong.items()],
    }
