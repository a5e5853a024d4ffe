"""Where requests go: a provider's address, or the embedded model in this process."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import httpx2

from forgetless.tokens import Counter

__all__ = ["Answer", "HttpUpstream", "Upstream", "UpstreamError"]

Headers = Sequence[tuple[str, str]]

HOP_BY_HOP = frozenset(
    {
        "connection",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that concern one connection only (RFC 9110, section 7.6.1), and the name of this host."""


OURS = "x-forgetless-"
"""Headers that are meant for the proxy."""


class UpstreamError(Exception):
    """Upstream could not be reached, or broke off before it answered.

    Attributes:
        status: what to answer: 502, or 504 when it took too long.
    """

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class Answer:
    """What upstream answers.

    Attributes:
        status: of HTTP.
        headers: without those of one connection.
        chunks: the body as it comes; iterating raises `UpstreamError` when it breaks off.
        close: lets go of the connection; to be awaited in any case.
    """

    status: int
    headers: list[tuple[str, str]]
    chunks: AsyncIterator[bytes]
    close: Callable[[], Awaitable[None]]

    def header(self, name: str) -> str:
        """The value of a header, or nothing."""
        return next((value for key, value in self.headers if key == name), "")


class Upstream(Protocol):
    """Takes requests.

    Attributes:
        budget: most tokens of a request, where it is known of itself.
        counter: what counts for it, where that is known.
    """

    budget: int | None
    counter: Counter | None

    async def send(
        self, method: str, path: str, headers: Headers, body: bytes | AsyncIterator[bytes] | None, *, read: bool
    ) -> Answer:
        """Send a request.

        Args:
            method: of HTTP.
            path: with its query.
            headers: as the client sent them.
            body: whole, or as it comes.
            read: whether the answer is going to be read here, so that it must not be compressed.

        Raises:
            UpstreamError: there is no answer.
        """

    async def close(self) -> None:
        """Let go of everything."""


class HttpUpstream:
    """A provider, over HTTP."""

    budget: int | None = None
    counter: Counter | None = None

    def __init__(self, base: str, timeout: float) -> None:
        """Take its base address (with or without `/v1` at the end) and the seconds to wait for the next byte."""
        self._base = base.rstrip("/")
        self._versioned = re.search(r"/v\d+(beta)?$", self._base)
        self._client = httpx2.AsyncClient(
            timeout=httpx2.Timeout(timeout, connect=10.0, pool=None),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=200, keepalive_expiry=30.0),
        )
        self._client.headers.clear()  # what a client does not send is not sent for it

    async def send(
        self, method: str, path: str, headers: Headers, body: bytes | AsyncIterator[bytes] | None, *, read: bool
    ) -> Answer:
        """Send a request, as in `Upstream`."""
        drop = {*HOP_BY_HOP, *_connection(headers), *(("accept-encoding",) if read else ())}
        if isinstance(body, bytes):
            drop.add("content-length")
        sent = [(name, value) for name, value in headers if name not in drop and not name.startswith(OURS)]
        if read or not any(name == "accept-encoding" for name, _ in sent):
            sent.append(("accept-encoding", "identity"))
        try:
            raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in sent]
            request = self._client.build_request(method, self._url(path), headers=raw, content=body)
            response = await self._client.send(request, stream=True)
        except httpx2.HTTPError as error:
            raise _told(error) from None
        except (httpx2.InvalidURL, UnicodeError) as error:
            raise UpstreamError(502, f"the path can't be sent upstream: {error}") from None
        drop = {*HOP_BY_HOP, *_connection(response.headers.multi_items())}
        if read:
            drop |= {"content-encoding", "content-length"}
        kept = [(name, value) for name, value in response.headers.multi_items() if name not in drop]
        chunks = response.aiter_bytes() if read else response.aiter_raw()
        return Answer(response.status_code, kept, _guarded(chunks), response.aclose)

    def _url(self, path: str) -> str:
        """Both may say `/v1`: clients take it for a part of the base address, and so do providers' pages."""
        if self._versioned and path.startswith(f"{self._versioned[0]}/"):
            path = path.removeprefix(self._versioned[0])
        return self._base + path

    async def close(self) -> None:
        """Close its connections."""
        await self._client.aclose()


def _connection(headers: Headers) -> set[str]:
    """Headers that `Connection` names as concerning it alone."""
    return {name.strip().lower() for key, value in headers if key.lower() == "connection" for name in value.split(",")}


async def _guarded(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    try:
        async for chunk in chunks:
            yield chunk
    except httpx2.HTTPError as error:
        raise _told(error) from None


def _told(error: httpx2.HTTPError) -> UpstreamError:
    late = isinstance(error, httpx2.TimeoutException)
    what = "took too long" if late else "could not be reached"
    return UpstreamError(504 if late else 502, f"the upstream {what}: {type(error).__name__}")
