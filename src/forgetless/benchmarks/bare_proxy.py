"""The least that a proxy of our stack can do: Starlette and httpx2, requests and replies streamed through.

Run as a script with the upstream's address: what `forgetless serve` is measured against.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from forgetless.benchmarks.loopback import serve

__all__ = ["build"]

OWN = frozenset({"host", "connection", "transfer-encoding"})
"""Headers of one connection."""


def build(upstream: str) -> Starlette:
    """The app that passes everything on to `upstream`."""
    client = httpx2.AsyncClient(
        timeout=600, limits=httpx2.Limits(max_connections=None, max_keepalive_connections=200, keepalive_expiry=30)
    )

    async def passed(request: Request) -> StreamingResponse:
        headers = [(name, value) for name, value in request.headers.items() if name not in OWN]
        sent = client.build_request(
            request.method, upstream + request.url.path, headers=headers, content=request.stream()
        )
        answer = await client.send(sent, stream=True)
        kept = {name: value for name, value in answer.headers.items() if name not in OWN}

        async def chunks() -> AsyncIterator[bytes]:
            try:
                async for chunk in answer.aiter_raw():
                    yield chunk
            finally:
                await answer.aclose()

        return StreamingResponse(chunks(), answer.status_code, kept)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await client.aclose()

    return Starlette(routes=[Route("/{path:path}", passed, methods=["GET", "POST"])], lifespan=lifespan)


if __name__ == "__main__":
    serve(build(sys.argv[1]))
