"""`/forgetless/conversations/ID/pins`: what stays of a conversation at its user's wish, listed, added and taken away.

It is for the caller whose conversation it is, and goes by the newest branch that the store has. What is changed holds
from the next request on: in memory too, in this process; another one takes it up with the conversation.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from forgetless.errors import ConfigError, StoreError
from forgetless.instructions.base import Recogniser
from forgetless.proxy.conversations import Conversations
from forgetless.proxy.incoming import Refused, caller_of, read_body
from forgetless.proxy.pins import Change, change, merged, pin, unpin, wishes
from forgetless.replies.faults import error_body
from forgetless.stores.base import Store

__all__ = ["Pinboard"]

MOST = 4_096
"""Bytes of a body."""


class Pinboard:
    """The ASGI app of these paths."""

    def __init__(self, store: Store, conversations: Conversations, find: Recogniser | None) -> None:
        """Take the store, the conversations in memory, and what recognises instructions."""
        self._store = store
        self._conversations = conversations
        self._find = find

    def routes(self) -> list[Route]:
        """GET lists, POST `{"message": 3}` pins, DELETE `…/pins/3` takes a pin or an instruction away."""
        path = "/forgetless/conversations/{id:path}/pins"
        return [Route(path, self, methods=["GET", "POST"]), Route(f"{path}/{{message}}", self, methods=["DELETE"])]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except ClientDisconnect:
            return
        except Refused as error:
            response = _error(error.status, error.kind, str(error))
        except ConfigError as error:
            response = _error(400, "bad_pin", str(error))
        except StoreError as error:
            response = _error(503, "store_away", str(error))
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        caller = caller_of(request.headers.items(), self._store.salt)
        conversation = request.path_params["id"]
        if await asyncio.to_thread(self._listed, caller, conversation) is None:
            raise Refused(404, "not_found", "no such conversation of this caller is in the store")
        if request.method == "POST":
            await self._change(caller, conversation, _number(await read_body(request, MOST)), pin)
        elif request.method == "DELETE":
            await self._change(caller, conversation, _number(request.path_params["message"].encode()), unpin)
        told = await asyncio.to_thread(self._listed, caller, conversation)
        return JSONResponse({"conversation": conversation, "messages": told})

    def _listed(self, caller: str, conversation: str) -> list[dict[str, Any]] | None:
        branch = next(self._store.branches(caller, conversation), None)
        return None if branch is None else [wish.as_dict() for wish in wishes(self._store, branch, self._find)]

    async def _change(self, caller: str, conversation: str, number: int, how: Change) -> None:
        await asyncio.to_thread(change, self._store, caller, conversation, number, how)
        stored = await asyncio.to_thread(self._store.pins, caller, conversation)
        for live in self._conversations.of(caller, conversation):
            async with live.lock:
                live.pins, live.kept_pins = merged(live.pins, live.kept_pins, stored), set(stored)


def _number(told: bytes) -> int:
    """The number of a message, by itself or in an object.

    Raises:
        ConfigError: it is none.
    """
    try:
        found = json.loads(told)
    except (ValueError, RecursionError):
        found = None
    number = found.get("message") if isinstance(found, dict) else found
    if not isinstance(number, int) or isinstance(number, bool):
        raise ConfigError('name a message by its number, such as {"message": 3}')
    return number


def _error(status: int, kind: str, text: str) -> Response:
    return JSONResponse(error_body("chat", status, kind, text), status)
