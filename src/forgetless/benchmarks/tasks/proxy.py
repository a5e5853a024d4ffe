"""`forgetless bench proxy`: what the proxy adds to a request, and how it bears many streams, beside LiteLLM's.

A client sees the time from its first byte to its last. Every body goes through each server in turn, in random order,
so that noise of the machine hits all alike; what a server adds is its time less that of the bare pass-through for the
same body. All servers are processes of their own on loopback, before the same mock upstream.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from json import dumps
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from forgetless.benchmarks import litellm_server
from forgetless.benchmarks.load import Load, percentiles, streams
from forgetless.benchmarks.loopback import Server, forgetless
from forgetless.benchmarks.mock_upstream import PATHS
from forgetless.benchmarks.plots import draw, proxy_plot
from forgetless.benchmarks.results import Run, open_run
from forgetless.benchmarks.tasks.overhead import history
from forgetless.errors import ConfigError

__all__ = ["proxy"]

BENCHMARK = "proxy@1"
MESSAGES = 1_000
TURNS = 50
"""Requests of one conversation: it grows from 950 messages to 1,050."""

BUDGETS = {"forgetless": 1_000_000, "forgetless, compacting": 8_000}
"""Tokens: one that is never met, and one that the history is fourteen times over."""

BARE = "bare"
LITELLM = "litellm"
KINDS = {"known": "a known conversation", "first": "first sight"}

# of what, kind, percentile, most milliseconds added
TARGETS = (("known", "p50", 5.0), ("known", "p99", 50.0), ("first", "p50", 20.0))
GROWTH = 1.05

Messages = list[dict[str, Any]]


def proxy(
    *,
    requests: int = 200,
    clients: int = 200,
    seconds: float = 60.0,
    out: Path = Path("results/proxy"),
    seed: int = 0,
    peers: bool = True,
    json: bool = False,
) -> None:
    """Measure the latency that `forgetless serve` adds, and many streams at once, beside a bare proxy and LiteLLM's.

    Args:
        requests: of each kind to each server.
        clients: that stream at the same time.
        seconds: for which they do.
        out: the results folder.
        seed: of the words in the messages and of the order of requests.
        peers: compare with LiteLLM's proxy, in an environment that is made when missing.
        json: print the summary to stdout.
    """
    if requests < 1 or clients < 1 or seconds <= 0:
        raise ConfigError(f"at least 1 request, 1 client and some seconds, not {requests}, {clients}, {seconds!r}")
    config = {
        "seed": seed,
        "requests": requests,
        "clients": clients,
        "seconds": seconds,
        "messages": MESSAGES,
        "budgets": BUDGETS,
        "policy": "the default",
        "peers": litellm_server.PINS if peers else (),
    }
    with open_run(out, BENCHMARK, data="seeded words", **config) as run, _Servers(peers=peers) as servers:
        summary: dict[str, Any] = {"latency": _latency(run, servers.all(), requests, seed)}
        summary["streams"] = _loads(run, servers, clients, seconds)
        summary["left_out"] = servers.left_out
        summary["targets"] = _targets(summary)
        run.finish(summary)
    draw(proxy_plot, summary, out / "proxy.png")
    if json:
        print(dumps(summary, indent=2))


@dataclass(frozen=True, slots=True)
class _Subject:
    """A server, and how it wants to be asked."""

    name: str
    server: Server
    key: str = "sk-benchmark"


@dataclass
class _Servers:
    """Starts what is measured; stops it on leaving the `with` block."""

    peers: bool
    left_out: dict[str, str] = field(default_factory=dict)  # server -> why
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> _Servers:
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="forgetless-bench-")))
        self._upstream = self._started("forgetless.benchmarks.mock_upstream").address
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _started(self, module: str, *arguments: str) -> Server:
        return self._stack.enter_context(Server([sys.executable, "-m", module, *arguments]))

    def bare(self) -> _Subject:
        """The bare pass-through."""
        return _Subject(BARE, self._started("forgetless.benchmarks.bare_proxy", self._upstream))

    def ours(self, name: str) -> _Subject:
        """A proxy with a budget of `BUDGETS` and a new store."""
        folder = tempfile.mkdtemp(dir=self._folder)
        server = forgetless(self._upstream, Path(folder) / "store.db", budget=BUDGETS[name])
        return _Subject(name, self._stack.enter_context(server))

    def litellm(self) -> Iterator[_Subject]:
        """LiteLLM's proxy, where it can be had."""
        if not self.peers or LITELLM in self.left_out:
            return
        try:
            server, key = litellm_server.start(self._upstream, self._folder)
        except ConfigError as error:
            self.left_out[LITELLM] = str(error)
            print(f"{LITELLM} is left out: {error}", file=sys.stderr)
            return
        yield _Subject(LITELLM, self._stack.enter_context(server), key)

    def all(self) -> list[_Subject]:
        """One of each."""
        return [self.bare(), *map(self.ours, BUDGETS), *self.litellm()]


class _Client:
    """Asks one server over one connection, which it keeps."""

    def __init__(self, subject: _Subject) -> None:
        self.name = subject.name
        self._http = HTTPConnection(subject.server.address.removeprefix("http://"), timeout=60)
        self._headers = {"authorization": f"Bearer {subject.key}", "content-type": "application/json"}

    def ask(self, body: bytes) -> tuple[float, bytes]:
        """Seconds until the last byte of the reply, and the reply.

        Raises:
            ConfigError: the server answered with an error, or not at all.
        """
        try:
            start = time.perf_counter()
            self._http.request("POST", PATHS["chat"], body, self._headers)
            answer = self._http.getresponse()
            reply = answer.read()
            taken = time.perf_counter() - start
        except (HTTPException, OSError) as error:
            raise ConfigError(f"{self.name!r} did not answer: {type(error).__name__} {error}") from None
        if answer.status != 200:
            raise ConfigError(f"{self.name!r} answered {answer.status}: {reply[:300].decode('utf-8', 'replace')}")
        return taken, reply

    def close(self) -> None:
        self._http.close()


def _latency(run: Run, subjects: list[_Subject], requests: int, seed: int) -> dict[str, Any]:
    """Kind -> server -> figures."""
    rng = Random(seed)
    times: dict[tuple[str, str], list[float]] = {}
    turns = min(TURNS, requests)
    begin = (MESSAGES - turns) // 2 * 2  # ends with a user's message
    clients = list(map(_Client, subjects))
    with ExitStack() as stack:
        for client in clients:
            stack.callback(client.close)
        said: Messages = []
        for number in range(-1, requests):
            opening = number < 0 or number % turns == 0
            if opening:
                said = history(begin, seed + 1_000_003 * (number + 1))
                for client in clients:  # a conversation is known from its second request on
                    answer = client.ask(_body(said))[1]
                said = _going_on(said, answer, seed - number)
            bodies = {"known": _body(said), "first": _body(history(MESSAGES, -seed - 1_000_003 * (number + 2)))}
            jobs = [(kind, client) for kind in KINDS for client in clients]
            rng.shuffle(jobs)
            for kind, client in jobs:
                taken, reply = client.ask(bodies[kind])
                if number < 0:
                    continue  # what servers do only once is over after this
                run.record(part="latency", kind=kind, server=client.name, number=number, seconds=taken)
                times.setdefault((kind, client.name), []).append(taken)
                answer = reply if kind == "known" else answer
            said = _going_on(said, answer, -number)
            if number % 20 == 19:
                print(f"latency: {number + 1:,} of {requests:,} requests of each kind", file=sys.stderr, flush=True)
    return {kind: {client.name: _row(times, kind, client.name) for client in clients} for kind in KINDS}


def _body(messages: Messages) -> bytes:
    return msgspec.json.encode({"model": litellm_server.MODEL, "messages": messages})


def _going_on(said: Messages, reply: bytes, seed: int) -> Messages:
    """The history with a reply and what the user says to it."""
    text = msgspec.json.decode(reply)["choices"][0]["message"]["content"]
    return [*said, {"role": "assistant", "content": text}, history(2, seed)[1]]


def _row(times: Mapping[tuple[str, str], list[float]], kind: str, name: str) -> dict[str, Any]:
    taken, bare = times[kind, name], times[kind, BARE]
    row: dict[str, Any] = {"ms": percentiles([seconds * 1e3 for seconds in taken])}
    if name != BARE:
        row["added_ms"] = percentiles([(a - b) * 1e3 for a, b in zip(taken, bare, strict=True)])
    print(f"{KINDS[kind]:24} {name:24} {row}", file=sys.stderr, flush=True)
    return row


def _loads(run: Run, servers: _Servers, clients: int, seconds: float) -> dict[str, Any]:
    """Server -> figures. Each is started anew, so that its memory is that of the streams."""
    found = {}
    makes: list[Callable[[], Iterator[_Subject]]] = [
        lambda: iter([servers.bare()]),
        lambda: iter([servers.ours("forgetless")]),
        servers.litellm,
    ]
    for make in makes:
        for subject in make():
            with subject.server as server:
                key = subject.key if subject.name == LITELLM else ""
                load: Load = streams(server, clients, seconds, model=litellm_server.MODEL, key=key)
            run.record(part="streams", server=subject.name, **load.row())
            found[subject.name] = load.row()
            told = {name: value for name, value in found[subject.name].items() if name != "rss_mib"}
            print(f"{clients:,} streams {subject.name:24} {told}", file=sys.stderr, flush=True)
    return found


def _targets(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What is promised, and whether it held."""
    found: list[tuple[str, float, float]] = []
    for name, budget in BUDGETS.items():
        for kind, part, most in TARGETS:
            measured = summary["latency"][kind][name]["added_ms"][part]
            found.append((f"ms added, {KINDS[kind]}, budget {budget:,}, {part}", most, measured))
    ours = summary["streams"]["forgetless"]
    found.append(("errors, events lost or out of order", 0, _wrong(ours)))
    if ours["rss_growth"] is not None:
        found.append(("growth of memory under streams", GROWTH, ours["rss_growth"]))
    return [{"what": w, "limit": limit, "measured": m, "met": m <= limit} for w, limit, m in found]


def _wrong(row: Mapping[str, Any]) -> int:
    return sum([*row["errors"].values(), row["lost"], row["disordered"]])
