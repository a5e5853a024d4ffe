"""Replies of Responses sewn together: items follow items.

A reasoning item must be followed by what it led to, so one that led to a call of `recall` alone goes with it. A stream
holds it back until something else follows, and its opening too: where nothing of a response has been seen, the next
one takes its place, id and all, and is what a later request may lean on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forgetless.proxy.asking import NAME
from forgetless.proxy.seams.base import emit, load, total
from forgetless.replies.loose import count, listed, mapping, place, string
from forgetless.replies.sse import Event

__all__ = ["ResponsesSeam"]


class ResponsesSeam:
    """The seam of the dialect `responses`."""

    def __init__(self) -> None:
        """Begin before the first reply."""
        self.cut = False
        self._at: dict[int, int] = {}  # index of an item -> the one that it goes on with
        self._ours: set[int] = set()  # indices of calls of `recall`
        self._thoughts: set[int] = set()  # indices of reasoning items that wait for what follows
        self._opening: list[tuple[Event, Mapping[str, Any]]] = []
        self._waiting: list[tuple[Event, Mapping[str, Any]]] = []  # events of reasoning items
        self._tail: list[tuple[Event, Mapping[str, Any]]] = []
        self._next = 0
        self._number: int | None = None  # of the next event
        self._seen = False  # the client has seen the response begin
        self._id: Any = None  # under which it has
        self._later = False
        self._items: list[Any] = []  # of this reply
        self._before: list[Any] = []  # items of the replies before
        self._used: Any = {}  # tokens of the replies before

    def whole(self, bodies: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """One reply body out of several."""
        usage: Any = {}
        output: list[Any] = []
        for place_, body in enumerate(bodies, 1):
            usage = total(usage, mapping(body.get("usage")))
            output += _kept(listed(body.get("output")), more=place_ < len(bodies))
        return {**_bare(bodies[-1]), "output": output, "usage": usage}

    def feed(self, event: Event) -> bytes:
        """Take one event; the one that ends a response is held back."""
        data = load(event)
        if data is None:
            return event.raw
        if self._number is None:
            self._number = count(data.get("sequence_number"))
        kind = string(data.get("type")) or event.name
        if kind in ("response.completed", "response.incomplete"):
            self._tail.append((event, data))
            return b""
        if "output_index" in data:
            return self._item(event, data, kind)
        if kind in ("error", "response.failed"):
            return self._release() + self._put(event, data, **self._named(data))
        if not self._seen:
            self._opening.append((event, data))
            return b""
        return b"" if self._later and "response" in data else self._put(event, data, **self._named(data))

    def turn(self) -> bytes:
        """Go on to the next reply."""
        response = mapping(self._tail[0][1].get("response")) if self._tail else {}
        self._before += _kept(listed(response.get("output")), more=True) or self._items
        self._used = total(self._used, mapping(response.get("usage")))
        self._at, self._ours, self._thoughts = {}, set(), set()
        self._opening, self._waiting, self._tail, self._items = [], [], [], []
        self.cut, self._later = False, True
        return b""

    def end(self) -> bytes:
        """Let the end of the last reply go."""
        out = self._open() if self.cut else self._release()
        for event, data in self._tail:
            response = dict(self._named(data).get("response", {}))
            if self._before or self.cut:
                output = _kept(listed(response.get("output")), more=False)
                response["output"] = [*self._before, *(output or self._items)]
            if self._used:
                response["usage"] = total(self._used, mapping(response.get("usage")))
            out += self._put(event, data, response=response)
        return out

    def _item(self, event: Event, data: Mapping[str, Any], kind: str) -> bytes:
        """An event about an item."""
        index = place(data.get("output_index"))
        item = mapping(data.get("item"))
        out = b""
        if kind == "response.output_item.added":
            if _ours(item):
                self.cut = True
                self._ours.add(index)
            elif item.get("type") == "reasoning":
                self._thoughts.add(index)
            else:
                out = self._release()
        if index in self._ours:
            return b""
        if index in self._thoughts:
            self._waiting.append((event, data))
            return b""
        return out + self._go(event, data)

    def _open(self) -> bytes:
        """How the response begins."""
        if not self._seen:
            self._seen = True
            self._id = next(
                (mapping(data["response"]).get("id") for _, data in self._opening if "response" in data), None
            )
        opening, self._opening = self._opening, []
        return b"".join(self._put(event, data, **self._named(data)) for event, data in opening)

    def _release(self) -> bytes:
        """What waited for something to follow it."""
        out = self._open() + b"".join(self._go(event, data) for event, data in self._waiting)
        self._waiting, self._thoughts = [], set()
        return out

    def _go(self, event: Event, data: Mapping[str, Any]) -> bytes:
        index = place(data.get("output_index"))
        if index not in self._at:
            self._at[index], self._next = self._next, self._next + 1
        if data.get("type") == "response.output_item.done":
            self._items.append(data.get("item"))
        return self._put(event, data, output_index=self._at[index])

    def _named(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """The response in an event as its client knows it, where there is one."""
        if not isinstance(response := data.get("response"), Mapping):
            return {}
        response = _bare(response)
        return {"response": response if self._id is None else {**response, "id": self._id}}

    def _put(self, event: Event, data: Mapping[str, Any], **changes: Any) -> bytes:
        """An event with what changes in it, under the number that is due."""
        if self._number is not None and "sequence_number" in data:
            changes["sequence_number"] = self._number
            self._number += 1
        same = all(data.get(key) == value for key, value in changes.items())
        return event.raw if same else emit({**data, **changes}, event.name)


def _ours(item: Mapping[str, Any]) -> bool:
    return item.get("type") == "function_call" and item.get("name") == NAME


def _kept(items: Sequence[Mapping[str, Any]], *, more: bool) -> list[Mapping[str, Any]]:
    """Items without calls of `recall` and the reasoning that led to nothing else."""
    if not more and not any(map(_ours, items)):
        return list(items)
    end = max(
        (at for at, item in enumerate(items, 1) if not _ours(item) and item.get("type") != "reasoning"), default=0
    )
    return [item for item in items[:end] if not _ours(item)]


def _bare(response: Mapping[str, Any]) -> Mapping[str, Any]:
    """A response that does not tell of the tool: it repeats the tools of the request."""
    tools = response.get("tools")
    if not isinstance(tools, list) or not any(_ours({**tool, "type": "function_call"}) for tool in listed(tools)):
        return response
    return {**response, "tools": [tool for tool in tools if mapping(tool).get("name") != NAME]}
