"""What stands between an agent's history and its model: a session under a policy, or a memory that the agent rewrites.

Both have one method before a model call and one after it, so that one loop serves all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from forgetless.intake import Terms, take
from forgetless.models.base import Model
from forgetless.policies.base import Rewriter
from forgetless.registry import load_dialect, load_policy
from forgetless.session import Session
from forgetless.tokens import Counter

__all__ = ["EVERY_TURN", "UNLIMITED", "Counted", "Keeper", "Rewriting", "Sessioned"]

EVERY_TURN = "-every-turn"
"""Ends a policy's name where it chooses anew at each call."""

UNLIMITED = 10**9
"""A budget that no history meets."""

TASK = (0,)
"""The message that holds the task stays, whatever the policy."""


class Keeper(Protocol):
    """Keeps the context of one episode.

    Attributes:
        memory: what the agent wrote for itself last; empty under a policy.
        calls: requests to a model that the policy made so far.
        evictions: how often it chose anew so far.
        rewrites: whether only the start of a prompt, up to the memory, comes again.
    """

    memory: str
    calls: int
    evictions: int
    rewrites: bool

    def prepare(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """The request to send, for a request with the whole history.

        Raises:
            BudgetError: what must stay does not fit.
        """

    def observe(self, reply: Mapping[str, Any], usage: object) -> Mapping[str, Any]:
        """What of a reply goes into the history."""


class Sessioned:
    """A policy in a session, as in production."""

    rewrites = False

    def __init__(self, policy: str, budget: int, counter: Counter, **options: Any) -> None:
        """Load a policy by name; with `EVERY_TURN` behind it, it chooses anew at each call.

        Raises:
            ConfigError: unknown name or option.
        """
        self.memory, self.calls, self.evictions = "", 0, 0
        name = policy.removesuffix(EVERY_TURN)
        loaded = load_policy(name, counter=counter, **options)
        self._writer = Counted(loaded.model) if hasattr(loaded, "model") else None
        if self._writer is not None:
            loaded = replace(loaded, model=self._writer)
        self._session = Session(
            budget=budget, policy=loaded, dialect="chat", counter=counter, every_turn=policy != name
        )

    def prepare(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """As the session prepares it."""
        request: Mapping[str, Any] = self._session.prepare(body, pins=TASK).request
        self.evictions = self._session.evictions
        self.calls = self._writer.calls if self._writer is not None else 0
        return request

    def observe(self, reply: Mapping[str, Any], usage: object) -> Mapping[str, Any]:
        """The reply, of which the session takes note."""
        message: Mapping[str, Any] = self._session.observe(reply, usage).message
        return message


class Rewriting:
    """A memory that the agent rewrites at each reply."""

    rewrites = True

    def __init__(self, rewriter: Rewriter, budget: int, counter: Counter) -> None:
        """Begin with an empty memory."""
        self.memory, self.calls, self.evictions = "", 0, 0
        self._rewriter = rewriter
        self._terms = Terms(budget, "chat", counter)
        self._wire = load_dialect("chat")

    def prepare(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Task, memory and newest observation."""
        intake = take(body, self._terms, TASK)
        context = self._rewriter.prompt(intake.units, self.memory, intake.budget - intake.fixed)
        request: Mapping[str, Any] = intake.finish(context).request
        return request

    def observe(self, reply: Mapping[str, Any], usage: object) -> Mapping[str, Any]:
        """The reply without its memory."""
        (message,) = self._wire.parse([reply]).messages
        visible, self.memory = self._rewriter.absorb(message, self.memory)
        wire: Mapping[str, Any] = self._wire.wire(visible)
        return wire


class Counted:
    """A model that counts its calls.

    Attributes:
        calls: so far.
        name: of the model.
        window: of the model.
    """

    def __init__(self, model: Model) -> None:
        self.calls = 0
        self.name, self.window = model.name, model.window
        self.stream, self.close = model.stream, model.close
        self._model = model

    def __call__(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """A completion, as the model gives it."""
        self.calls += 1
        return self._model(body)
