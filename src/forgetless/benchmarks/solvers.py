"""Scripted agents, which make policies comparable without a model: they act on what stands in their context alone.

A solver reads the messages that it is sent and nothing else and makes no mistake. It notes nothing down unless it is
asked for a memory: what a policy left out, it does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from json import dumps
from types import MappingProxyType
from typing import Any

from forgetless.benchmarks.shopper import buy, remember
from forgetless.environments.experts import codes, recall
from forgetless.errors import ConfigError
from forgetless.models.scripted import Scripted
from forgetless.replies.loose import listed, string
from forgetless.tokens import Counter

__all__ = ["MEMORY", "SOLVERS", "Solver", "scripted"]

MEMORY = 561
"""Most tokens of the memory that a scripted agent writes where it is asked for one."""

_BLOCK = "<memory>\n{}\n</memory>\n"


@dataclass(frozen=True, slots=True)
class Solver:
    """How an environment is played.

    Attributes:
        act: the texts of a request, oldest first, to an action.
        note: the same to what is worth keeping, a line each, the most needed last.
    """

    act: Callable[[Sequence[str]], str]
    note: Callable[[Sequence[str]], list[str]]


def _known(texts: Sequence[str]) -> list[str]:
    """What these texts say of codes, a line for each thing."""
    return [f"{thing}: {code}" for thing, code in codes(texts).items()]


SOLVERS: Mapping[str, Solver] = MappingProxyType({"recall": Solver(recall, _known), "webshop": Solver(buy, remember)})
"""By the environment's name."""


def scripted(environment: str, counter: Counter) -> Scripted:
    """The model that plays an environment.

    It calls `act` where the request offers tools, else it writes the action; where the request asks for a memory
    block, it begins with one of at most `MEMORY` tokens.

    Raises:
        ConfigError: there is no solver for it.
    """
    solver = SOLVERS.get(environment)
    if solver is None:
        raise ConfigError(
            f"there is no scripted agent for {environment!r}: name a model, or one of {', '.join(SOLVERS)}"
        )
    numbers = count()

    def reply(body: Mapping[str, Any]) -> Mapping[str, Any]:
        texts = _read(body)
        action = solver.act(texts)
        block = any("<memory>" in text for text in texts)
        memory = _BLOCK.format(_bounded(solver.note(texts), counter)) if block else ""
        if not body.get("tools"):
            return {"content": memory + action}
        function = {"name": "act", "arguments": dumps({"action": action})}
        call = {"id": f"call_{next(numbers)}", "type": "function", "function": function}
        return {"content": memory or None, "tool_calls": [call]}

    return Scripted(reply)


def _bounded(lines: list[str], counter: Counter) -> str:
    """The last lines that fit into the memory."""
    while lines and counter.text("\n".join(lines)) > MEMORY:
        lines = lines[1:]
    return "\n".join(lines)


def _read(body: Mapping[str, Any]) -> list[str]:
    """The texts of the messages in a request."""
    contents = [message.get("content") for message in listed(body.get("messages"))]
    return [
        string(content) or "\n".join(string(block.get("text")) for block in listed(content)) for content in contents
    ]
