"""What is taken from a client's request before anything is done with it."""

from __future__ import annotations

import asyncio
import re
from hashlib import blake2b

from starlette.requests import Request

from forgetless.proxy.upstream import Headers

__all__ = ["Refused", "caller_of", "path_of", "read_body"]

SLOW_CLIENT = 60.0
"""Seconds for the next piece of a request's body."""

CREDENTIALS = frozenset({"authorization", "x-api-key", "api-key", "x-goog-api-key"})
"""Headers that say who asks, as the providers know them."""

_BEARER = re.compile(r"^bearer +", re.IGNORECASE)


class Refused(Exception):
    """The proxy answers by itself, with an error."""

    def __init__(self, status: int, kind: str, text: str) -> None:
        self.status, self.kind = status, kind
        super().__init__(text)


async def read_body(request: Request, most: int) -> bytes:
    """The body of a request.

    Raises:
        Refused: it is too large, or comes too slowly.
    """
    pieces: list[bytes] = []
    size = 0
    stream = request.stream().__aiter__()
    while True:
        try:
            async with asyncio.timeout(SLOW_CLIENT):
                piece = await anext(stream, None)
        except TimeoutError:
            raise Refused(408, "request_timeout", "the request's body did not come in time") from None
        if piece is None:
            return b"".join(pieces)
        size += len(piece)
        if size > most:
            raise Refused(413, "body_too_large", f"the request is over {most:,} bytes, which max_body allows")
        pieces.append(piece)


def caller_of(headers: Headers, salt: bytes) -> str:
    """Who asks: a salted hash of all credentials, which are kept nowhere. A key is the same in whatever header."""
    found = {_BEARER.sub("", value) for name, value in headers if name.lower() in CREDENTIALS}
    told = "\0".join(sorted(found))
    return blake2b(told.encode("utf-8", "surrogateescape"), key=salt, digest_size=16).hexdigest()


def path_of(request: Request) -> str:
    """The path with its query, as it came."""
    raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
    query: bytes = request.scope.get("query_string") or b""
    return (raw + (b"?" + query if query else b"")).decode("latin-1")
