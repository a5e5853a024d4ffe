"""What an environment is: a task, and an observation for each action, both as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

__all__ = ["Environment", "Start", "Step"]


@dataclass(frozen=True, slots=True)
class Start:
    """The beginning of an episode.

    Attributes:
        task: what the agent is to do, and which actions there are.
        observation: what it sees first; may be empty.
    """

    task: str
    observation: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """What an action led to.

    Attributes:
        observation: what the agent sees next.
        reward: of this action, in [0, 1]; an episode's success is what its rewards add up to.
        done: whether the episode is over.
        valid: whether the action was one that the environment knows.
    """

    observation: str
    reward: float = 0.0
    done: bool = False
    valid: bool = True


class Environment(Protocol):
    """An environment. One object plays one episode at a time; the same seed gives the same episode.

    Attributes:
        name: with the version of what it asks, such as `recall@1`.
    """

    name: str

    def start(self, seed: int) -> Start:
        """Begin the episode of a seed, whatever was under way."""

    def step(self, action: str) -> Step:
        """Act. An action that is not understood is answered by an observation that says so, never by an error."""

    def close(self) -> None:
        """Leave nothing behind."""
