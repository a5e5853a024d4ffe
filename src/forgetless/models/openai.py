"""Any server that speaks OpenAI's Chat Completions, over HTTP."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Any

import httpx2

from forgetless.errors import ConfigError, ModelError
from forgetless.replies.loose import fault, listed, mapping, string
from forgetless.replies.sse import Event, Events
from forgetless.tokens import model_facts

__all__ = ["OpenAI"]

TRIES = 3
"""How often a request is sent at most: again after a broken connection, 429 and 5xx, before anything was read."""

DELAY = 0.25
"""Seconds before the second try, doubled before the third, where the server does not say."""

PATIENCE = 20.0
"""Most seconds that a server's `Retry-After` is waited for; one who asks for more gets no second try."""


class OpenAI:
    """A model behind an OpenAI-compatible server.

    Args:
        base_url: as OpenAI's own clients take it, `/v1` included.
        model: the name that requests carry where they have none.
        api_key: by default that of the environment variable `OPENAI_API_KEY`; it never shows in an error.
        timeout: seconds without a byte, or None for no limit.

    Raises:
        ConfigError: the address or the key can't be used.
    """

    def __init__(self, base_url: str, model: str, api_key: str | None = None, *, timeout: float | None = 600.0) -> None:
        url = _address(base_url)
        self.name = model
        facts = model_facts(model)
        self.window = facts.window if facts else None
        self._key = (os.environ.get("OPENAI_API_KEY", "") if api_key is None else api_key).strip()
        if not (self._key.isascii() and self._key.isprintable()):
            raise ConfigError("the API key has characters that no header can carry")
        self._url = str(url.copy_with(userinfo=b"")).rstrip("/")
        self._client = httpx2.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
            timeout=httpx2.Timeout(timeout, connect=10.0),
            trust_env=not _loopback(url.host),  # this machine is not reached through a proxy
        )

    def __repr__(self) -> str:
        return f"OpenAI({self._url!r}, {self.name!r})"

    def __call__(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """A completion for a request body.

        Raises:
            ModelError: no answer came, or an error did; it has the server's status and body.
        """
        asked = {key: value for key, value in body.items() if key != "stream_options"}
        with self._answer({"model": self.name, **asked, "stream": False}) as response:
            found = _decoded(response.read())
        if not isinstance(found, dict) or fault(found) or not listed(found.get("choices")):
            raise self._error(response.status_code, found, "answered with something that is no completion")
        return found

    def stream(self, body: Mapping[str, Any]) -> Generator[dict[str, Any], None, None]:
        """The chunks of a completion as they come; closing the generator closes the connection.

        Raises:
            ModelError: as above; also for an error inside the stream, and for a stream that breaks off.
        """
        finished = False
        with self._answer({"model": self.name, **body, "stream": True}) as response:
            for event in _events(response):
                if event.data == "[DONE]":
                    return
                if not event.data:
                    continue
                chunk = _decoded(event.data)
                if not isinstance(chunk, dict) or fault(chunk):
                    raise self._error(response.status_code, chunk, "sent something that is no chunk of a completion")
                finished = finished or any(c.get("finish_reason") for c in listed(chunk.get("choices")))
                yield chunk
        if not finished:
            raise ModelError(f"the stream of {self.name!r} at {self._url} broke off")

    def close(self) -> None:
        """Let go of connections."""
        self._client.close()

    @contextmanager
    def _answer(self, body: Mapping[str, Any]) -> Iterator[httpx2.Response]:
        """A good answer, its body still to be read; transport errors become model errors until the end."""
        content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        try:
            response = self._sent(content)
            try:
                yield response
            finally:
                response.close()
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            told = self._hidden(str(error)) or type(error).__name__
            raise ModelError(f"{self.name!r} at {self._url} could not be reached: {told}") from None

    def _sent(self, content: bytes) -> httpx2.Response:
        headers = {"Content-Type": "application/json"}
        waits = iter([DELAY * 2**n for n in range(TRIES - 1)])
        while True:
            wait = next(waits, None)
            try:
                request = self._client.build_request("POST", "chat/completions", content=content, headers=headers)
                response = self._client.send(request, stream=True)
            except (httpx2.NetworkError, httpx2.ConnectTimeout, httpx2.RemoteProtocolError):
                if wait is None:
                    raise
            else:
                if response.is_success:
                    return response
                found = _decoded(response.read())
                wait = _patience(response, wait)
                if wait is None:
                    raise self._error(response.status_code, found, "refused the request")
            time.sleep(wait)

    def _error(self, status: int, body: Any, otherwise: str) -> ModelError:
        """The error that a server told of, without the key, should it repeat that."""
        told = fault(body) if isinstance(body, Mapping) else None
        message = string(mapping(told).get("message")) or (body if isinstance(body, str) else "") or otherwise
        shown = self._hidden(" ".join(message.split()))[:500]
        kept = json.loads(self._hidden(json.dumps(body))) if isinstance(body, Mapping) else None
        return ModelError(f"{self.name!r} at {self._url}: {status}: {shown}", status=status, body=kept)

    def _hidden(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text


def _address(base_url: str) -> httpx2.URL:
    try:
        url = httpx2.URL(base_url.rstrip("/") + "/")
    except (httpx2.InvalidURL, TypeError, AttributeError):
        raise ConfigError(f"{base_url!r} is no address of a server") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigError(f"the address of a server begins with http:// or https://, not {base_url!r}")
    return url


def _loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _events(response: httpx2.Response) -> Iterator[Event]:
    events = Events()
    for piece in response.iter_bytes():
        yield from events.feed(piece)
    yield from events.rest()


def _decoded(data: bytes | str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return data.decode("utf-8", "replace") if isinstance(data, bytes) else data


def _patience(response: httpx2.Response, wait: float | None) -> float | None:
    """Seconds before the next try, or None where there is none to be."""
    if wait is None or not (response.status_code == 429 or response.status_code >= 500):
        return None
    try:
        told = float(response.headers.get("retry-after", wait))
    except ValueError:
        return wait
    return told if 0 <= told <= PATIENCE else None
