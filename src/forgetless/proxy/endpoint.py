"""One request: read, brought within its budget, forwarded, answered, recorded.

Nothing that goes wrong here may cost the client its reply. A request that is not understood, a policy that fails, a
store that is away: the request goes upstream as it came, and the fault is counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from secrets import token_hex
from time import perf_counter
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from forgetless.errors import BudgetError, ConfigError, RequestError, StoreError
from forgetless.proxy.answers import passed, whole
from forgetless.proxy.bodies import decode, encode
from forgetless.proxy.conversations import Conversations, Live, leading
from forgetless.proxy.incoming import Refused, caller_of, path_of, read_body
from forgetless.proxy.journal import Journal
from forgetless.proxy.memories import Memories, Screened
from forgetless.proxy.metrics import Metrics
from forgetless.proxy.pins import HEADERS, keep, named
from forgetless.proxy.planning import Plan, plan, record, refused
from forgetless.proxy.relay import Relay, unless_gone
from forgetless.proxy.rounds import Rounds
from forgetless.proxy.settings import Settings
from forgetless.proxy.upstream import Answer, Upstream, UpstreamError
from forgetless.registry import calls_model
from forgetless.replies.base import Completion
from forgetless.replies.faults import error_body
from forgetless.replies.overflow import overflow
from forgetless.replies.readers import reader
from forgetless.replies.sse import Events
from forgetless.stores.base import Store

__all__ = ["Endpoint", "Proxy"]

log = logging.getLogger("forgetless.proxy")

IN_THREAD, FIRST_IN_THREAD = 2**20, 2**16
"""Bytes of a body above which it is prepared in a thread, so that others need not wait."""


@dataclass(frozen=True)
class Proxy:
    """What all requests share."""

    settings: Settings
    upstream: Upstream
    store: Store
    journal: Journal
    metrics: Metrics
    conversations: Conversations
    memories: Memories | None = None


class Endpoint:
    """The ASGI app for one dialect's path."""

    def __init__(self, proxy: Proxy, dialect: str) -> None:
        """Take what requests share, and the dialect's name."""
        self._proxy = proxy
        self._dialect = dialect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        ident = f"fr_{token_hex(12)}"
        try:
            request = Request(scope, receive)
            data = await read_body(request, self._proxy.settings.max_body)
            response = await unless_gone(_Exchange(self._proxy, self._dialect, request, ident).run(data), receive)
        except ClientDisconnect:
            return
        except Refused as error:
            self._proxy.metrics.requests.labels(self._dialect, error.kind, str(error.status)).inc()
            body = error_body(self._dialect, error.status, error.kind, str(error))
            headers = {"x-forgetless-request-id": ident}
            if error.status == 408:
                headers["connection"] = "close"  # the rest of the body may trickle in for ever
            response = Response(encode(body), error.status, headers, "application/json")
        await response(scope, receive, send)


class _Exchange:
    """One request and its answer."""

    def __init__(self, proxy: Proxy, dialect: str, request: Request, ident: str) -> None:
        self._proxy = proxy
        self._dialect = dialect
        self._request = request
        self._ident = ident
        self._headers = request.headers.items()
        self._caller = caller_of(self._headers, proxy.store.salt)
        self._plan: Plan | None = None
        self._rounds: Rounds | None = None
        self._screened: Screened | None = None
        self._outcome = ""
        self._recorded = False
        self._sent = 0.0  # seconds spent before the request went on
        self._started = perf_counter()

    async def run(self, data: bytes) -> Response | Relay:
        """The response to a body, ready to be sent."""
        try:
            return await self._run(data)
        except asyncio.CancelledError:  # the client left, or the proxy is stopped
            if self._plan is not None and not self._recorded:
                await self._record(None, 0)
            self._log(0)
            raise

    async def _run(self, data: bytes) -> Response | Relay:
        value = self._value(data)
        if value is not None:
            await self._prepare(data, value)
        body = self._plan.body if self._plan is not None else data
        self._sent = perf_counter() - self._started
        self._proxy.metrics.added.observe(self._sent)
        while True:
            answer = await self._ask(body)
            if answer.header("content-type").startswith("text/event-stream"):
                return Relay(answer.status, self._told(answer), self._stream(answer))
            reply = await whole(answer)
            shorter = answer.status >= 400 and await self._shortened(answer.status, reply, data, value)
            if self._plan is None or not shorter:
                return await self._answered(*await self._recalled(answer, reply))
            body = self._plan.body

    def _value(self, data: bytes) -> Mapping[str, Any] | None:
        """The request, where it is one that can be dealt with."""
        try:
            value = decode(data)
        except (ValueError, RecursionError):
            self._outcome = "unreadable"
            return None
        if not isinstance(value, dict):
            self._outcome = "unreadable"
            return None
        if value.get("previous_response_id") or value.get("conversation"):
            self._outcome = "held"  # the provider holds the history
            if (memories := self._proxy.memories) is not None:
                self._screened = Screened(memories, self._dialect, None)
            return None
        return value

    async def _prepare(self, data: bytes, value: Mapping[str, Any]) -> None:
        """Plan what is sent; on any fault nothing is planned, and the request goes as it came."""
        proxy = self._proxy
        name = self._request.headers.get("x-forgetless-conversation", "")[:200]
        try:
            live = await proxy.conversations.find(self._caller, self._dialect, value, len(data), name)
            async with live.lock:
                self._pin(live, value)
                if proxy.memories is not None:
                    await proxy.memories.before(live, value)
                args = (self._ident, live, data, value, proxy.settings)
                most = IN_THREAD if live.request else FIRST_IN_THREAD
                quick = len(data) < most and not calls_model(proxy.settings.policy, proxy.settings.options)
                self._plan = plan(*args) if quick else await asyncio.to_thread(plan, *args)
        except Refused:
            raise
        except BudgetError as error:
            raise Refused(400, "budget_exceeded", str(error)) from None
        except RequestError as error:
            self._outcome = "invalid"
            log.info("a request is not understood", extra={"data": {"id": self._ident, "error": _kind(error)}})
        except ConfigError as error:
            self._outcome = "no_budget"
            log.warning("no budget", extra={"data": {"id": self._ident, "error": str(error)}})
        except StoreError as error:
            self._fault("store", error)
        except Exception as error:  # noqa: BLE001 - the boundary: a policy may do anything
            self._fault("policy", error)
        else:
            self._planned(self._plan, data, value)
            self._count(self._plan)

    def _planned(self, made: Plan, data: bytes, value: Mapping[str, Any]) -> None:
        self._outcome = made.outcome
        self._rounds = Rounds(made, data, value) if made.offer is not None else None
        if (memories := self._proxy.memories) is not None and made.live.policy is not None:
            self._screened = Screened(memories, self._dialect, made.live.policy)

    def _pin(self, live: Live, value: Mapping[str, Any]) -> None:
        """Pin and unpin the messages that headers name."""
        if any(header in self._request.headers for header in HEADERS):
            live.session.take(value)
            taken = live.update()
            try:
                named(live.pins, self._request.headers, live.keys, taken.parsed.start + leading(taken.parsed.messages))
            except ConfigError as error:
                raise Refused(400, "bad_pin", str(error)) from None

    def _fault(self, kind: str, error: Exception) -> None:
        """Count a fault of ours. Its text may hold what users said: the log gets its kind and place."""
        self._outcome = "fault"
        self._plan = None
        self._proxy.metrics.faults.labels(kind).inc()
        log.error("forwarded unchanged", extra={"data": {"id": self._ident, "fault": kind, "error": _kind(error)}})

    def _count(self, made: Plan) -> None:
        metrics, done = self._proxy.metrics, made.done
        metrics.before.inc(done.tokens_before)
        metrics.after.inc(done.tokens)
        metrics.reused.inc(done.reused_tokens)
        if made.outcome != "shadow":
            metrics.saved.inc(max(0, done.tokens_before - done.tokens))
        metrics.live.set(len(self._proxy.conversations))

    async def _ask(self, body: bytes) -> Answer:
        """Send the request on."""
        started = perf_counter()
        try:
            answer = await self._send(body)
        except UpstreamError as error:
            self._proxy.metrics.faults.labels("upstream").inc()
            if self._plan is not None:
                await self._record(None, error.status)
            kind = "upstream_timeout" if error.status == 504 else "upstream_unreachable"
            raise Refused(error.status, kind, str(error)) from None
        self._proxy.metrics.upstream.observe(perf_counter() - started)
        return answer

    async def _send(self, body: bytes) -> Answer:
        return await self._proxy.upstream.send("POST", path_of(self._request), self._headers, body, read=True)

    async def _recalled(self, answer: Answer, reply: bytes) -> tuple[Answer, bytes]:
        """The answer, once the model has had back what it asks for."""

        async def ask(body: bytes) -> tuple[Answer, bytes]:
            more = await self._ask(body)
            return more, await whole(more)

        if self._screened is not None and answer.status < 400:
            return answer, self._screened.whole(reply)
        if self._rounds is None:
            return answer, reply
        try:
            return await self._rounds.whole((answer, reply), ask)
        except Refused:
            raise
        except Exception as error:  # noqa: BLE001 - the boundary again; the first answer stands
            self._proxy.metrics.faults.labels("recall").inc()
            log.error("not recalled", extra={"data": {"id": self._ident, "error": _kind(error)}})
            return answer, reply

    async def _shortened(self, status: int, reply: bytes, data: bytes, value: Mapping[str, Any] | None) -> bool:
        """Whether the request is worth a second try, shorter, because the provider found it too long."""
        made = self._plan
        if (
            made is None
            or value is None
            or made.outcome in ("shadow", "floor", "overflow")
            or (told := overflow(status, reply)) is None
        ):
            return False
        share = 0.75
        if told.limit and told.tokens and told.tokens > told.limit:
            share = 0.95 * told.limit / told.tokens
        budget = max(1, int(made.done.tokens * share))
        try:
            async with made.live.lock:
                if self._proxy.memories is not None:
                    await self._proxy.memories.before(made.live, value)
                self._plan = plan(self._ident, made.live, data, value, self._proxy.settings, budget=budget)
        except (BudgetError, RequestError, ConfigError):
            return False
        except Exception as error:  # noqa: BLE001 - the boundary again; the first answer stands
            self._proxy.metrics.faults.labels("policy").inc()
            log.error("no second try", extra={"data": {"id": self._ident, "error": _kind(error)}})
            return False
        made.live.budget = budget
        self._planned(self._plan, data, value)
        self._proxy.metrics.faults.labels("overflow").inc()
        return True

    async def _answered(self, answer: Answer, reply: bytes) -> Response:
        """The whole reply, once its record is kept."""
        if self._plan is not None:
            read = reader(self._dialect)
            with suppress(ValueError, RecursionError):
                if isinstance(body := decode(reply), dict):
                    read.body(body)
            await self._record(read.done() if answer.status < 400 else None, answer.status)
        self._log(answer.status)
        response = Response(reply, answer.status)
        response.raw_headers = [
            *((name.encode("latin-1"), value.encode("latin-1")) for name, value in self._told(answer)),
            (b"content-length", str(len(reply)).encode()),
        ]
        return response

    async def _stream(self, answer: Answer) -> AsyncGenerator[bytes, None]:
        """The event stream as it came; its last event once the record is kept."""
        read, events, held = reader(self._dialect), Events(), list[bytes]()
        status = 0  # as long as it has not come to its end
        sewn = self._screened.chunks(answer) if self._screened is not None else None
        sewn = self._rounds.chunks(answer, self._send) if self._rounds is not None else sewn
        try:
            async for chunk in sewn or answer.chunks:
                if out := passed(events.feed(chunk), read, held):
                    yield out
                if held:  # the connection may stay open for long after the last event
                    status = answer.status
                    if self._plan is not None and not self._recorded:
                        await self._record(read.done(), status)
                    yield b"".join(held)
                    held.clear()
            if out := passed(events.rest(), read, held):
                yield out
            status = answer.status
        finally:
            if sewn is not None:
                await sewn.aclose()
            await answer.close()
            if self._plan is not None and not self._recorded:
                await self._record(read.done(), status)
            self._log(status)
        if held:
            yield b"".join(held)

    async def _record(self, completion: Completion | None, status: int) -> None:
        """Have the exchange kept."""
        made, proxy = self._plan, self._proxy
        assert made is not None
        self._recorded = True
        try:
            async with made.live.lock:
                first = self._rounds.first if self._rounds is not None else None
                exchange = record(made, completion, status, proxy.conversations, first)
            if usage := completion.usage if completion is not None else None:
                for kind, tokens in (("input", usage.input), ("cached", usage.cached), ("output", usage.output)):
                    proxy.metrics.provider.labels(kind).inc(max(0, tokens))
            if not await proxy.journal.keep(exchange):
                refused(made.live)
            if self._screened is not None and completion is not None:
                await self._screened.keep(made.live, made.taken, exchange.asked, completion)
            live = made.live
            if live.pins != live.kept_pins:
                await asyncio.to_thread(keep, proxy.store, live.caller, live.id, live.pins, live.kept_pins)
        except Exception as error:  # noqa: BLE001 - the boundary: the reply is there, and goes out
            proxy.metrics.faults.labels("record").inc()
            refused(made.live)
            log.error("no record", extra={"data": {"id": self._ident, "error": _kind(error)}})

    def _told(self, answer: Answer) -> list[tuple[str, str]]:
        """The answer's headers and ours."""
        headers = [(name, value) for name, value in answer.headers if name != "content-length"]
        headers += [("x-forgetless-request-id", self._ident), ("x-forgetless-outcome", self._outcome)]
        if self._plan is not None:
            done = self._plan.done
            headers += [
                ("x-forgetless-conversation", self._plan.live.id),
                ("x-forgetless-tokens-before", str(done.tokens_before)),
                ("x-forgetless-tokens-after", str(done.tokens)),
                ("x-forgetless-tokens-reused", str(done.reused_tokens)),
            ]
        if self._rounds is not None and self._rounds.recalled:
            headers.append(("x-forgetless-recalled", ",".join(map(str, self._rounds.recalled))))
        return headers

    def _log(self, status: int) -> None:
        """One line a request: numbers and ids, nothing that anybody said."""
        made = self._plan
        self._proxy.metrics.requests.labels(self._dialect, self._outcome, str(status)).inc()
        data: dict[str, Any] = {
            "id": self._ident,
            "caller": self._caller[:8],
            "dialect": self._dialect,
            "outcome": self._outcome,
            "status": status,
            "added_ms": round(self._sent * 1e3, 2),
            "ms": round((perf_counter() - self._started) * 1e3, 1),
        }
        if made is not None:
            done = made.done
            data |= {"conversation": made.live.id, "before": done.tokens_before, "after": done.tokens}
        if (rounds := self._rounds) is not None:
            self._proxy.metrics.recalled.inc(len(rounds.recalled))
            if rounds.failed:
                self._proxy.metrics.faults.labels("recall").inc(rounds.failed)
            data["recalled"] = len(rounds.recalled)
        log.info("request", extra={"data": data})


def _kind(error: Exception) -> str:
    """The kind of an error and where it came from."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" at {trace.tb_frame.f_code.co_filename.rsplit('/', 1)[-1]}:{trace.tb_lineno}" if trace is not None else ""
    return type(error).__name__ + where
