"""What OpenAI Responses accepts. Other items may stand between a call and its output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from forgetless.benchmarks.validators.base import Fault, canonical, filled, is_json, listed, sourced

__all__ = ["RULES", "validate"]

RULES: Mapping[str, str] = MappingProxyType(
    {
        "empty_messages": "Invalid 'input': empty array, expected one with minimum length 1",
        "bad_role": "Invalid value for 'role': user, assistant, system or developer",
        "bad_item": "Invalid value for an item's 'type', or a missing required parameter of that type",
        "bad_content_type": "Invalid type for 'content': a string or an array",
        "empty_content": "Invalid 'content': empty array, expected one with minimum length 1",
        "bad_block": "assistants take 'output_text' and 'refusal', others 'input_*'",
        "bad_text": "Missing or invalid 'text' of a text part",
        "image_without_source": "an 'input_image' needs 'image_url' or 'file_id'",
        "file_without_source": "an 'input_file' needs 'file_data', 'file_url' or 'file_id'",
        "bad_item_id": "Invalid 'input[N].id': expected an ID that begins with the prefix of its type",
        "duplicate_item_id": "Duplicate item found with id; remove duplicate items from your input",
        "missing_id": "Missing required parameter 'input[N].call_id'",
        "duplicate_call_id": "Duplicate call_ids submitted",
        "arguments_not_json": "'arguments' of a function_call must be a string of JSON",
        "bad_output_type": "Invalid type for 'output': a string, an array of parts, or a screenshot",
        "output_without_call": "No tool call found for function call output with call_id",
        "duplicate_output": "Duplicate function_call_output for call_id",
        "call_without_output": "No tool output found for function call",
        "reasoning_without_follower": "Item of type 'reasoning' came without its required following item",
        "item_without_reasoning": "Item of type 'function_call' came without its required 'reasoning' item",
        "reasoning_changed": "The encrypted content could not be verified",
    }
)

_CALLS = {
    "function_call": ("arguments", "name"),
    "custom_tool_call": ("input", "name"),
    "computer_call": (),
    "shell_call": ("action",),
    "apply_patch_call": ("operation",),
}
_OUTPUTS = {f"{kind}_output": kind for kind in _CALLS}
_HOSTED = {
    "web_search_call": ("id", "status", "action"),
    "file_search_call": ("id", "status", "queries"),
    "code_interpreter_call": ("id", "status"),
    "image_generation_call": ("id", "status"),
    "mcp_call": ("id", "name", "arguments"),
    "mcp_list_tools": ("id", "tools"),
    "mcp_approval_request": ("id", "name", "arguments"),
}
_OTHER = {
    "reasoning": ("id", "summary"),
    "item_reference": ("id",),
    "mcp_approval_response": ("approval_request_id", "approve"),
    "compaction": ("encrypted_content",),
}
_PREFIXES = {"message": "msg", "function_call": "fc", "reasoning": "rs", "custom_tool_call": "ctc"}
_INPUT = frozenset({"input_text", "input_image", "input_file", "input_audio"})
_BLOCKS = {
    "assistant": frozenset({"output_text", "refusal"}),
    "user": _INPUT,
    "system": _INPUT,
    "developer": _INPUT,
}


def validate(body: Any, *, pending_ok: bool = False, origin: Any = None) -> list[Fault]:
    """All faults of a Responses request."""
    items = listed(body, "input")
    if isinstance(items, str) and items:
        return []
    if not isinstance(items, list) or not items:
        return [Fault("empty_messages", "input")]
    held = isinstance(body, Mapping) and bool(body.get("previous_response_id"))
    faults = [fault for i, item in enumerate(items) for fault in _item(item, f"input.{i}")]
    faults.extend(_ids(items))
    faults.extend(_pairs(items, pending_ok, held))
    faults.extend(_followed(items))
    return faults if origin is None else [*faults, *_made(items, listed(origin, "input"))]


def _kind(item: Any) -> Any:
    if not isinstance(item, Mapping):
        return None
    return item.get("type", "message" if "role" in item else None)


def _item(item: Any, where: str) -> Iterator[Fault]:
    kind = _kind(item)
    needs = _CALLS.get(kind, _HOSTED.get(kind, _OTHER.get(kind)))
    if kind == "message":
        yield from _message(item, where)
    elif kind in _OUTPUTS:
        yield from _output(item, kind, where)
    elif needs is None:
        yield Fault("bad_item", where, repr(kind))
    else:
        yield from (Fault("bad_item", where, f"no {key!r}") for key in needs if item.get(key) is None)
    if kind in _CALLS or kind in _OUTPUTS:
        if not filled(item.get("call_id")):
            yield Fault("missing_id", where)
        if kind == "function_call" and not is_json(item.get("arguments")):
            yield Fault("arguments_not_json", where, repr(item.get("arguments")))


def _message(item: Mapping[str, Any], where: str) -> Iterator[Fault]:
    role, content = item.get("role"), item.get("content")
    if role not in _BLOCKS:
        yield Fault("bad_role", where, repr(role))
    elif isinstance(content, str):
        return
    elif not isinstance(content, list):
        yield Fault("bad_content_type", where, type(content).__name__)
    elif not content:
        yield Fault("empty_content", where)
    else:
        for i, block in enumerate(content):
            yield from _block(block, _BLOCKS[role], f"{where}.content.{i}")


def _block(block: Any, allowed: frozenset[str], where: str) -> Iterator[Fault]:
    kind = block.get("type") if isinstance(block, Mapping) else None
    if kind not in allowed:
        yield Fault("bad_block", where, repr(kind))
    elif kind in ("input_text", "output_text"):
        if not isinstance(block.get("text"), str):
            yield Fault("bad_text", where)
    elif kind == "input_image":
        yield from sourced("image", where, block.get("image_url"), block.get("file_id"))
    elif kind == "input_file":
        yield from sourced("file", where, *(block.get(k) for k in ("file_data", "file_url", "file_id")))


def _output(item: Mapping[str, Any], kind: str, where: str) -> Iterator[Fault]:
    output = item.get("output")
    if kind == "computer_call_output":
        if not isinstance(output, Mapping) or output.get("type") != "computer_screenshot":
            yield Fault("bad_output_type", where, type(output).__name__)
    elif isinstance(output, list) and kind in ("function_call_output", "custom_tool_call_output"):
        for i, block in enumerate(output):
            yield from _block(block, _INPUT, f"{where}.output.{i}")
    elif isinstance(output, list):
        if not all(isinstance(part, Mapping) for part in output):
            yield Fault("bad_output_type", where)
    elif not isinstance(output, str) and kind != "apply_patch_call_output":
        yield Fault("bad_output_type", where, type(output).__name__)


def _ids(items: Sequence[Any]) -> Iterator[Fault]:
    seen: set[str] = set()
    for i, item in enumerate(items):
        ident = item.get("id") if isinstance(item, Mapping) else None
        if not isinstance(ident, str):
            continue
        prefix = _PREFIXES.get(_kind(item), "")
        if not ident.startswith(prefix):
            yield Fault("bad_item_id", f"input.{i}", f"{ident!r} does not begin with {prefix!r}")
        if ident in seen:
            yield Fault("duplicate_item_id", f"input.{i}", repr(ident))
        seen.add(ident)


def _pairs(items: Sequence[Any], pending_ok: bool, held: bool) -> Iterator[Fault]:
    """Calls and outputs by id; `held` says that calls may be on the provider's side."""
    called: dict[tuple[Any, Any], int] = {}
    answered: set[tuple[Any, Any]] = set()
    for i, item in enumerate(items):
        kind, where = _kind(item), f"input.{i}"
        if kind in _CALLS:
            ident = (kind, item.get("call_id"))
            if ident in called:
                yield Fault("duplicate_call_id", where, repr(ident[1]))
            called[ident] = i
        elif kind in _OUTPUTS:
            ident = (_OUTPUTS[kind], item.get("call_id"))
            if ident in answered:
                yield Fault("duplicate_output", where, repr(ident[1]))
            elif ident not in called and not held:
                yield Fault("output_without_call", where, repr(ident[1]))
            answered.add(ident)
    yield from _approvals(items)
    last = _last_run(items)
    for ident, i in called.items():
        if ident not in answered and not (pending_ok and i >= last):
            yield Fault("call_without_output", f"input.{i}", repr(ident[1]))


def _approvals(items: Sequence[Any]) -> Iterator[Fault]:
    asked = [item.get("id") for item in items if _kind(item) == "mcp_approval_request"]
    for i, item in enumerate(items):
        if _kind(item) == "mcp_approval_response" and item.get("approval_request_id") not in asked:
            yield Fault("output_without_call", f"input.{i}", repr(item.get("approval_request_id")))


def _last_run(items: Sequence[Any]) -> int:
    """Where the newest reply begins, with outputs to its calls behind it."""
    at = len(items)
    while at and _kind(items[at - 1]) in _OUTPUTS:
        at -= 1
    while at and _is_made(items[at - 1]):
        at -= 1
    return at


def _is_made(item: Any) -> bool:
    """Whether a model wrote the item."""
    kind = _kind(item)
    if kind == "message":
        return bool(item.get("role") == "assistant")
    return kind in _CALLS or kind in _HOSTED or kind in ("reasoning", "item_reference")


def _followed(items: Sequence[Any]) -> Iterator[Fault]:
    for i, item in enumerate(items):
        if _kind(item) == "reasoning":
            after = items[i + 1] if i + 1 < len(items) else None
            if not _is_made(after) or _kind(after) == "reasoning":
                yield Fault("reasoning_without_follower", f"input.{i}", repr(item.get("id")))


def _made(items: Sequence[Any], origin: Any) -> Iterator[Fault]:
    """What the provider knows of what it wrote: reasoning as it was, beside the items that came of it."""
    if not isinstance(origin, list):
        return
    sealed = {canonical(item) for item in origin if _kind(item) == "reasoning"}
    for i, item in enumerate(items):
        if _kind(item) == "reasoning" and canonical(item) not in sealed:
            yield Fault("reasoning_changed", f"input.{i}", repr(item.get("id")))
    have = [item.get("id") for item in items if isinstance(item, Mapping)]
    for reasoning, followers in _linked(origin):
        if reasoning in have:
            at = have.index(reasoning) + 1
            if have[at : at + 1] != followers[:1]:
                yield Fault("reasoning_without_follower", f"input.{at - 1}", repr(reasoning))
        else:
            kept = [ident for ident in followers if ident is not None and ident in have]
            yield from (Fault("item_without_reasoning", "input", repr(ident)) for ident in kept)


def _linked(origin: Sequence[Any]) -> Iterator[tuple[Any, list[Any]]]:
    """Ids: of each reasoning item, and of the item behind it and the calls that follow at once."""
    for i, item in enumerate(origin):
        if _kind(item) == "reasoning" and i + 1 < len(origin):
            followers = [origin[i + 1].get("id")]
            for later in origin[i + 2 :]:
                if _kind(later) not in _CALLS:
                    break
                followers.append(later.get("id"))
            yield item.get("id"), followers
