"""`forgetless train ccm-start` and `forgetless train ccm`: an agent that learns to rewrite its memory."""

from __future__ import annotations

import json as json_
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from time import perf_counter
from types import MappingProxyType
from typing import Annotated, Any

from cyclopts import Parameter

from forgetless.benchmarks.plots import draw
from forgetless.benchmarks.training_plots import training_plot
from forgetless.environments.base import Environment
from forgetless.errors import ConfigError
from forgetless.models.local.backbone import use_threads
from forgetless.registry import ENVIRONMENTS, load_environment, options_of
from forgetless.training.ranges import above_0, at_least, seedable

__all__ = ["ccm", "ccm_start"]

SMALL: Mapping[str, Any] = MappingProxyType({"codes": 2, "pages": 4, "distance": 1, "words": 0})
"""What a tiny model can learn of `recall` within minutes."""

TOLD = 100
"""Steps between two lines on progress."""


def ccm_start(
    *,
    out: Path = Path("ccm-start"),
    backbone: str | None = None,
    rank: int = 16,
    environment: str = "recall",
    option: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    turns: int = 9,
    reply: int = 56,
    forgets: float = 0.5,
    copies: int = 600,
    steps: int = 4_000,
    rows: int = 16,
    rate: float = 2e-3,
    threads: int = 1,
    seed: int = 0,
) -> None:
    """Make the model that `train ccm` begins from, taught by an expert whose memory is poor.

    Half of what it sees are turns of an agent that rewrites its memory and forgets a share of the codes, half are turns
    with the whole history, which make it a teacher.

    Args:
        out: the folder to write.
        backbone: what is taught: by default a tiny new model; `embedded`, or a folder or a name on the hub that
            transformers loads, which learns through a LoRA adapter that is merged into it at the end.
        rank: of that adapter.
        environment: to act in. Only `recall` has an expert: with others take `--steps 0`, and a model that knows the
            form of a turn.
        option: NAME=VALUE, an option of the environment; may be given more than once. By default, for `recall`,
            codes=2 pages=4 distance=1 words=0.
        turns: most of an episode.
        reply: most tokens of a turn.
        forgets: share of the codes that the expert's memory misses.
        copies: steps of the optimiser in which a new model learns to copy.
        steps: in which it learns from the expert.
        rows: demonstrations of such a step.
        rate: of learning.
        threads: that compute.
        seed: of weights, episodes and what is forgotten.
    """
    use_threads(threads)
    at_least(0, steps=steps, copies=copies)
    seedable(seed)
    at_least(1, rank=rank, turns=turns, reply=reply, rows=rows)
    above_0(rate=rate)
    if not 0 <= forgets <= 1:
        raise ConfigError(f"forgets must be a share from 0 to 1, not {forgets!r}")
    from forgetless.training.checkpoints import folder_for
    from forgetless.training.demonstrations import mixed
    from forgetless.training.start import imitate
    from forgetless.training.starts import adapted, save_start

    options = {**(SMALL if environment == "recall" else {}), **options_of(option)}
    if environment in ENVIRONMENTS.keys() - {"recall"} and (steps or backbone is None):
        raise ConfigError(f"there is no expert for {environment!r}: give --steps 0 and a --backbone")
    world = load_environment(environment, **options)
    folder_for(out)
    started = perf_counter()

    def follow(part: str, losses: Iterator[float], most: int) -> None:
        for step, loss in enumerate(losses, 1):
            if step % TOLD == 0 or step == most:
                _tell(f"{part}, step {step:,} of {most:,}: {loss:.4f} nats a token, {perf_counter() - started:.0f} s")

    if backbone is None:
        model, tokenizer = _new(world, seed, lambda losses: follow("copying", losses, copies), copies)
    else:
        held, tokenizer = _loaded(backbone)
        model = adapted(held, rank, seed) if steps else held
    shown = mixed(world, forgets, Random(seed))
    follow("imitating", imitate(model, tokenizer, shown, steps=steps, rows=rows, rate=rate), steps)
    learned = {"forgets": forgets, "copies": copies, "steps": steps, "rows": rows, "rate": rate, "seed": seed}
    about = {"environment": environment, "options": options, "turns": turns, "reply": reply}
    about["backbone"] = None if backbone is None else Path(backbone).name
    save_start(model.merge_and_unload() if backbone and steps else model, tokenizer, out, {**about, **learned})
    world.close()


def _new(world: Environment, seed: int, follow: Callable[[Iterator[float]], None], copies: int) -> tuple[Any, Any]:
    """A tiny model that has learned to copy, and its words."""
    import torch

    from forgetless.training.demonstrations import wording
    from forgetless.training.start import copying
    from forgetless.training.tiny import tiny
    from forgetless.training.words import Words

    words = Words.of(wording(world))
    model = tiny(words, seed)
    follow(copying(model, words.size, steps=copies, chance=torch.Generator().manual_seed(seed)))
    return model, words


def _loaded(backbone: str) -> tuple[Any, Any]:
    from forgetless.models.local.backbone import load_backbone
    from forgetless.training.starts import Pretrained

    loaded = load_backbone(None if backbone == "embedded" else backbone)
    return loaded.model, Pretrained(loaded.tokenizer)


def ccm(
    *,
    environment: str | None = None,
    start: Path | None = None,
    out: Path = Path("results/train-ccm"),
    updates: int = 60,
    groups: int = 4,
    episodes: int = 8,
    distill: float = 0.01,
    kl: float = 0.01,
    grpo: float = 1.0,
    exact: float = 1.0,
    partial: float = 1.0,
    rate: float = 3e-4,
    rank: int | None = None,
    temperature: float = 1.0,
    held_out: int = 100,
    every: int = 10,
    rows: int = 32,
    threads: int = 1,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Train an agent to rewrite its memory: GRPO with full-history distillation (CCM, section 4.1).

    A broken run goes on from its checkpoint, to the same numbers; one with other settings or another start is replaced.

    Args:
        environment: to act in; by default that of the start.
        start: folder that `train ccm-start` made; by default one is made first, as its defaults have it.
        out: the results folder: config.json, metrics.jsonl, summary.json, plot, checkpoint, and the trained `model`.
        updates: steps of the optimiser.
        groups: beginnings of episodes in a batch.
        episodes: played from each.
        distill: weight of the distillation; 0 for GRPO alone.
        kl: weight of the divergence from the start.
        grpo: weight of GRPO; 0 for distillation alone.
        exact: reward of a success; the paper's 10 on WebShop.
        partial: reward of all else, times the share that was reached; the paper's 2 there.
        rate: of learning.
        rank: of a LoRA adapter that learns in place of all weights.
        temperature: of sampling.
        held_out: episodes that are measured and not trained on.
        every: updates between these measurements.
        rows: samples at once.
        threads: that compute.
        seed: of all that is drawn.
        json: print the summary to stdout.
    """
    use_threads(threads)
    from forgetless.training.actor import Actor
    from forgetless.training.ccm import Settings, evaluate, train
    from forgetless.training.grpo import Terms
    from forgetless.training.starts import adapted, load_start, save_start

    settings = Settings(
        updates=updates,
        groups=groups,
        episodes=episodes,
        temperature=temperature,
        rate=rate,
        terms=Terms(kl=kl, distill=distill, grpo=grpo),
        exact=exact,
        partial=partial,
        evaluate=every,
        held_out=held_out,
        rows=rows,
        seed=seed,
    )
    if rank is not None:
        at_least(1, rank=rank)
    if start is None:
        start = out / "start"
        if not any(start.glob("start.json")):
            ccm_start(out=start, environment=environment or "recall", threads=threads)
    begun = load_start(start)
    if environment not in (None, begun.told["environment"]):
        raise ConfigError(f"{str(start)!r} was made for {begun.told['environment']!r}, not for {environment!r}")
    actor = Actor(begun.model if rank is None else adapted(begun.model, rank, seed), begun.tokenizer)
    settings = replace(settings, turns=begun.told["turns"], reply=begun.told["reply"])
    before = evaluate(actor, begun.worlds, settings)
    _tell(f"at the start: {before['success']:.0%} of {held_out} held-out episodes")
    lines = []
    for line in train(actor, begun.worlds, settings, out, begun.told):
        lines.append(line)
        _tell(_line(line))
    if rank is None:
        save_start(actor.model, begun.tokenizer, out / "model", begun.told)  # so it can be begun from
    else:
        actor.model.save_pretrained(out / "model")
    summary = {"start": before, "settings": asdict(settings), "began_from": begun.told, "updates": lines}
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


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
