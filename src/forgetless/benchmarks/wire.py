"""Conversations as wire JSON: who speaks, what answers what, what must stay, what became of a message.

Written apart from the dialects and the units, so that it can contradict them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

__all__ = ["Wire", "listed"]

_KEPT = ("item_reference", "compaction")


def listed(body: Any) -> list[Any]:
    """The messages of a body of any dialect; an item for an input that is a string."""
    if isinstance(body, Mapping):
        body = body["messages"] if "messages" in body else body["input"]
    return [{"role": "user", "content": body}] if isinstance(body, str) else list(body)


class Wire:
    """The messages of one request in one dialect."""

    def __init__(self, dialect: str, messages: Sequence[Any], *, loose: bool = False) -> None:
        """Read messages; `loose` takes two for the same that a model reads the same, whatever their bytes."""
        self.dialect = dialect
        self.messages = list(messages)
        self.same = _reading if loose else json.dumps
        self.bytes = [self.same(message) for message in self.messages]
        self.roles = [_role(message, dialect) for message in self.messages]
        self.calls = [_calls(message) for message in self.messages]
        self.results = [_results(message) for message in self.messages]

    def last_user(self) -> int | None:
        """Index of the newest message with a user's own words."""
        return max((i for i, role in enumerate(self.roles) if role == "user"), default=None)

    def groups(self) -> list[set[int]]:
        """Replies: assistant messages in a row, and the results of their calls."""
        groups: list[set[int]] = []
        owner: dict[str, set[int]] = {}
        for i, role in enumerate(self.roles):
            if role == "assistant":
                if not groups or self.roles[i - 1] != "assistant":
                    groups.append(set())
                groups[-1].add(i)
                owner.update(dict.fromkeys(self.calls[i], groups[-1]))
            for ident in self.results[i]:
                owner.get(ident, set()).add(i)
        return groups

    def pending(self) -> set[int]:
        """Indices of messages with a call that no later message answers."""
        waiting: dict[str, int] = {}
        for i in range(len(self.messages)):
            waiting.update(dict.fromkeys(self.calls[i], i))
            for ident in self.results[i]:
                waiting.pop(ident, None)
        return set(waiting.values())

    def floor(self, pins: Collection[int]) -> set[int]:
        """Indices of all that may have to stay: rather a message too many than one too few."""
        stay = {i for i, role in enumerate(self.roles) if role == "system"} | set(pins) | self.pending()
        stay |= {i for i, message in enumerate(self.messages) if message.get("type") in _KEPT}
        last = self.last_user()
        stay |= {last} if last is not None else set()
        alone = [i for i, role in enumerate(self.roles) if role == "user" and not self.results[i]]
        stay |= set(alone[-1:])
        groups = self.groups()
        stay |= groups[-1] if groups else set()
        stay |= self._tied()
        for group in groups:
            if group & stay:
                stay |= group
        first = min((i for i in stay if self.roles[i] != "system"), default=0)
        opener = max((i for i in range(first) if self.roles[i] == "user"), default=None)
        return stay | {opener} if opener is not None else stay

    def _tied(self) -> set[int]:
        """What Anthropic's rules tie to what must stay: a system message's neighbours, the thought of an open turn."""
        if self.dialect != "anthropic":
            return set()
        inside = [i for i, role in enumerate(self.roles) if role == "system" and i]
        tied = {near for i in inside for near in (i - 1, i + 1) if near < len(self.messages)}
        begun = max((i for i, role in enumerate(self.roles) if role == "user"), default=-1) + 1
        thoughtful = [i for i in range(begun, len(self.messages)) if self.roles[i] == "assistant"][:1]
        return tied.union(thoughtful)

    def lost(self, sent: Sequence[Any], pins: Collection[int], shortened: Collection[int]) -> Iterator[str]:
        """What must stay and is not among the messages sent, save what the ledger says was shortened."""
        found = {self.same(message) for message in sent}
        system = [i for i, role in enumerate(self.roles) if role == "system"]
        for i in sorted({*system, *pins, *self.pending()}):
            if self.bytes[i] not in found and i not in shortened:
                yield f"message {i} ({self.roles[i]})"
        last = self.last_user()
        if last is not None and last not in shortened and self.bytes[last] not in found:
            words = [b for b in _blocks(self.messages[last]) if b.get("type") != "tool_result"]
            if not words or not any(_within(words, _blocks(message)) for message in sent):
                yield f"message {last} (the last user message)"

    def misplaced(self, sent: Sequence[Any]) -> Iterator[str]:
        """Messages sent as they were, but not where they were."""
        known, at = set(self.bytes), -1
        for n, message in enumerate(map(self.same, sent)):
            if message in known:
                after = next((i for i in range(at + 1, len(self.bytes)) if self.bytes[i] == message), None)
                if after is None:
                    yield f"message {n} of those sent"
                    return
                at = after

    def strange(self, sent: Sequence[Any]) -> Iterator[str]:
        """Messages sent that are none of ours."""
        known = set(self.bytes)
        for n, message in enumerate(sent):
            if self.same(message) not in known:
                yield f"message {n} of those sent"

    def altered(
        self, sent: Sequence[Any], kept: Sequence[int], whole: Collection[int], compressed: Collection[int]
    ) -> Iterator[str]:
        """Messages sent that are not what they were.

        Args:
            sent: the messages sent.
            kept: for each of them, the index that it had.
            whole: indices of messages that should be as they were.
            compressed: indices of messages that may be shorter: other texts, fewer thoughts.
        """
        for index, message in zip(kept, sent, strict=False):
            if json.dumps(message) == self.bytes[index]:
                continue
            if index in whole or not _derived(self.messages[index], message, index in compressed):
                yield f"message {index}"


def _reading(message: Any) -> str:
    """A chat message without what makes no difference: order of keys, empty content, spaces in arguments."""
    shown = {key: value for key, value in message.items() if value not in (None, "", [])}
    calls = shown.get("tool_calls")
    if isinstance(calls, list):
        shown["tool_calls"] = [_call_reading(call) for call in calls]
    return json.dumps(shown, sort_keys=True)


def _call_reading(call: Any) -> Any:
    try:
        return {
            **call,
            "function": {**call["function"], "arguments": json.loads(call["function"]["arguments"])},
        }
    except (KeyError, TypeError, ValueError):
        return call


def _derived(before: Any, after: Any, compressed: bool) -> bool:
    """Whether one message is the other with parts left out, or, where compressed, with other texts in it."""
    loose = {"content", "output", "reasoning_content"} if compressed else {"content"}
    if any(before.get(k) != after.get(k) for k in {**before, **after} if k not in loose):
        return False
    if not compressed:
        return _within(_blocks(after), _blocks(before))
    had = [json.dumps(block) for block in _blocks(before)]
    return all(json.dumps(b) in had or b.get("type") in _TEXTS for b in _blocks(after))


_TEXTS = frozenset({"text", "input_text", "output_text", "tool_result"})


def _within(few: Sequence[Any], many: Sequence[Any]) -> bool:
    """Whether the blocks stand in this order among the others, byte for byte."""
    rest = iter(json.dumps(block) for block in many)
    return all(json.dumps(block) in rest for block in few)


def _blocks(message: Any) -> list[Mapping[str, Any]]:
    content = message.get("content")
    return [block for block in content if isinstance(block, Mapping)] if isinstance(content, list) else []


def _role(message: Any, dialect: str) -> str:
    """`system` (developer too), `user` with words of their own, `assistant`, or `tool`."""
    role = message.get("role")
    if role in ("system", "developer"):
        return "system"
    if dialect == "responses" and role is None:
        kind = str(message.get("type"))
        return "tool" if kind.endswith("_output") or kind == "mcp_approval_response" else "assistant"
    if role == "function":
        return "tool"
    blocks = _blocks(message)
    if role == "user" and blocks and all(block.get("type") == "tool_result" for block in blocks):
        return "tool"
    return str(role)


def _calls(message: Any) -> list[Any]:
    found = [call.get("id") for call in message.get("tool_calls") or ()]
    found += [block.get("id") for block in _blocks(message) if block.get("type") == "tool_use"]
    if message.get("function_call"):
        found.append("name:" + message["function_call"]["name"])
    kind = str(message.get("type"))
    if kind.endswith("_call") and "call_id" in message:
        found.append(message["call_id"])
    elif kind == "mcp_approval_request":
        found.append(message["id"])
    return found


def _results(message: Any) -> list[Any]:
    found = [block.get("tool_use_id") for block in _blocks(message) if block.get("type") == "tool_result"]
    if message.get("role") == "tool":
        found.append(message.get("tool_call_id"))
    elif message.get("role") == "function":
        found.append("name:" + message["name"])
    elif str(message.get("type")).endswith("_call_output"):
        found.append(message.get("call_id"))
    elif message.get("type") == "mcp_approval_response":
        found.append(message.get("approval_request_id"))
    return found
