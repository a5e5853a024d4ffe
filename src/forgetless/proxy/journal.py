"""Records on their way to the store: one thread writes them, many in one transaction.

A request waits for its record before its last byte goes out, so what a client has read is kept. It does not wait
for ever: when the store is away, the request is served and the record stays in a bounded queue until the store is
back. What finds the queue full, or what a store that works will not take, is refused and counted.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from forgetless.errors import StoreError
from forgetless.proxy.metrics import Metrics
from forgetless.stores.base import Exchange, Store

__all__ = ["Journal"]

log = logging.getLogger("forgetless.proxy")

PATIENCE = 2.0
"""Seconds that a request waits for its record."""

MOST = 10_000
"""Records in the queue."""

MOST_BYTES = 256 * 2**20
"""Bytes of messages in the queue."""

BATCH = 256
PAUSE = 0.5
"""Seconds between two tries when the store is away."""


@dataclass
class _Item:
    exchange: Exchange
    size: int
    loop: asyncio.AbstractEventLoop
    kept: asyncio.Future[bool]

    def tell(self, kept: bool) -> None:
        """Say to the request, if it still waits, whether its record is in the store."""
        with suppress(RuntimeError):  # the loop has ended, and so has the request
            self.loop.call_soon_threadsafe(_settle, self.kept, kept)


def _settle(future: asyncio.Future[bool], kept: bool) -> None:
    if not future.done():
        future.set_result(kept)


class Journal:
    """Writes records to a store."""

    def __init__(self, store: Store, metrics: Metrics) -> None:
        """Start the thread that writes."""
        self._store = store
        self._metrics = metrics
        self._queue: deque[_Item] = deque()
        self._bytes = 0
        self._wake = threading.Condition()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="forgetless-journal", daemon=True)
        self._thread.start()

    async def keep(self, exchange: Exchange) -> bool:
        """Whether the record is on its way, or already kept; False when it was refused."""
        loop = asyncio.get_running_loop()
        size = sum(len(node.wire or b"") for node in exchange.nodes)
        item = _Item(exchange, size, loop, loop.create_future())
        with self._wake:
            if self._closing.is_set() or len(self._queue) >= MOST or self._bytes + size > MOST_BYTES:
                self._metrics.records.labels("refused").inc()
                return False
            self._queue.append(item)
            self._bytes += size
            self._wake.notify()
        self._metrics.waiting.inc()
        try:
            return await asyncio.wait_for(asyncio.shield(item.kept), PATIENCE)
        except TimeoutError:
            self._metrics.records.labels("late").inc()
            return True

    def close(self, seconds: float = 10.0) -> None:
        """Write what waits, for at most so long, and stop."""
        self._closing.set()
        with self._wake:
            self._wake.notify()
        self._thread.join(seconds)
        if self._queue:
            log.error("records lost at the end", extra={"data": {"records": len(self._queue)}})
            self._metrics.records.labels("lost").inc(len(self._queue))

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._queue and not self._closing.is_set():
                    self._wake.wait()
                batch = [self._queue[place] for place in range(min(BATCH, len(self._queue)))]
            if not batch:
                return
            done = self._write(batch)
            with self._wake:
                for _ in range(done):
                    self._bytes -= self._queue.popleft().size
            self._metrics.waiting.dec(done)
            with suppress(StoreError):  # it is away, as the next write will show
                while self._store.tidy() and not self._queue:
                    pass
            if done < len(batch) and self._closing.wait(PAUSE):
                return

    def _write(self, batch: Sequence[_Item]) -> int:
        """How many records, from the first, the store has said yes or no to; not all of them when it is away."""
        try:
            self._store.write([item.exchange for item in batch])
        except StoreError as error:
            if len(batch) > 1:
                # One record that it will not take must not hold up the others, nor they be lost with it.
                half = len(batch) // 2
                done = self._write(batch[:half])
                return done + self._write(batch[half:]) if done == half else done
            if self._away():
                log.warning("the store is away", extra={"data": {"error": str(error)}})
                return 0
            if (refusal := self._refused(batch[0])) is not None:
                log.error("the store refused a record", extra={"data": {"error": refusal}})
                self._metrics.records.labels("refused").inc()
                batch[0].tell(False)
                return 1
        self._metrics.records.labels("kept").inc(len(batch))
        for item in batch:
            item.tell(True)
        return len(batch)

    def _refused(self, item: _Item) -> str | None:
        """Why a store that works does not take a record; None when it has just come back, and takes it now."""
        try:
            self._store.write([item.exchange])
        except StoreError as error:
            return str(error)
        return None

    def _away(self) -> bool:
        try:
            self._store.pins("", "")
        except StoreError:
            return True
        return False
