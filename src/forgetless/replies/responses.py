"""Replies of Responses: the items of its output, from the final response or from the events that came before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from forgetless.replies.base import Completion, Usage
from forgetless.replies.growing import Record, Rows, grow, whole
from forgetless.replies.loose import count, fault, listed, mapping, place, string

__all__ = ["ResponsesReader"]


class _Grows(NamedTuple):
    """What an event's deltas make longer: a field of the item, or of a part in one of the item's lists."""

    field: str
    parts: str = ""
    at: str = ""
    kind: str = ""


_GROWS = {
    "response.output_text": _Grows("text", "content", "content_index", "output_text"),
    "response.refusal": _Grows("refusal", "content", "content_index", "refusal"),
    "response.reasoning_text": _Grows("text", "content", "content_index", "reasoning_text"),
    "response.reasoning_summary_text": _Grows("text", "summary", "summary_index", "summary_text"),
    "response.function_call_arguments": _Grows("arguments"),
    "response.mcp_call_arguments": _Grows("arguments"),
    "response.custom_tool_call_input": _Grows("input"),
    "response.code_interpreter_call_code": _Grows("code"),
}
_PARTS = {"content_part": ("content", "content_index"), "reasoning_summary_part": ("summary", "summary_index")}


class ResponsesReader:
    """Reads a reply of the dialect `responses`."""

    def __init__(self) -> None:
        self._items: dict[int, Record] = {}
        self._output: list[Mapping[str, Any]] = []
        self._usage: Usage | None = None
        self._finish = ""
        self._error: Mapping[str, Any] | None = None

    def body(self, body: Mapping[str, Any]) -> None:
        """Take a whole reply body, or an error body."""
        body = mapping(body)
        self._error = fault(body) or self._error
        self._response(body)

    def event(self, name: str, data: Any) -> None:
        """Take one event; the output of a final one takes the place of what came before, unless it is empty."""
        data = mapping(data)
        kind = string(data.get("type")) or name
        stem, _, step = kind.rpartition(".")
        if kind == "error" or fault(data):
            self._error = fault({**data, "type": "error"})
        elif isinstance(response := data.get("response"), Mapping):
            self._error = fault(response) or self._error
            self._response(response)
        elif stem == "response.output_item":
            self._items[self._index(data)] = Record(mapping(data.get("item")))
        elif (item := self._items.get(self._index(data))) is not None:
            self._item(item, stem, step, data)

    def done(self) -> Completion:
        """What was read so far, as one reply."""
        items = self._output or [whole(self._items[at]) for at in sorted(self._items) if self._items[at]]
        return Completion(tuple(items), self._usage, self._finish, self._error)

    def _response(self, response: Mapping[str, Any]) -> None:
        status = string(response.get("status"))
        if status not in ("in_progress", "queued"):
            self._finish = string(mapping(response.get("incomplete_details")).get("reason")) or status or self._finish
        self._output = listed(response.get("output")) or self._output
        self._usage = _usage(mapping(response.get("usage"))) or self._usage

    def _index(self, data: Mapping[str, Any]) -> int:
        """Which item an event is about: by its number, else by the item's id, else the last one or a new one."""
        if (index := place(data.get("output_index"))) >= 0:
            return index
        name = data.get("item_id") or mapping(data.get("item")).get("id")
        found = next((at for at, item in self._items.items() if name and item.get("id") == name), None)
        fresh = "item" in data
        return found if found is not None else max(self._items, default=-1) + fresh

    def _item(self, item: Record, stem: str, step: str, data: Mapping[str, Any]) -> None:
        grows = _GROWS.get(stem)
        if grows is not None:
            part = _part(item, grows.parts, data.get(grows.at), grows.kind) if grows.parts else item
            if step == "delta":
                grow(part, {grows.field: string(data.get("delta"))})
            elif step == "done" and isinstance(data.get(grows.field), str):
                part[grows.field] = data[grows.field]
        elif (name := stem.removeprefix("response.")) in _PARTS and isinstance(data.get("part"), Mapping):
            parts, at = _PARTS[name]
            part = _part(item, parts, data.get(at), "")
            part.clear()
            part.update(data["part"])
        elif stem == "response.output_text.annotation" and isinstance(data.get("annotation"), Mapping):
            part = _part(item, "content", data.get("content_index"), "output_text")
            part["annotations"] = [*listed(part.get("annotations")), data["annotation"]]


def _part(item: Record, parts: str, index: Any, kind: str) -> Record:
    """A part of an item by its place in a list; made where it is not there yet."""
    rows = item.get(parts)
    if not isinstance(rows, Rows):
        rows = item[parts] = Rows(Record(part) for part in listed(rows))
    at = min(max(place(index), 0), len(rows))
    if at == len(rows):
        rows.append(Record(type=kind) if kind else Record())
    part: Record = rows[at]
    return part


def _usage(usage: Mapping[str, Any]) -> Usage | None:
    read, written = count(usage.get("input_tokens")), count(usage.get("output_tokens"))
    if read is None and written is None:
        return None
    cached = count(mapping(usage.get("input_tokens_details")).get("cached_tokens"))
    return Usage(read or 0, cached or 0, written or 0)
