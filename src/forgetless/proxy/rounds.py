"""One request and its reply, with as many rounds between them as the model takes to read back what was left out.

A reply that calls `recall` and no tool of the client's is answered here: what it asks for is appended to the request,
word for word, and the request is sent again. Nothing in it is compacted anew, so it stays a prefix that the provider
has cached, and the client sees one reply. There are at most `ROUNDS` rounds, and in the last one the tool is gone. A
call beside the client's own tools can't be answered before they are: it is cut out, and what it asks for stands in
the conversation's next request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from forgetless.errors import RequestError
from forgetless.messages import Call
from forgetless.proxy.asking import NAME, answered, last, offered
from forgetless.proxy.bodies import decode, encode, splice
from forgetless.proxy.conversations import leading
from forgetless.proxy.planning import Plan
from forgetless.proxy.recall import LEAST, answer, asked
from forgetless.proxy.seams.anthropic import AnthropicSeam
from forgetless.proxy.seams.base import Seam, emit
from forgetless.proxy.seams.chat import ChatSeam
from forgetless.proxy.seams.responses import ResponsesSeam
from forgetless.proxy.upstream import Answer
from forgetless.replies.base import Completion, Usage
from forgetless.replies.readers import reader
from forgetless.replies.sse import Event, Events
from forgetless.tokens import PER_MESSAGE

__all__ = ["ROUNDS", "Rounds"]

ROUNDS = 3
"""Most requests for one reply."""

MARGIN = 8
"""Tokens that estimates of parts may be off from the estimate of the whole."""

_FINISHED = frozenset({"tool_calls", "stop", "tool_use", "completed"})
"""How replies end whose calls are whole."""

_SEAMS: Mapping[str, Callable[[], Seam]] = {
    "chat": ChatSeam,
    "responses": ResponsesSeam,
    "anthropic": AnthropicSeam,
}

Whole: TypeAlias = tuple[Answer, bytes]


class Rounds:
    """The rounds of one request that offers `recall`.

    Attributes:
        first: what the provider counted for the request that was planned.
        recalled: indices of the units that were read back.
        failed: how many rounds the provider refused.
    """

    def __init__(self, made: Plan, data: bytes, value: Mapping[str, Any]) -> None:
        """Take what was planned, and the request as it came."""
        assert made.offer is not None
        self.first: Usage | None = None
        self.recalled: list[int] = []
        self.failed = 0
        self._made, self._data, self._value = made, data, value
        self._offer = made.offer
        self._dialect = made.taken.dialect
        self._seam = _SEAMS[self._dialect.name]()
        self._request = offered(made.done.request, made.offer.tool)
        self._round = 1
        self._room = int(made.done.budget / made.live.session.correction) - made.done.tokens - MARGIN

    async def whole(self, first: Whole, ask: Callable[[bytes], Awaitable[Whole]]) -> Whole:
        """The reply that a client sees, whole.

        Args:
            first: the answer to what was planned.
            ask: sends another request.
        """
        bodies: list[Mapping[str, Any]] = []
        answer, reply = first
        calls: list[Call] = []
        while answer.status < 400 and (body := _body(reply)) is not None:
            read = reader(self._dialect.name)
            read.body(body)
            completion = read.done()
            bodies.append(body)
            calls = self._calls(completion)
            following = await self._next(completion, calls)
            if following is None:
                break
            answer, reply = await ask(following)
            if self._refused(answer):
                answer, reply = await ask(self._plain())
        if not bodies or answer.status >= 400 or _body(reply) is None:
            return answer, reply
        if len(bodies) == 1 and not any(call.name == NAME for call in calls):
            return answer, reply
        return answer, encode(self._seam.whole(bodies))

    async def chunks(self, first: Answer, send: Callable[[bytes], Awaitable[Answer]]) -> AsyncGenerator[bytes, None]:
        """The stream that a client sees.

        Args:
            first: the answer to what was planned; to be closed by the caller.
            send: sends another request; `UpstreamError` goes through.
        """
        answer = first
        try:
            while True:
                read, events = reader(self._dialect.name), Events()
                async for chunk in answer.chunks:
                    yield self._fed(events.feed(chunk), read)
                yield self._fed(events.rest(), read)
                completion = read.done()
                body = await self._next(completion, self._calls(completion) if self._seam.cut else [])
                if body is None:
                    break
                yield self._seam.turn()
                if answer is not first:
                    await answer.close()
                answer = await self._sent(body, send)
                if not answer.header("content-type").startswith("text/event-stream"):
                    yield await self._error(answer)
                    return
            yield self._seam.end()
        finally:
            if answer is not first:
                await answer.close()

    async def _sent(self, body: bytes, send: Callable[[bytes], Awaitable[Answer]]) -> Answer:
        """The answer to another request; where the provider refuses it, to the one without the tool."""
        answer = await send(body)
        if self._refused(answer):
            await answer.close()
            answer = await send(self._plain())
        return answer

    def _fed(self, found: Sequence[Event], read: Any) -> bytes:
        out = []
        for event in found:
            with suppress(ValueError, RecursionError):
                read.event(event.name, decode(event.data.encode("utf-8", "surrogatepass")))
            out.append(self._seam.feed(event))
        return b"".join(out)

    def _calls(self, completion: Completion) -> list[Call]:
        """The calls in a reply."""
        with suppress(RequestError):
            parsed = self._dialect.parse(list(completion.messages)).messages
            return [call for message in parsed for call in message.calls]
        return []

    async def _next(self, completion: Completion, calls: Sequence[Call]) -> bytes | None:
        """The request that goes on from a reply; None when the reply was the last one."""
        self.first = self.first or completion.usage
        ours = [call for call in calls if call.name == NAME]
        if not ours or self._round == ROUNDS or completion.finish not in _FINISHED or completion.error:
            return None
        if len(ours) < len(calls):
            self._want(ours)
            return None
        self._round += 1
        self._room -= sum(
            map(self._made.taken.counter.message, self._dialect.parse(list(completion.messages)).messages)
        )
        if self._room // len(ours) - PER_MESSAGE < LEAST:
            return self._plain()
        results = [
            (call.id, await asyncio.to_thread(self._answer, call, len(ours) - at)) for at, call in enumerate(ours)
        ]
        self._request = answered(self._dialect.name, self._request, completion.messages, results)
        ends = self._round == ROUNDS
        return self._bytes(last(self._dialect.name, self._request, self._value) if ends else self._request)

    def _answer(self, call: Call, left: int) -> str:
        """Answer a call out of its share of the room; `left` calls are still to be answered."""
        taken = self._made.taken
        made = answer(self._offer, taken.units, call.arguments, taken.counter, self._room // left - PER_MESSAGE)
        self._room -= taken.counter.text(made.text) + PER_MESSAGE
        self.recalled += [unit for unit in made.units if unit not in self.recalled]
        return made.text

    def _want(self, calls: Sequence[Call]) -> None:
        """Have what calls ask for stand in the conversation's next request, as far as a quarter of the budget goes."""
        made, live = self._made, self._made.live
        first = made.taken.parsed.start + leading(made.taken.parsed.messages)
        room = made.done.budget // 4
        keys = []
        for index in dict.fromkeys(
            i for call in calls for i in asked(self._offer, made.taken.units, call.arguments)[0]
        ):
            unit = made.taken.units[index]
            if unit.tokens <= room:
                room -= unit.tokens
                keys.append(made.keys[unit.at[0][0] - first])
        live.wanted |= frozenset(keys)

    def _refused(self, answer: Answer) -> bool:
        """Whether the provider does not take a request as it was made here, so that one without the tool may go."""
        refused = 400 <= answer.status < 500 and answer.status != 429 and self._request is not self._made.done.request
        self.failed += refused
        return refused

    def _plain(self) -> bytes:
        """What would have been sent if nothing were offered; nothing follows it."""
        self._round = ROUNDS
        self._request = self._made.done.request
        return self._bytes(self._request)

    def _bytes(self, request: Mapping[str, Any]) -> bytes:
        return splice(self._data, self._value, request, self._dialect)

    async def _error(self, answer: Answer) -> bytes:
        """An answer that is no stream, inside one."""
        try:
            body = _body(b"".join([chunk async for chunk in answer.chunks])) or {}
        finally:
            await answer.close()
        error = body.get("error") or {"message": f"the upstream answered {answer.status}", "code": "recall_failed"}
        return emit({**body, "type": "error", "error": error}, "" if self._dialect.name == "chat" else "error")


def _body(reply: bytes) -> Mapping[str, Any] | None:
    with suppress(ValueError, RecursionError):
        found = decode(reply)
        return found if isinstance(found, Mapping) else None
    return None
