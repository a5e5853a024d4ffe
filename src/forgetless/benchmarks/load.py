"""Streaming clients: many at once, each of whose events is looked for, and the memory of the server meanwhile."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean
from typing import Any

import httpx2
import msgspec

from forgetless.benchmarks.loopback import Server
from forgetless.benchmarks.mock_upstream import PATHS, asking

__all__ = ["Load", "judged", "percentiles", "streams"]

RATE = 5.0
"""Events a second that each client is sent."""

PATIENCE = 30.0
RETRY = 1.0

_PIECE = re.compile(r"(\d+):(\d+):([\d.]+) ")


@dataclass
class Load:
    """What came of it.

    Attributes:
        seconds: that it was to last.
        streams: replies read to their end.
        events: that came, of those that clients look for.
        lost: events that did not come, of replies that came to an end.
        disordered: events of another client, out of order, or twice.
        errors: how often what went wrong.
        delays: seconds from upstream's writing to the client's reading of each event.
        rss: bytes of memory of the server, each second.
        cpu: seconds of processor time that the server used.
    """

    seconds: float
    streams: int = 0
    events: int = 0
    lost: int = 0
    disordered: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    delays: list[float] = field(default_factory=list)
    rss: list[int] = field(default_factory=list)
    cpu: float | None = None

    def growth(self) -> float | None:
        """Mean memory in the last third of the time as a multiple of that around a third of it.

        Of 60 seconds, the last 20 and those from the 15th to the 25th.
        """
        early, late = self._over(1 / 4, 5 / 12), self._over(2 / 3, 1)
        return fmean(late) / fmean(early) if early and late else None

    def _over(self, start: float, end: float) -> list[int]:
        """Memory between two shares of the time."""
        first = int(self.seconds * start)
        return self.rss[first : max(first + 1, int(self.seconds * end))]

    def row(self) -> dict[str, Any]:
        """As columns of a results row."""
        mib = [size / 2**20 for size in self.rss]
        return {
            "streams": self.streams,
            "events": self.events,
            "lost": self.lost,
            "disordered": self.disordered,
            "errors": dict(self.errors),
            "delay_ms": percentiles([delay * 1e3 for delay in self.delays]),
            "rss_mib": [round(size, 1) for size in mib],
            "rss_growth": self.growth(),
            "cpu_s": self.cpu,
        }


def percentiles(values: Sequence[float]) -> dict[str, float | None]:
    """The 50th, 95th and 99th, to three places; None of nothing."""
    import numpy as np

    found = np.percentile(values, (50, 95, 99)).tolist() if len(values) else (None,) * 3
    return {f"p{of}": None if value is None else round(value, 3) for of, value in zip((50, 95, 99), found, strict=True)}


def judged(text: str, client: int, many: int) -> tuple[int, int]:
    """How many events of a reply did not come, and how many are another client's, out of order or there twice.

    Args:
        text: of the reply.
        client: that asked.
        many: events that it asked for.
    """
    came = [(int(whose), int(place)) for whose, place, _ in _PIECE.findall(text)]
    lost = many - len({(client, place) for place in range(many)} & set(came))
    others = sum(whose != client for whose, _ in came)
    return lost, others + sum(b <= a for (_, a), (_, b) in pairwise(came))


def streams(server: Server, clients: int, seconds: float, *, model: str = "mock", key: str = "") -> Load:
    """Load a server with streaming clients.

    Args:
        server: speaks Chat Completions, with the mock upstream behind it.
        clients: at once, each with a key and a stream of its own.
        seconds: that the streams last.
        model: that they ask for.
        key: that all of them show; by default each its own.
    """
    return asyncio.run(_streams(server, clients, seconds, model, key))


async def _streams(server: Server, clients: int, seconds: float, model: str, key: str) -> Load:
    load, begun = Load(seconds), server.cpu
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx2.AsyncClient(base_url=server.address, timeout=PATIENCE, limits=limits) as http:
        watching = asyncio.create_task(_watch(server, load))
        end = time.monotonic() + seconds
        made = [_Client(http, load, n, model, key or f"client-{n}") for n in range(clients)]
        await asyncio.gather(*(client.talk(n / clients, end) for n, client in enumerate(made)))
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
    ended = server.cpu
    load.cpu = round(ended - begun, 2) if begun is not None and ended is not None else None
    return load


async def _watch(server: Server, load: Load) -> None:
    while (size := server.rss) is not None:
        load.rss.append(size)
        await asyncio.sleep(1)


@dataclass
class _Client:
    """One client with its stream."""

    http: httpx2.AsyncClient
    load: Load
    number: int
    model: str
    key: str

    async def talk(self, wait: float, end: float) -> None:
        """Have a reply streamed from `wait` seconds on until the time `end`; one that fails is asked for again."""
        await asyncio.sleep(wait)
        load = self.load
        while (left := end - time.monotonic()) > 1 / RATE:
            many = int(RATE * left)
            said = [{"role": "user", "content": f"Count. {asking(self.number, many, 1 / RATE)}"}]
            try:
                text = await self._reply({"model": self.model, "stream": True, "messages": said})
            except httpx2.HTTPError as error:
                load.errors[type(error).__name__] += 1
                text = ""
            if text:
                load.streams += 1
                lost, disordered = judged(text, self.number, many)
                load.lost += lost
                load.disordered += disordered
                return
            await asyncio.sleep(RETRY)

    async def _reply(self, body: Mapping[str, Any]) -> str:
        """The text of a reply that came to its end; nothing otherwise, with the error counted."""
        load, pieces, whole = self.load, list[str](), False
        headers = {"authorization": f"Bearer {self.key}"}
        async with self.http.stream(
            "POST", PATHS["chat"], headers=headers, content=msgspec.json.encode(body)
        ) as answer:
            if answer.status_code != 200:
                load.errors[f"status {answer.status_code}"] += 1
                return ""
            async for line in answer.aiter_lines():
                if line == "data: [DONE]":
                    whole = True
                elif found := _PIECE.search(line):
                    load.delays.append(time.monotonic() - float(found[3]))
                    load.events += 1
                    pieces.append(found[0])
                elif '"error"' in line:
                    load.errors["error in a stream"] += 1
        if not whole:
            load.errors["stream without an end"] += 1
        return "".join(pieces) if whole else ""
