"""The proxy as an ASGI app: three paths that are dealt with, a few of our own, all others passed through."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from forgetless.errors import StoreError
from forgetless.instructions.load import recogniser
from forgetless.proxy.conversations import Conversations
from forgetless.proxy.endpoint import Endpoint, Proxy
from forgetless.proxy.incoming import caller_of, path_of
from forgetless.proxy.journal import Journal
from forgetless.proxy.logs import logs
from forgetless.proxy.memories import Memories
from forgetless.proxy.metrics import Metrics
from forgetless.proxy.pinboard import Pinboard
from forgetless.proxy.planning import UNLIMITED
from forgetless.proxy.relay import Relay
from forgetless.proxy.scorers import Scorers
from forgetless.proxy.settings import Settings
from forgetless.proxy.upstream import Answer, HttpUpstream, Upstream, UpstreamError
from forgetless.registry import load_rewriter
from forgetless.replies.faults import error_body
from forgetless.session import Session
from forgetless.stores.base import Store
from forgetless.stores.open import open_store
from forgetless.tokens import model_facts

__all__ = ["SETTINGS", "app", "build"]

log = logging.getLogger("forgetless.proxy")

SETTINGS = "FORGETLESS_SETTINGS"
"""Environment variable in which a worker finds its settings."""

SWITCH = 0.0005
"""Seconds for which one thread may keep the others waiting: Python's 0.005 would be felt by every request."""

PURGE_EVERY = 3_600.0
"""Seconds between two looks for conversations that are older than is to be kept."""

PATHS = (("/chat/completions", "chat"), ("/responses", "responses"), ("/messages", "anthropic"))


def app() -> Starlette:
    """The app that the environment describes: what a server's worker calls."""
    gc.freeze()  # what is loaded by now stays, and need not be looked through for each long history
    gc.set_threshold(50_000, 20, 100)
    sys.setswitchinterval(SWITCH)
    logs()
    return build(Settings.loads(os.environ[SETTINGS]))


def build(settings: Settings, *, upstream: Upstream | None = None, store: Store | None = None) -> Starlette:
    """The app for settings.

    Args:
        settings: how it works.
        upstream: in place of the one that the settings name.
        store: in place of the one that the settings name.

    Raises:
        ConfigError: as `Settings`.
        StoreError: the store can't be opened.
    """
    scorers = Scorers(settings)
    kept = store if store is not None else open_store(settings.store, contents=settings.contents)
    target = upstream if upstream is not None else _upstream(settings)
    metrics = Metrics()
    journal = Journal(kept, metrics)

    def session(dialect: str, body: Mapping[str, Any]) -> Session:
        budget = settings.budget or target.budget
        if budget is None and not (isinstance(model := body.get("model"), str) and model_facts(model)):
            budget = UNLIMITED
        return scorers.session(budget, target.counter, dialect)

    memories = None
    if settings.rewrites:
        rewriter = load_rewriter(settings.policy, **settings.options)
        memories = Memories(rewriter, kept, metrics, shortens=settings.truncate)
    proxy = Proxy(settings, target, kept, journal, metrics, Conversations(kept, session), memories)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        cleaning = asyncio.create_task(_purge(settings, kept))
        try:
            yield
        finally:
            cleaning.cancel()
            with suppress(asyncio.CancelledError):
                await cleaning
            await target.close()
            await asyncio.to_thread(journal.close)
            kept.close()

    routes = [
        Route("/healthz", _Health(), methods=["GET"]),
        Route("/metrics", _Figures(metrics), methods=["GET"]),
        Route("/forgetless/requests/{id}", _Ledger(kept), methods=["GET"]),
        *Pinboard(kept, proxy.conversations, recogniser(settings.instructions)).routes(),
    ]
    for path, dialect in PATHS:
        endpoint = Endpoint(proxy, dialect)
        routes.append(Route(f"/v1{path}", endpoint, methods=["POST"]))
        routes.append(Route(f"/{{base:path}}/v1{path}", endpoint, methods=["POST"]))
        if dialect != "anthropic":
            routes.append(Route(path, endpoint, methods=["POST"]))
            routes.append(Route(f"/{{base:path}}{path}", endpoint, methods=["POST"]))
    routes += [Route("/forgetless/{path:path}", _Unknown()), Route("/{path:path}", PassThrough(proxy))]
    return Starlette(routes=routes, lifespan=lifespan)


def _upstream(settings: Settings) -> Upstream:
    if settings.upstream == "embedded":
        from forgetless.proxy.embedded import EmbeddedUpstream

        return EmbeddedUpstream()
    return HttpUpstream(settings.upstream, settings.timeout)


async def _purge(settings: Settings, store: Store) -> None:
    """Remove what is older than is to be kept, now and from time to time."""
    while settings.keep_days:
        try:
            gone = await asyncio.to_thread(store.purge, before=time.time() - settings.keep_days * 86_400)
            if gone:
                log.info("old conversations removed", extra={"data": {"conversations": gone}})
        except StoreError as error:
            log.warning("old conversations not removed", extra={"data": {"error": str(error)}})
        await asyncio.sleep(PURGE_EVERY)


class _Health:
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await JSONResponse({"status": "ok"})(scope, receive, send)


class _Unknown:
    """Paths that look like ours: no provider has them, and none needs to see the credentials that came along."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        about = f"the proxy has no {scope['method']} {scope['path']}"
        await _error(404, "not_found", about)(scope, receive, send)


class _Figures:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await Response(self._metrics.text(), media_type="text/plain; version=0.0.4")(scope, receive, send)


class _Ledger:
    """What became of a request, for the caller who sent it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        caller = caller_of(request.headers.items(), self._store.salt)
        try:
            found = await asyncio.to_thread(self._store.request, caller, request.path_params["id"])
        except StoreError as error:
            await _error(503, "store_away", str(error))(scope, receive, send)
            return
        if found is None:
            await _error(404, "not_found", "no such request of this caller is in the store")(scope, receive, send)
            return
        names = ("unit", "messages", "form", "pinned", "score", "reason", "tokens_before", "tokens_after")
        about = ("id", "conversation", "at", "dialect", "model", "policy", "scorer", "outcome", "status", "budget")
        counts = ("tokens_before", "tokens_after", "reused_tokens", "input_tokens", "cached_tokens", "output_tokens")
        body = {name: getattr(found, name) for name in (*about, *counts)}
        body["ledger"] = [dict(zip(names, row, strict=True)) for row in found.rows]
        await JSONResponse(body)(scope, receive, send)


def _error(status: int, kind: str, text: str) -> Response:
    return JSONResponse(error_body("chat", status, kind, text), status)


class PassThrough:
    """Every other path: the request and its answer as they are, as they come."""

    def __init__(self, proxy: Proxy) -> None:
        """Take what requests share."""
        self._proxy = proxy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request through."""
        self._proxy.metrics.passed.inc()
        request = Request(scope, receive)
        headers = request.headers
        body = request.stream() if "content-length" in headers or "transfer-encoding" in headers else None
        try:
            answer = await self._proxy.upstream.send(
                request.method, path_of(request), headers.items(), body, read=False
            )
        except UpstreamError as error:
            await _error(error.status, "upstream_unreachable", str(error))(scope, receive, send)
            return
        except ClientDisconnect:
            return
        await Relay(answer.status, answer.headers, _closing(answer))(scope, receive, send)


async def _closing(answer: Answer) -> AsyncGenerator[bytes, None]:
    try:
        async for chunk in answer.chunks:
            yield chunk
    finally:
        await answer.close()
