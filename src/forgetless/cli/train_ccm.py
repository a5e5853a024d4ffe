"""`forgetless train ccm-start` and `forgetless train ccm`: an agent that learns to rewrite its memory."""

from __future__ import annotations

import json as json_
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

from forgetless.benchmarks.plots import draw, training_plot
from forgetless.environments.recall import Recall
from forgetless.errors import ConfigError, MissingExtra

__all__ = ["ccm", "ccm_start"]

WORLD = "world.json"
"""What a start was made for: the settings of its environment."""

SHUFFLED = 40
"""Episodes whose demonstrations are mixed."""

TOLD = 100
"""Steps between two lines on progress."""


def ccm_start(
    *,
    out: Path = Path("ccm-start"),
    codes: int = 2,
    pages: int = 4,
    distance: int = 1,
    words: int = 0,
    forgets: float = 0.5,
    steps: int = 3_000,
    threads: int = 1,
    seed: int = 0,
) -> None:
    """Make the model that `train ccm` begins from: tiny, and taught by an expert whose memory is poor.

    Half of what it sees are turns of an agent that rewrites its memory and forgets a share of the codes, half are turns
    with the whole history, which make it a teacher.

    Args:
        out: the folder to write.
        codes: of an episode of `recall`.
        pages: to read.
        distance: least reports before the first question.
        words: least words of a page.
        forgets: share of the codes that the expert's memory misses.
        steps: of the optimiser.
        threads: that compute.
        seed: of weights, episodes and what is forgotten.
    """
    _torch(threads)
    from forgetless.training.ccm import imitate
    from forgetless.training.demonstrations import forgetful, knowing
    from forgetless.training.tiny import save_tiny, tiny
    from forgetless.training.words import Words

    world = {"codes": codes, "pages": pages, "distance": distance, "words": words}
    recall = Recall(**world)
    chance = Random(seed)

    def shown() -> Iterator[Any]:
        for first in range(1_000_000, 10**9, SHUFFLED):
            episodes = range(first, first + SHUFFLED, 2)
            rows = [*chain.from_iterable(forgetful(recall, at, forgets, chance) for at in episodes)]
            rows += chain.from_iterable(knowing(recall, at + 1) for at in episodes)
            chance.shuffle(rows)
            yield from rows

    read = Words.of(recall_text(recall))
    model = tiny(read, seed)
    started = perf_counter()
    for step, loss in enumerate(imitate(model, read, shown(), steps=steps), 1):
        if step % TOLD == 0 or step == steps:
            _tell(f"step {step:,} of {steps:,}: {loss:.4f} nats a token, {perf_counter() - started:.0f} s")
    save_tiny(model, read, out)
    (out / WORLD).write_text(json_.dumps({**world, "forgets": forgets, "steps": steps, "seed": seed}) + "\n", "utf-8")


def recall_text(recall: Recall) -> Iterator[str]:
    """All words of an environment, as a model reads and writes them."""
    from forgetless.environments.recall import THINGS
    from forgetless.training.demonstrations import forgetful, knowing

    for seed in range(300):
        for one in (*forgetful(recall, seed, 0.5, Random(seed)), *knowing(recall, seed)):
            yield one.prompt + one.reply
    for thing in THINGS:
        yield f" {thing}"
        yield thing


def ccm(
    *,
    start: Path,
    out: Path = Path("results/train-ccm"),
    updates: int = 60,
    groups: int = 4,
    episodes: int = 8,
    distill: float = 0.01,
    kl: float = 0.01,
    grpo: float = 1.0,
    rate: float = 3e-4,
    temperature: float = 1.0,
    held_out: int = 100,
    threads: int = 1,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Train an agent to rewrite its memory: GRPO with full-history distillation (CCM, section 4.1).

    A broken run goes on from its checkpoint, to the same numbers.

    Args:
        start: folder that `train ccm-start` made.
        out: the results folder: config.json, metrics.jsonl, summary.json, plot, checkpoint.
        updates: steps of the optimiser.
        groups: beginnings of episodes in a batch.
        episodes: played from each.
        distill: weight of the distillation; 0 for GRPO alone.
        kl: weight of the divergence from the start.
        grpo: weight of GRPO; 0 for distillation alone.
        rate: of learning.
        temperature: of sampling.
        held_out: episodes that are measured and not trained on.
        threads: that compute.
        seed: of all that is drawn.
        json: print the summary to stdout.
    """
    _torch(threads)
    from forgetless.training.actor import Actor
    from forgetless.training.ccm import Settings, evaluate, train
    from forgetless.training.grpo import Terms
    from forgetless.training.tiny import load_tiny

    model, words = load_tiny(start)
    told = json_.loads((start / WORLD).read_text("utf-8"))
    world = {key: told[key] for key in ("codes", "pages", "distance", "words")}
    actor = Actor(model, words)
    settings = Settings(
        updates=updates,
        groups=groups,
        episodes=episodes,
        turns=world["pages"] + world["codes"] + 3,
        reply=16 + 12 * world["codes"],
        temperature=temperature,
        rate=rate,
        terms=Terms(kl=kl, distill=distill, grpo=grpo),
        held_out=held_out,
        seed=seed,
    )
    before = evaluate(actor, lambda: Recall(**world), settings)
    _tell(f"at the start: {before['success']:.0%} of {held_out} held-out episodes")
    lines = []
    for line in train(actor, lambda: Recall(**world), settings, out):
        lines.append(line)
        _tell(_line(line))
    summary = {"start": before, "settings": asdict(settings), "world": told, "updates": lines}
    (out / "summary.json").write_text(json_.dumps(summary, indent=2) + "\n", "utf-8")
    draw(training_plot, summary, out / "training.png")
    if json:
        print(json_.dumps(summary, indent=2))


def _line(line: Mapping[str, Any]) -> str:
    held = f", held out {line['held_out_success']:.0%}" if "held_out_success" in line else ""
    return (
        f"update {line['update']}: success {line['success']:.0%}, reward {line['reward']:.2f}, memory changed in "
        f"{line['wrote']:.0%} of turns{held}, {line['seconds']:.1f} s"
    )


def _torch(threads: int) -> None:
    try:
        import torch
        import transformers  # noqa: F401 - what it brings is loaded later
    except ModuleNotFoundError as error:
        raise MissingExtra("local", "torch and transformers") from error
    if threads < 1:
        raise ConfigError(f"threads must be at least 1, not {threads!r}")
    torch.set_num_threads(threads)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
