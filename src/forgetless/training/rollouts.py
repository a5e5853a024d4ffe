"""Episodes of an agent that rewrites its memory, as samples to learn from: one for each turn (CCM, section 4.1).

The student sees task, memory and newest observation, and writes a memory block and one action. The teacher is to score
the same action tokens after the whole history, which is rebuilt from the student's own episode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from forgetless.environments.base import Environment, Start
from forgetless.policies.ccm.stream import Stream
from forgetless.training.actor import Actor, Tokenizer

__all__ = ["Live", "Played", "Turn", "act", "begin", "context", "history", "play", "shaped", "split", "student"]

BLOCK = "<memory>\n{}\n</memory>\n"
CLOSED = "</memory>\n"


@dataclass(frozen=True, slots=True)
class Turn:
    """One sample.

    Attributes:
        prompt: tokens of the student's context.
        reply: tokens of memory and action, as sampled.
        old: their log probabilities then.
        action: the place in `reply` at which the action begins; its end where the turn has none that could be read.
        teacher: tokens of the whole history before the action.
        wrote: whether the memory changed.
    """

    prompt: list[int]
    reply: list[int]
    old: list[float]
    action: int
    teacher: list[int]
    wrote: bool


@dataclass(slots=True)
class Played:
    """An episode.

    Attributes:
        seed: of it.
        turns: in order.
        reward: the sum of all rewards.
        broken: turns without a memory block that could be read.
        invalid: actions that the environment did not know.
    """

    seed: int
    turns: list[Turn] = field(default_factory=list)
    reward: float = 0.0
    broken: int = 0
    invalid: int = 0


def student(task: str, memory: str, observation: str) -> str:
    """The context of a turn."""
    return f"{task}\n{BLOCK.format(memory)}{observation}\n"


def history(start: Start, steps: Sequence[tuple[str, str]]) -> str:
    """The context of an agent that keeps everything: task, and actions with what they led to."""
    return f"{start.task}\n{start.observation}\n" + "".join(f"{action}\n{seen}\n" for action, seen in steps)


def split(reply: Sequence[int], tokenizer: Tokenizer) -> int:
    """The place of the first token of the action: the first that begins behind the memory block."""
    at = tokenizer.decode(reply).find(CLOSED)
    if at < 0:
        return len(reply)
    end = at + len(CLOSED)
    return next((n for n in range(len(reply)) if len(tokenizer.decode(reply[:n])) >= end), len(reply))


@dataclass(slots=True)
class Live:
    """An episode under way."""

    world: Environment
    start: Start
    played: Played
    memory: str = ""
    observation: str = ""
    steps: list[tuple[str, str]] = field(default_factory=list)
    over: bool = False


def play(
    actor: Actor,
    worlds: Callable[[], Environment],
    seeds: Sequence[int],
    *,
    turns: int,
    most: int,
    temperature: float,
    chance: torch.Generator,
) -> list[Played]:
    """Play an episode for each seed, all of them side by side.

    Args:
        actor: acts.
        worlds: makes an environment.
        seeds: of the episodes.
        turns: most of an episode.
        most: tokens of a reply.
        temperature: 0 takes the likeliest tokens.
        chance: what is drawn comes from it.
    """
    lives = [begin(worlds(), seed) for seed in seeds]
    for _ in range(turns):
        under_way = [live for live in lives if not live.over]
        if not under_way:
            break
        prompts = [actor.tokenizer.encode(context(live)) for live in under_way]
        for live, prompt, reply, old in zip(
            under_way, prompts, *actor.sample(prompts, most, temperature, chance), strict=True
        ):
            act(live, prompt, reply, old, actor.tokenizer)
    for live in lives:
        live.world.close()
    return [live.played for live in lives]


def begin(world: Environment, seed: int) -> Live:
    """An episode before its first turn."""
    start = world.start(seed)
    return Live(world, start, Played(seed), observation=start.observation)


def context(live: Live) -> str:
    """What the student sees in the next turn."""
    return student(live.start.task, live.memory, live.observation)


def act(live: Live, prompt: list[int], reply: list[int], old: list[float], tokenizer: Tokenizer) -> None:
    """Take a reply apart, act, and keep the turn."""
    taker = Stream()
    text = tokenizer.decode(reply)
    action = (taker.feed(text) + taker.end()).strip()
    teacher = tokenizer.encode(history(live.start, live.steps))
    wrote = False
    if len(taker.blocks) == 1 and not taker.broken:
        memory = taker.blocks[0].text.strip("\n")
        wrote, live.memory = memory != live.memory, memory
    else:
        live.played.broken += 1
    step = live.world.step(action)
    place = split(reply, tokenizer) if step.valid else len(reply)
    live.played.turns.append(Turn(prompt, reply, old, place, teacher, wrote))
    live.played.reward += step.reward
    live.played.invalid += not step.valid
    live.steps.append((action, step.observation))
    live.observation, live.over = step.observation, step.done


def shaped(reward: float, exact: float, partial: float) -> float:
    """The reward that is learned from: `exact` for an episode's success, else its share of `partial`.

    Args:
        reward: what an episode's rewards add up to, in [0, 1].
        exact: for 1; the paper's 10 on WebShop.
        partial: for all but 1; the paper's 2 there.
    """
    return exact if reward > 1 - 1e-6 else partial * reward
