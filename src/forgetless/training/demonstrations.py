"""Demonstrations of an expert, to begin from: with a memory that forgets, and with the whole history.

The first teach the form of a turn, and a memory that is not yet good; the second teach the teacher what it is to know.
Both say what they look up before they answer: without that, a model of few layers takes any code that it sees.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count
from random import Random

from forgetless.environments.base import Environment
from forgetless.environments.experts import asked, codes, recall
from forgetless.environments.recall import ANSWER, NEXT, THINGS
from forgetless.training.rollouts import BLOCK, history, student

__all__ = ["Demonstration", "forgetful", "knowing", "mixed", "wording"]

SHUFFLED = 40
"""Episodes whose demonstrations are mixed."""

SOME = 0.25
"""Share of the turns that only read on which are shown with the whole history: they teach little."""

SAMPLE = 300
"""Episodes in which every word but the names of things turns up."""


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
        action = _said([after, observation])
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
        action = _said([shown, steps[-1][1] if steps else start.observation])
        yield Demonstration(shown, action)
        step = world.step(action)
        steps.append((action, step.observation))
        if step.done:
            return


def _said(texts: Sequence[str]) -> str:
    """The expert's action; before an answer a line that names what was asked for."""
    action = recall(texts)
    thing = asked(texts[-1])
    return action if thing is None else f"{thing}: {action.removeprefix(ANSWER).strip()}\n{action}"


def mixed(world: Environment, forgets: float, chance: Random) -> Iterator[Demonstration]:
    """Turns with a memory that forgets, and as many episodes with the whole history, without end."""
    for first in count(1_000_000, SHUFFLED):
        episodes = range(first, first + SHUFFLED, 2)
        rows = [*chain.from_iterable(forgetful(world, at, forgets, chance) for at in episodes)]
        known = chain.from_iterable(knowing(world, at + 1) for at in episodes)
        rows += (one for one in known if one.reply != NEXT or chance.random() < SOME)
        chance.shuffle(rows)
        yield from rows


def wording(world: Environment) -> Iterator[str]:
    """All words of an environment, as a model reads and writes them."""
    for seed in range(SAMPLE):
        for one in (*forgetful(world, seed, 0.5, Random(seed)), *knowing(world, seed)):
            yield one.prompt + one.reply
    for thing in THINGS:
        yield f" {thing}"
        yield thing
