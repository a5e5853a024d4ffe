"""A response that passes chunks on as they come, and lets go of everything when the client leaves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from forgetless.proxy.upstream import UpstreamError

__all__ = ["Relay", "unless_gone"]

T = TypeVar("T")

log = logging.getLogger("forgetless.proxy")


class Relay:
    """An ASGI response. Back-pressure is the server's: `send` waits while the client is slow."""

    def __init__(self, status: int, headers: Sequence[tuple[str, str]], chunks: AsyncGenerator[bytes, None]) -> None:
        """Take what is to be sent; `chunks` is closed in any case."""
        self._status = status
        self._headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        self._chunks = chunks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        pump = asyncio.ensure_future(self._pump(send))
        gone = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait({pump, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            broken = not pump.done()
            pump.cancel()
            with suppress(asyncio.CancelledError, OSError):  # OSError: the client left while it was written to
                await pump
            await self._chunks.aclose()
            if broken:
                log.info("the client left", extra={"data": {}})

    async def _pump(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self._status, "headers": self._headers})
        try:
            async for chunk in self._chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except UpstreamError as error:
            # The headers are out: breaking the connection off is how the client learns that this is not the end.
            log.warning("upstream broke off", extra={"data": {"error": str(error)}})
            raise ConnectionAbortedError from None
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def unless_gone(work: Coroutine[Any, Any, T], receive: Receive) -> T:
    """What `work` comes to; it is called off when the client leaves before, for nobody would read it.

    Raises:
        ClientDisconnect: the client left.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientDisconnect
    finally:
        gone.cancel()
        task.cancel()
        await asyncio.wait({task, gone})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
