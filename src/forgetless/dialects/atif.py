"""Agent runs in ATIF, the trajectory format of Harbor, from and to OpenAI chat messages.

Written for RFC 0001 up to version 1.7. ATIF is a log and not a wire format, so no request is made of it. A step holds
what the agent said, its calls and what came back; terminal agents log one screen for several calls, without
naming a call.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from forgetless.errors import RequestError

__all__ = ["atif_from_messages", "is_atif", "messages_from_atif"]

Content: TypeAlias = str | list[dict[str, Any]]

_VERSION = "ATIF-v1.6"
_ROLES = {"user": "user", "agent": "assistant", "system": "system"}


def is_atif(value: object) -> bool:
    """Whether a JSON value is a trajectory, bare or under the key `trajectory`."""
    return _steps(value) is not None


def messages_from_atif(value: object) -> list[dict[str, Any]]:
    """The messages of a trajectory, in which every call has exactly one result.

    A result that names no call goes to the first call still without one. When there are fewer of these than
    calls, the last of them goes to the last call, as a screen shows the end of what was typed, and the calls
    between get an empty result. What comes back in a step without calls becomes a user message. Images keep
    the path or address that the trajectory gives. A subagent's own trajectory is not read.

    Raises:
        RequestError: not a trajectory; names the step (from 1, as `step_id` counts) that cannot be read.
    """
    steps = _steps(value)
    if steps is None:
        raise RequestError("not an ATIF trajectory: an object with 'schema_version' and a list of 'steps' is needed")
    return [message for number, step in enumerate(steps, 1) for message in _step(step, number)]


def atif_from_messages(
    messages: Sequence[Mapping[str, Any]],
    *,
    agent: Mapping[str, Any],
    session: str,
    notes: Sequence[Mapping[str, Any]] = (),
    **more: Any,
) -> dict[str, Any]:
    """A trajectory of chat messages with text content, which `messages_from_atif` reads back.

    Args:
        messages: a whole run; every result follows the message that made its call.
        agent: its `name`, `version` and, where there is one, `model_name`.
        session: names the run.
        notes: for each assistant message, in order, what else its step holds, such as `metrics` and `extra`.
        more: further fields of the trajectory, such as `final_metrics`.

    Raises:
        RequestError: a result comes before any message of the agent.
    """
    steps: list[dict[str, Any]] = []
    said = iter(notes)
    for index, message in enumerate(messages):
        if message["role"] == "tool":
            if not steps or steps[-1]["source"] != "agent":
                raise RequestError("a tool result must follow the assistant message with its call", message=index)
            result = {"source_call_id": message["tool_call_id"], "content": message["content"]}
            steps[-1].setdefault("observation", {"results": []})["results"].append(result)
            continue
        source = "agent" if message["role"] == "assistant" else message["role"]
        step = {"step_id": len(steps) + 1, "source": source, "message": message.get("content") or ""}
        if calls := message.get("tool_calls"):
            step["tool_calls"] = [_told(call) for call in calls]
        steps.append(step | dict(next(said, {}) if source == "agent" else {}))
    return {"schema_version": _VERSION, "session_id": session, "agent": dict(agent), "steps": steps, **more}


def _told(call: Mapping[str, Any]) -> dict[str, Any]:
    """A call as a step has it; arguments that are no JSON object stay the text that they are."""
    function = call["function"]
    try:
        arguments = json.loads(function["arguments"])
    except ValueError:
        arguments = None
    given = arguments if isinstance(arguments, dict) else function["arguments"]
    return {"tool_call_id": call["id"], "function_name": function["name"], "arguments": given}


def _steps(value: object) -> list[Any] | None:
    if isinstance(value, Mapping) and "steps" not in value:
        value = value.get("trajectory")
    if not isinstance(value, Mapping) or "schema_version" not in value:
        return None
    steps = value.get("steps")
    return steps if isinstance(steps, list) else None


def _step(step: object, number: int) -> Iterator[dict[str, Any]]:
    step = _object(step, "the step", number)
    source = step.get("source")
    if not isinstance(source, str) or source not in _ROLES:
        raise RequestError(f"step {number}: 'source' must be 'user', 'agent' or 'system', not {source!r}")
    message: dict[str, Any] = {"role": _ROLES[source], "content": _content(step.get("message"), number)}
    calls = [_call(call, number) for call in _list(step, "tool_calls", number)] if source == "agent" else []
    if source == "agent":
        if step.get("reasoning_content"):
            message["reasoning_content"] = step["reasoning_content"]
        if calls:
            message["content"] = message["content"] or None
            message["tool_calls"] = calls
    observation = _object(step.get("observation") or {}, "'observation'", number)
    results = [_object(result, "a result", number) for result in _list(observation, "results", number)]
    idle = not (message["content"] or calls or message.get("reasoning_content"))
    if not idle or not results:
        yield message
    if calls:
        yield from _answers([call["id"] for call in calls], results, number)
    else:
        yield from (
            {"role": "user", "content": content} for r in results if (content := _content(r.get("content"), number))
        )


def _call(value: object, number: int) -> dict[str, Any]:
    call = _object(value, "a tool call", number)
    ident, name, arguments = call.get("tool_call_id"), call.get("function_name"), call.get("arguments")
    if not isinstance(ident, str) or not ident or not isinstance(name, str):
        raise RequestError(f"step {number}: a tool call needs 'tool_call_id' and 'function_name', both strings")
    given = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": given}}


def _answers(idents: Sequence[str], results: Sequence[Mapping[str, Any]], number: int) -> Iterator[dict[str, Any]]:
    """One tool message for each call."""
    if len(set(idents)) < len(idents):
        raise RequestError(f"step {number}: two calls share one 'tool_call_id'")
    found: dict[str, list[Content]] = {ident: [] for ident in idents}
    unnamed: list[Content] = []
    for result in results:
        ident, content = result.get("source_call_id"), _content(result.get("content"), number)
        if ident is None:
            unnamed.append(content)
        elif ident in found:
            found[ident].append(content)
        else:
            raise RequestError(f"step {number}: a result names the call {ident!r}, which the step does not make")
    waiting = [ident for ident in idents if not found[ident]]
    for place, content in enumerate(unnamed):
        early = place < len(unnamed) - 1 and place < len(waiting) - 1
        target = waiting[place] if early else (waiting or idents)[-1]
        found[target].append(content)
    for ident in idents:
        yield {"role": "tool", "tool_call_id": ident, "content": _joined(found[ident])}


def _joined(contents: Sequence[Content]) -> Content:
    """Several results of one call as one."""
    texts = [content for content in contents if isinstance(content, str)]
    if len(texts) == len(contents):
        return "\n".join(texts)
    parts: list[dict[str, Any]] = []
    for content in contents:
        parts.extend([{"type": "text", "text": content}] if isinstance(content, str) else content)
    return parts


def _content(value: object, number: int) -> Content:
    if value is None or isinstance(value, str):
        return value or ""
    if not isinstance(value, list):
        raise RequestError(f"step {number}: content must be a string or a list of parts, not {type(value).__name__}")
    return [_part(_object(part, "a content part", number), number) for part in value]


def _part(part: Mapping[str, Any], number: int) -> dict[str, Any]:
    match part:
        case {"type": "text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "image", "source": {"path": str(path)}}:
            return {"type": "image_url", "image_url": {"url": path}}
        case _:
            raise RequestError(f"step {number}: a content part is a text or an image with a path, not {dict(part)!r}")


def _list(step: Mapping[str, Any], key: str, number: int) -> list[Any]:
    value = step.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise RequestError(f"step {number}: {key!r} must be a list, not {type(value).__name__}")
    return value


def _object(value: object, what: str, number: int) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise RequestError(f"step {number}: {what} must be an object, not {type(value).__name__}")
    return value
