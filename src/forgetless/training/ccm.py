"""Training an agent to rewrite its memory: GRPO with full-history distillation (CCM, section 4.1), read top to bottom.

A run is a folder: config.json, metrics.jsonl (a line an update), checkpoint.pt, and the model at the end. It goes on
from its checkpoint and gives the same numbers then. What is simpler than the paper: one process, on the CPU as it is
here; one step of the optimiser for each batch of episodes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any

import torch

from forgetless.environments.base import Environment
from forgetless.errors import ConfigError
from forgetless.training.actor import Actor
from forgetless.training.checkpoints import fingerprint, folder_for, keep, resume
from forgetless.training.grpo import Batch, Terms, advantages, objective
from forgetless.training.ranges import above_0, at_least, seedable
from forgetless.training.rollouts import Played, Turn, play, shaped

__all__ = ["Settings", "Worlds", "evaluate", "train"]

Worlds = Callable[[], Environment]

TRAINING_SEEDS = 10_000
"""Episodes from here on are trained on; those before are held out."""

NORM = 1.0
"""Most of a gradient's length."""


@dataclass(frozen=True, slots=True)
class Settings:
    """A run.

    Attributes:
        updates: steps of the optimiser.
        groups: episodes' beginnings in a batch.
        episodes: played from each of them.
        turns: most of an episode.
        reply: most tokens of a turn.
        temperature: of sampling, and of all log probabilities.
        rate: of learning (AdamW).
        terms: the objective's weights.
        exact: the reward of a success.
        partial: the reward of all else, times the share that was reached.
        evaluate: updates between measurements on held-out episodes; 0 for the last alone.
        held_out: episodes of a measurement.
        keep: updates between checkpoints.
        rows: samples at once; the gradient of a batch is the sum of them.
        seed: of all that is drawn.
    """

    updates: int = 60
    groups: int = 4
    episodes: int = 8
    turns: int = 12
    reply: int = 40
    temperature: float = 1.0
    rate: float = 3e-4
    terms: Terms = field(default_factory=Terms)
    exact: float = 1.0
    partial: float = 1.0
    evaluate: int = 10
    held_out: int = 64
    keep: int = 5
    rows: int = 32
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what can't be.

        Raises:
            ConfigError: a value is out of its range.
        """
        sizes = ("updates", "groups", "episodes", "turns", "reply", "held_out", "keep", "rows")
        at_least(1, **{name: getattr(self, name) for name in sizes})
        at_least(0, every=self.evaluate)  # as the command line calls it
        seedable(self.seed)
        above_0(temperature=self.temperature, rate=self.rate)
        weights = {name: getattr(self.terms, name) for name in ("kl", "distill", "grpo")}
        for name, value in {**weights, "exact": self.exact, "partial": self.partial}.items():
            if not (isfinite(value) and value >= 0):
                raise ConfigError(f"{name} must be a number of at least 0, not {value!r}")


def train(
    actor: Actor, worlds: Worlds, settings: Settings, out: Path, began_from: Mapping[str, Any] | None = None
) -> Iterator[dict[str, Any]]:
    """Train, and give the figures of each update; first those of earlier updates where a broken run goes on.

    Args:
        actor: with the weights to begin from.
        worlds: makes an environment.
        settings: of the run.
        out: its folder. A run that is there with other settings, or from other weights, is replaced.
        began_from: how the start was made, which belongs to the settings.

    Raises:
        ConfigError: the folder can't be written to, or the run in it is damaged.
    """
    run = _Run(actor, worlds, settings, folder_for(out))
    begun = run.resume(began_from)
    yield from begun
    with (out / "metrics.jsonl").open("a", encoding="utf-8") as log:
        for update in range(len(begun), settings.updates):
            started = perf_counter()
            figures = run.update(update)
            last = update + 1 == settings.updates
            if last or (settings.evaluate and (update + 1) % settings.evaluate == 0):
                figures |= {f"held_out_{key}": value for key, value in evaluate(actor, worlds, settings).items()}
            if last:
                sampled = evaluate(actor, worlds, settings, settings.temperature)
                figures |= {f"sampled_{key}": value for key, value in sampled.items()}
            figures = {"update": update + 1, **figures, "seconds": round(perf_counter() - started, 3)}
            log.write(json.dumps(figures) + "\n")
            log.flush()
            if last or (update + 1) % settings.keep == 0:
                run.keep(update + 1)
            yield figures


def evaluate(actor: Actor, worlds: Worlds, settings: Settings, temperature: float = 0.0) -> dict[str, float]:
    """Success, reward and more on held-out episodes; a temperature of 0 takes the likeliest tokens."""
    played = play(
        actor,
        worlds,
        range(settings.held_out),
        turns=settings.turns,
        most=settings.reply,
        temperature=temperature,
        chance=torch.Generator().manual_seed(settings.seed),
    )
    return _told(played)


def _batch(
    actor: Actor, part: Sequence[tuple[Turn, float]], settings: Settings, generated: int, action: int
) -> tuple[Batch, Any]:
    """Some samples of a mini-batch, and their log probabilities now."""
    turns = [turn for turn, _ in part]
    rows = [turn.prompt + turn.reply for turn in turns]
    logps = actor.logps(rows, settings.temperature)
    shape = logps.shape
    old, said, acted = (torch.zeros(shape) for _ in range(3))
    for at, turn in enumerate(turns):
        begin, end = len(turn.prompt), len(turn.prompt) + len(turn.reply)
        old[at, begin:end] = torch.tensor(turn.old)
        said[at, begin:end] = 1
        acted[at, begin + turn.action : end] = 1
    reference = teacher = None
    with actor.first() as first:
        if settings.terms.kl:
            reference = actor.logps(rows, settings.temperature, first)
        if settings.terms.distill:
            teacher = _teacher(actor, turns, settings, shape, first)
    gain = torch.tensor([gain for _, gain in part])
    return Batch(old, reference, teacher, gain, said, acted, generated, action), logps


def _teacher(actor: Actor, turns: Sequence[Turn], settings: Settings, shape: Any, first: Any) -> Any:
    """What the first weights think of the same action tokens after the whole history, at the student's places."""
    found = torch.zeros(shape)
    acted = [(at, turn) for at, turn in enumerate(turns) if turn.action < len(turn.reply)]
    if acted:
        rows = [turn.teacher + turn.reply[turn.action :] for _, turn in acted]
        logps = actor.logps(rows, settings.temperature, first)
        for (at, turn), row, line in zip(acted, rows, logps, strict=True):
            begin = len(turn.prompt) + turn.action
            found[at, begin : begin + len(turn.reply) - turn.action] = line[len(turn.teacher) : len(row)]
    return found


def _told(played: Sequence[Played]) -> dict[str, float]:
    turns = [turn for one in played for turn in one.turns]
    return {
        "success": fmean(one.reward > 1 - 1e-6 for one in played),
        "reward": fmean(one.reward for one in played),
        "input_tokens": fmean(sum(len(turn.prompt) for turn in one.turns) for one in played),
        "reply_tokens": fmean(len(turn.reply) for turn in turns),
        "wrote": fmean(turn.wrote for turn in turns),
        "broken": sum(one.broken for one in played) / len(turns),
        "invalid": sum(one.invalid for one in played) / len(turns),
    }


class _Run:
    """What changes from update to update."""

    def __init__(self, actor: Actor, worlds: Worlds, settings: Settings, out: Path) -> None:
        self.actor, self.worlds, self.settings, self.out = actor, worlds, settings, out
        self.learning = [parameter for parameter in actor.model.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.AdamW(self.learning, lr=settings.rate, weight_decay=0.0)
        self.chance = torch.Generator().manual_seed(settings.seed)

    def update(self, number: int) -> dict[str, float]:
        """Play a batch of episodes and take one step."""
        settings = self.settings
        first = TRAINING_SEEDS + number * settings.groups
        played = play(
            self.actor,
            self.worlds,
            [seed for seed in range(first, first + settings.groups) for _ in range(settings.episodes)],
            turns=settings.turns,
            most=settings.reply,
            temperature=settings.temperature,
            chance=self.chance,
        )
        rewards = torch.tensor([shaped(one.reward, settings.exact, settings.partial) for one in played])
        rewards = rewards.view(settings.groups, settings.episodes)
        gains = advantages(rewards).flatten().tolist()
        samples = [(turn, gain) for one, gain in zip(played, gains, strict=True) for turn in one.turns]
        samples.sort(key=lambda sample: len(sample[0].prompt) + len(sample[0].reply))  # to pad little
        generated = sum(len(turn.reply) for turn, _ in samples)
        action = sum(len(turn.reply) - turn.action for turn, _ in samples)
        self.optimizer.zero_grad()
        figures: dict[str, float] = {}
        for at in range(0, len(samples), settings.rows):
            batch, logps = _batch(self.actor, samples[at : at + settings.rows], settings, generated, action)
            loss, told = objective(logps, batch, settings.terms)
            loss.backward()
            figures = {key: figures.get(key, 0.0) + value for key, value in told.items()}
        norm = torch.nn.utils.clip_grad_norm_(self.learning, NORM)
        self.optimizer.step()
        ties = float((rewards.std(-1, correction=0) == 0).float().mean())
        return {**_told(played), "ties": ties, **figures, "norm": float(norm)}

    def resume(self, began_from: Mapping[str, Any] | None) -> list[dict[str, Any]]:
        """Go on from the checkpoint of a run like this one: the figures up to there; none where there is none."""
        about = {"began_from": began_from, "weights": fingerprint(self.actor.model)}
        found = resume(self.out, {**asdict(self.settings), **about})
        if found is None:
            return []
        state, lines = found
        self.actor.model.load_state_dict(state["model"], strict=False)  # what does not learn is not in it
        self.optimizer.load_state_dict(state["optimizer"])
        self.chance.set_state(state["chance"])
        return lines

    def keep(self, updates: int) -> None:
        """Write a checkpoint."""
        learnt = {name: one.detach() for name, one in self.actor.model.named_parameters() if one.requires_grad}
        state = {"model": learnt, "optimizer": self.optimizer.state_dict(), "chance": self.chance.get_state()}
        keep(self.out, {**state, "steps": updates})
