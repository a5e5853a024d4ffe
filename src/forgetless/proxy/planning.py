"""What is to be sent upstream in place of a request, and the record of it afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any

from forgetless.errors import BudgetError, ForgetlessError, RequestError
from forgetless.intake import Compaction, Intake
from forgetless.messages import Message
from forgetless.policies.base import Entry, floor
from forgetless.proxy.asking import offered
from forgetless.proxy.bodies import encode, splice
from forgetless.proxy.conversations import Conversations, Live, leading
from forgetless.proxy.memories import spoken
from forgetless.proxy.recall import Offer, offer, reserve
from forgetless.proxy.settings import Settings
from forgetless.replies.base import Completion, Usage
from forgetless.stores.base import Exchange, Node, Row
from forgetless.units import roll

__all__ = ["UNLIMITED", "Plan", "plan", "record", "refused"]

UNLIMITED = 10**12
"""The budget of a session whose model's window nobody knows: nothing is ever over it."""

_ROW: Callable[[Entry], Row] = attrgetter(*(field.name for field in fields(Entry)))


@dataclass(frozen=True, slots=True)
class Plan:
    """What is sent.

    Attributes:
        id: of the request.
        at: when it came, in seconds since the epoch.
        live: its conversation.
        body: the bytes to send.
        outcome: what was done: `unchanged`, `compacted`, `floor` (what must stay is over the budget and was sent),
            `shadow` (what would have been done was recorded), `overflow` (a second try, since the first was too long
            for the provider), `no_budget` (nothing says what is too much).
        policy: name of the policy.
        done: what the session made of it.
        taken: the request taken apart.
        keys: rolling keys of its messages.
        offer: the tool by which the model can have back what was left out, where it is offered.
    """

    id: str
    at: float
    live: Live
    body: bytes
    outcome: str
    policy: str
    done: Compaction
    taken: Intake
    keys: list[bytes]
    offer: Offer | None = None


def plan(
    ident: str, live: Live, data: bytes, value: Mapping[str, Any], settings: Settings, *, budget: int | None = None
) -> Plan:
    """Prepare a request.

    Args:
        ident: its id.
        live: its conversation.
        data: the body as it came.
        value: what is in it.
        settings: of the proxy.
        budget: of a second try, after the provider found the first one too long.

    Raises:
        BudgetError: what must stay is over the budget, and the proxy is strict.
        RequestError: the request is none that could be shortened.
        ConfigError: no usable budget.
    """
    outcome, evictions = "", live.session.evictions
    made: Offer | None = None
    try:
        done, made = _prepare(live, value, settings, budget or live.budget)
    except BudgetError:
        taken = live.session.taken
        if (settings.strict and not settings.shadow) or budget is not None or taken is None:
            raise
        done, outcome = taken.finish(taken.least(), share=True), "floor"
    taken = live.update()
    if not outcome and live.session.evictions != evictions:
        _check(taken, done, (made.tokens if made is not None else 0) + int(done.budget / live.session.correction))
    sent = done.request if made is None else offered(done.request, made.tool)
    sent = spoken(sent, taken.dialect.key) if settings.rewrites else sent
    body = splice(data, value, sent, taken.dialect)
    if not outcome:
        outcome = "unchanged" if body is data else "compacted"
    if budget is not None:
        outcome = "overflow"
    if done.budget >= UNLIMITED and outcome == "unchanged":
        outcome = "no_budget"
    if settings.shadow:
        body, outcome = data, "shadow"
    return Plan(ident, time.time(), live, body, outcome, settings.policy, done, taken, live.keys, made)


def _check(taken: Intake, done: Compaction, most: int) -> None:
    """Refuse what no policy may return: those of other packages may return anything."""
    stays = [entry.form != "omitted" for entry in done.ledger]
    whole = len(stays) == len(taken.units) and bool(done.messages)
    if not whole or done.tokens > most or not all(stays[index] for index in floor(taken.units)):
        raise ForgetlessError("the policy left out what must stay, or kept more than fits: use another one")


def _prepare(
    live: Live, value: Mapping[str, Any], settings: Settings, budget: int | None
) -> tuple[Compaction, Offer | None]:
    """What the session makes of a request, and the tool that is to be offered for what it left out."""
    before, live.offer = live.offer, None
    pins = live.pinned(value)
    try:
        done = live.session.prepare(value, pins=pins, budget=budget, policy=live.policy)
    except BudgetError:
        if not live.wanted:
            raise
        live.wanted = frozenset()  # what a model asked for is no reason to fail
        pins = live.pinned(value)
        done = live.session.prepare(value, pins=pins, budget=budget, policy=live.policy)
    live.wanted = frozenset()
    if not settings.recall or settings.shadow or done.budget >= UNLIMITED:
        return done, None
    most, spare = done.budget, reserve(done.budget)
    made = _offer(live, done, most, before)
    if made is not None and done.tokens > int((most - spare) / live.session.correction):
        try:
            again = live.session.prepare(value, pins=pins, budget=most - spare)
        except BudgetError:
            return done, None
        done = replace(again, budget=most, reused_tokens=min(done.reused_tokens, again.reused_tokens))
        made = _offer(live, done, most, before)
    live.offer = made
    reused = done.reused_tokens if before is made else 0  # tools stand before messages
    if made is None:
        return replace(done, reused_tokens=reused), None
    return replace(done, tokens=done.tokens + made.tokens, reused_tokens=reused and reused + made.tokens), made


def _offer(live: Live, done: Compaction, budget: int, before: Offer | None) -> Offer | None:
    taken = live.session.taken
    return offer(taken, done.ledger, budget, live.session.evictions, before) if taken is not None else None


def record(
    made: Plan, completion: Completion | None, status: int, conversations: Conversations, first: Usage | None = None
) -> Exchange:
    """The record of a request that has been answered; the conversation goes on from there.

    Args:
        made: what was sent.
        completion: the reply that the client saw.
        status: of the answer.
        conversations: those in memory.
        first: what the provider counted for the request that was planned, where more than one was sent.
    """
    live, done, taken = made.live, made.done, made.taken
    usage = completion.usage if completion is not None else None
    if usage is not None and made.outcome != "shadow":
        beside = made.offer.tokens if made.offer is not None else 0
        live.session.observe(None, {"input_tokens": (first or usage).input - beside})
    nodes, head = _nodes(made, completion)
    kept = _same(live.ledger, done.ledger) if live.request else 0
    exchange = Exchange(
        id=made.id,
        caller=live.caller,
        conversation=live.id,
        at=made.at,
        dialect=done.dialect,
        model=taken.parsed.model or "",
        policy=made.policy,
        scorer=live.session.scorer,
        outcome=made.outcome,
        status=status,
        budget=done.budget if done.budget < UNLIMITED else 0,
        tokens_before=done.tokens_before,
        tokens_after=done.tokens,
        reused_tokens=done.reused_tokens,
        input_tokens=usage.input if usage else None,
        cached_tokens=usage.cached if usage else None,
        output_tokens=usage.output if usage else None,
        asked=made.keys[-1] if made.keys else b"",
        head=head,
        system=tuple(encode(taken.dialect.wire(m)) for m in taken.parsed.messages[: leading(taken.parsed.messages)]),
        nodes=nodes,
        base=live.request if kept else "",
        kept=kept,
        rows=tuple(map(_ROW, done.ledger[kept:])),
        state=encode(live.session.dump()) if live.session.evictions != live.state else None,
    )
    live.state = live.session.evictions
    live.request, live.ledger, live.stored = made.id, done.ledger, made.keys
    conversations.follow(live, made.keys[-1] if made.keys else b"", head)
    return exchange


def refused(live: Live) -> None:
    """The store did not take a record: the next one must not lean on it."""
    live.request, live.ledger, live.stored, live.state = "", (), [], -1


def _nodes(made: Plan, completion: Completion | None) -> tuple[tuple[Node, ...], bytes]:
    """The messages that the store may not know, and the key of the last one."""
    taken, keys = made.taken, made.keys
    start = leading(taken.parsed.messages)
    known = _same(made.live.stored, keys)
    head = keys[known - 1] if known else b""
    nodes: list[Node] = []
    # Of a long history, counting it once more would be the greater part of the work.
    counted = {id(unit.messages[0]): unit.tokens for unit in taken.units if len(unit.messages) == 1}

    def add(key: bytes, message: Message, wire: Any) -> None:
        nonlocal head
        tokens = counted.get(id(message)) or taken.counter.message(message)
        nodes.append(Node(key, head, message.role, tokens, encode(wire)))
        head = key

    messages = enumerate(taken.parsed.messages[start + known :], taken.parsed.start + start + known)
    for key, (index, message) in zip(keys[known:], messages, strict=True):
        add(key, message, taken.wire(index, message))
    if completion is not None and keys:
        with suppress(RequestError):  # a reply that no request could hold
            for reply in taken.dialect.parse(list(completion.messages)).messages:
                add(roll(head, (reply,)), reply, taken.dialect.wire(reply))
    return tuple(nodes), head


def _same(before: Sequence[Any], now: Sequence[Any]) -> int:
    """How many items at the start are the same."""
    pairs = enumerate(zip(before, now, strict=False))
    return next((n for n, (a, b) in pairs if a is not b and a != b), min(len(before), len(now)))
