"""What upstream has answered, read as it goes on to the client."""

from __future__ import annotations

from contextlib import suppress

from forgetless.proxy.bodies import decode
from forgetless.proxy.incoming import Refused
from forgetless.proxy.upstream import Answer, UpstreamError
from forgetless.replies.base import Reader
from forgetless.replies.loose import mapping, string
from forgetless.replies.sse import Event

__all__ = ["passed", "whole"]

ENDS = frozenset({"message_stop", "response.completed", "response.failed", "response.incomplete"})
"""Events after which nothing comes; `[DONE]` is the one of Chat Completions."""


def passed(found: list[Event], read: Reader, held: list[bytes]) -> bytes:
    """Read events; those that may go on, as bytes. The last event of a stream, and what follows it, is held back."""
    out: list[bytes] = []
    for event in found:
        last = event.data.strip() == "[DONE]"
        if event.data and not last:
            with suppress(ValueError, RecursionError):
                data = decode(event.data.encode("utf-8", "surrogatepass"))
                read.event(event.name, data)
                last = (event.name or string(mapping(data).get("type"))) in ENDS
        (held if held or last else out).append(event.raw)
    return b"".join(out)


async def whole(answer: Answer) -> bytes:
    """The whole body of an answer.

    Raises:
        Refused: it broke off.
    """
    try:
        return b"".join([chunk async for chunk in answer.chunks])
    except UpstreamError as error:
        raise Refused(error.status, "upstream_broke_off", str(error)) from None
    finally:
        await answer.close()
