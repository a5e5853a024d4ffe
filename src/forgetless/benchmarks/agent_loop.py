"""One loop for all agents: ask the model, act, append what was observed, until the episode or its limits end.

The whole history is kept here, and a keeper makes each request of it. Where the model takes tools, an action is a call
of `act`, else the reply is the action. A model that answers with text in place of a call is taken at its word.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from forgetless.benchmarks.keepers import Keeper
from forgetless.benchmarks.prices import Request
from forgetless.benchmarks.scale import Piece, Scale, common, total
from forgetless.environments.base import Environment
from forgetless.errors import BudgetError, ModelError
from forgetless.models.base import Model
from forgetless.replies.loose import listed, mapping, string

__all__ = ["ACT", "PLAIN", "Agent", "Episode", "Limits", "play"]

ACT: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": "act",
        "description": "Do one action.",
        "parameters": {"type": "object", "properties": {"action": {"type": "string"}}, "required": ["action"]},
    },
}
"""The one tool."""

PLAIN = "Reply with one action and nothing else."
"""What a model without tools is told."""

REPLY = 1_024
"""Most tokens of a reply."""

OVER = "The episode is over."
"""What calls get that stand behind the last one."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Where an episode ends at the latest.

    Attributes:
        turns: most model calls.
        tokens: most input tokens of all calls together; None for no limit.
    """

    turns: int
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Agent:
    """Who acts.

    Attributes:
        model: that is asked.
        scale: counts what is sent and written.
        tools: whether the model takes tools.
        temperature: of the model.
    """

    model: Model
    scale: Scale
    tools: bool = True
    temperature: float = 0.0

    def settings(self, seed: int) -> dict[str, Any]:
        """What each request has beside its messages; a model without chance needs no seed."""
        tools = {"tools": [ACT]} if self.tools else {}
        return {"temperature": self.temperature, "max_tokens": REPLY, **tools} | (
            {"seed": seed} if self.temperature else {}
        )


@dataclass(slots=True)
class Episode:
    """What happened.

    Attributes:
        messages: the whole history, as chat messages; a memory is not in it.
        requests: one for each model call.
        memories: what the agent had written for itself after each call; empty texts under a policy.
        reward: the sum of all rewards.
        actions: steps in the environment.
        invalid: of these, those that it did not know.
        ended: `done`, or what cut it short: `turns`, `tokens`, `budget` or `refused`.
        error: what was said of that, where it was an error.
        compressor_calls: requests to a model that the policy made.
        evictions: how often the policy chose anew.
        seconds: of wall time.
    """

    messages: list[Mapping[str, Any]] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    memories: list[str] = field(default_factory=list)
    reward: float = 0.0
    actions: int = 0
    invalid: int = 0
    ended: str = "turns"
    error: str = ""
    compressor_calls: int = 0
    evictions: int = 0
    seconds: float = 0.0


def play(environment: Environment, seed: int, keeper: Keeper, agent: Agent, limits: Limits) -> Episode:
    """Play one episode.

    Args:
        environment: it is begun anew.
        seed: of the episode, and of the model where its temperature is above 0.
        keeper: makes the requests; a fresh one.
        agent: who acts.
        limits: of the episode.

    Raises:
        ModelError: the model can't be reached; one that refuses a request ends the episode instead.
    """
    began = time.perf_counter()
    start = environment.start(seed)
    told = "\n\n".join(filter(None, (start.task, "" if agent.tools else PLAIN, start.observation)))
    episode = Episode([{"role": "user", "content": told}])
    asking = _Asking(episode, keeper, agent, seed)
    while len(episode.requests) < limits.turns:
        if limits.tokens is not None and sum(request.tokens for request in episode.requests) >= limits.tokens:
            episode.ended = "tokens"
            break
        reply = asking.next()
        if reply is None or _act(episode, environment, reply):
            break
    if keeper.rewrites:
        episode.requests = _unmarked(episode.requests)
    episode.compressor_calls, episode.evictions = keeper.calls, keeper.evictions
    episode.seconds = time.perf_counter() - began
    return episode


def _unmarked(requests: Sequence[Request]) -> list[Request]:
    """Requests of which only what all begin with is marked for the cache: behind it nothing comes again."""
    static = min((request.prefix for request in requests[1:]), default=0)
    return [
        replace(request, prefix=min(static, request.prefix), unmarked=request.tokens - static) for request in requests
    ]


class _Asking:
    """The model's side of an episode."""

    def __init__(self, episode: Episode, keeper: Keeper, agent: Agent, seed: int) -> None:
        self.episode, self.keeper, self.agent = episode, keeper, agent
        self.settings = agent.settings(seed)
        self.fixed = agent.scale.counter.json([ACT]) if agent.tools else 0
        self.before: list[Piece] = []

    def next(self) -> Mapping[str, Any] | None:
        """The next reply as it goes into the history; None where there is none."""
        episode = self.episode
        try:
            body = self.keeper.prepare({**self.settings, "messages": list(episode.messages)})
            completion = self.agent.model(body)
        except BudgetError as error:
            episode.ended, episode.error = "budget", str(error)
            return None
        except ModelError as error:
            if error.status is None or error.status == 429 or error.status >= 500:
                raise
            episode.ended, episode.error = "refused", str(error)
            return None
        reply = mapping(mapping(listed(completion.get("choices"))[0]).get("message"))
        self._weigh(body, reply)
        visible = self.keeper.observe({"role": "assistant", "content": None, **reply}, completion.get("usage"))
        episode.memories.append(self.keeper.memory)
        episode.messages.append(visible)
        return visible

    def _weigh(self, body: Mapping[str, Any], reply: Mapping[str, Any]) -> None:
        now = self.agent.scale.weigh(body["messages"])
        prefix = self.fixed + common(self.before, now) if self.before else 0
        output = total(self.agent.scale.weigh([{"role": "assistant", "content": None, **reply}]))
        self.episode.requests.append(Request(self.fixed + total(now), prefix, output))
        self.before = now


def _act(episode: Episode, environment: Environment, reply: Mapping[str, Any]) -> bool:
    """Do what a reply says and append what is observed; whether the episode is over."""
    over = False
    for ident, action in _actions(reply):
        shown = OVER
        if not over:
            step = environment.step(action)
            shown, over = step.observation, step.done
            episode.actions += 1
            episode.invalid += not step.valid
            episode.reward += step.reward
        told = {"role": "user"} if ident is None else {"role": "tool", "tool_call_id": ident}
        episode.messages.append({**told, "content": shown})
    if over:
        episode.ended = "done"
    return over


def _actions(reply: Mapping[str, Any]) -> Iterator[tuple[str | None, str]]:
    """Id and text of each action; no id where the reply makes no call."""
    calls = listed(reply.get("tool_calls"))
    if not calls:
        content = reply.get("content")
        yield None, string(content) or "\n".join(string(block.get("text")) for block in listed(content))
    for call in calls:
        function = mapping(call.get("function"))
        yield string(call.get("id")), _given(string(function.get("arguments")))


def _given(arguments: str) -> str:
    """The action in the arguments of a call; all of them where they are no object with one."""
    try:
        return string(mapping(json.loads(arguments)).get("action")) or arguments
    except ValueError:
        return arguments
