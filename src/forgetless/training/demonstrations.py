"""Demonstrations of an expert, to begin from: with a memory that forgets, and with the whole history.

The first teach the form of a turn, and a memory that is not yet good; the second teach the teacher what it is to know.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from forgetless.environments.base import Environment
from forgetless.environments.experts import codes, recall
from forgetless.training.rollouts import BLOCK, history, student

__all__ = ["Demonstration", "forgetful", "knowing"]


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A context and what is to be written there.

    Attributes:
        prompt: the context.
        reply: what follows.
    """

    prompt: str
    reply: str


def forgetful(world: Environment, seed: int, forgets: float, chance: Random) -> Iterator[Demonstration]:
    """The turns of an episode whose memory misses a share of the codes for good."""
    start = world.start(seed)
    memory, observation = "", start.observation
    while True:
        known = codes([memory])
        new = {thing: code for thing, code in codes([observation]).items() if thing not in known}
        known |= {thing: code for thing, code in new.items() if chance.random() >= forgets}
        after = "\n".join(f"{thing}: {code}" for thing, code in known.items())
        action = recall([after, observation])
        yield Demonstration(student(start.task, memory, observation), f"{BLOCK.format(after)}{action}")
        step = world.step(action)
        memory, observation = after, step.observation
        if step.done:
            return


def knowing(world: Environment, seed: int) -> Iterator[Demonstration]:
    """The turns of an episode in which everything stays."""
    start = world.start(seed)
    steps: list[tuple[str, str]] = []
    while True:
        shown = history(start, steps)
        action = recall([shown, steps[-1][1] if steps else start.observation])
        yield Demonstration(shown, action)
        step = world.step(action)
        steps.append((action, step.observation))
        if step.done:
            return
