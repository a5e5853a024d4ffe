"""Training the latent memory (REA, Figure 3; notes A3, A4), read top to bottom.

Stage 1: texts are repeated from their memory, and gone on with; short ones first, then longer ones. Stage 2: answers of
the uncompressed model, in dialogues whose past replies are compressed. The backbone stays as it is; both adapters and
what makes the memory learn together, the gradient going from the generator's input into the compressor.

A run is a folder: config.json, metrics.jsonl (a line a step), checkpoint.pt, and the adapters at the end. It goes on
from its checkpoint and gives the same numbers then. What is drawn hangs on the seed and the step alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from math import cos, pi
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

import torch

from forgetless.errors import ConfigError, MissingExtra
from forgetless.models.local.network import Lora, Network, Sample, Shape
from forgetless.training.checkpoints import fingerprint, folder_for, keep, resume

__all__ = ["PAPER", "SMALL", "Settings", "Source", "processes", "train"]

Source = Callable[[Random, int], Sequence[Sample]]
"""Samples of a draw, on texts of up to so many tokens."""

NORM = 1.0
"""Most of a gradient's length."""

WARM = 0.05
"""Share of the steps in which the rate rises."""


@dataclass(frozen=True, slots=True)
class Settings:
    """A run.

    Attributes:
        shape: of the memory and its adapters.
        spans: steps of stage 1, and most tokens of their texts; several take turns.
        answers: steps of stage 2.
        span: most tokens of a reply in stage 2.
        draws: of a step.
        parts: a step's samples are cut into so many, of like length: padding costs more than calls.
        rate: of learning (AdamW), which rises first and then falls to a tenth in a cosine.
        decay: of weights.
        keep: steps between checkpoints.
        seed: of weights and of all that is drawn.
    """

    shape: Shape = field(default_factory=Shape)
    spans: tuple[tuple[int, tuple[int, ...]], ...] = ((40, (32,)), (500, (64,)), (100, (64, 128, 64, 256)))
    answers: int = 60
    span: int = 64
    draws: int = 4
    parts: int = 2
    rate: float = 1e-3
    decay: float = 0.01
    keep: int = 20
    seed: int = 0

    @property
    def steps(self) -> int:
        """Of both stages."""
        return sum(steps for steps, _ in self.spans) + self.answers

    def lengths(self, step: int) -> tuple[int, ...]:
        """Most tokens of the texts in a step of stage 1; none in stage 2."""
        for steps, lengths in self.spans:
            if step < steps:
                return lengths
            step -= steps
        return ()

    def rate_at(self, step: int) -> float:
        """The rate of learning in a step."""
        warm = max(1, int(WARM * self.steps))
        if step < warm:
            return self.rate * (step + 1) / warm
        return self.rate * (0.55 + 0.45 * cos(pi * (step - warm) / max(1, self.steps - warm)))


SMALL = Shape(
    compress=Lora(8, 16, 0.0, ("q_proj", "v_proj", "o_proj")),
    generate=Lora(8, 16, 0.0, "all-linear"),
)
"""For SmolLM2: 7 MB in all, and no dropout, since few samples are seen twice."""

PAPER = Settings(
    shape=Shape(start="plain"),
    spans=((500, (64,)), (2_000, (128, 256, 512))),
    answers=2_000,
    span=512,
    draws=64,
    parts=16,
    rate=1e-4,
    decay=0.1,
)
"""REA's settings (notes A1 to A3), for Mistral-7B-Instruct-v0.2 and the like: a step has 128 samples."""


def train(
    network: Network,
    sources: tuple[Source, Source],
    settings: Settings,
    out: Path,
    *,
    accelerator: Any = None,
    learns_from: str = "",
) -> Iterator[dict[str, Any]]:
    """Train, and give the figures of each step; first those of earlier steps where a broken run goes on.

    Args:
        network: with the weights to begin from.
        sources: what draws samples of stage 1 and of stage 2.
        settings: of the run.
        out: its folder. A run that is there with other settings, from other weights or on other data, is replaced.
        accelerator: of accelerate, for several devices: each takes its share of a step's draws.
        learns_from: tells the data from others.

    Raises:
        ConfigError: the folder can't be written to, or the run in it is damaged; or the processes can't share the
            draws of a step evenly.
    """
    run = _Run(network, sources, settings, folder_for(out), accelerator)
    begun = run.resume(learns_from)
    yield from begun
    with (out / "metrics.jsonl").open("a", encoding="utf-8") as log:
        for step in range(len(begun), settings.steps):
            started = perf_counter()
            figures = {"step": step + 1, **run.step(step), "seconds": round(perf_counter() - started, 3)}
            if run.first:
                log.write(json.dumps(figures) + "\n")
                log.flush()
                if step + 1 == settings.steps or (step + 1) % settings.keep == 0:
                    run.keep(step + 1)
            yield figures


@contextmanager
def processes() -> Iterator[Any]:
    """This process's `Accelerator` among those that `accelerate launch` started; it leaves them at the end.

    One that ends without leaving them may abort: threads of theirs still hold tensors while Python goes away.
    """
    try:
        from accelerate import Accelerator  # type: ignore[import-untyped,unused-ignore]
    except ModuleNotFoundError as error:
        raise MissingExtra("local", "accelerate") from error
    accelerator = Accelerator()
    try:
        yield accelerator
    finally:
        accelerator.end_training()


class _Run:
    """What changes from step to step.

    Attributes:
        first: whether this process writes the folder.
    """

    def __init__(
        self, network: Network, sources: tuple[Source, Source], settings: Settings, out: Path, accelerator: Any
    ) -> None:
        self.network = network.train()
        self.texts, self.answers = sources
        self.settings, self.out, self.accelerator = settings, out, accelerator
        self.learning = network.trained()
        self.optimizer = torch.optim.AdamW(self.learning, lr=settings.rate, weight_decay=settings.decay)
        self.first, self.share, self.called = True, (0, 1), network
        if accelerator is not None:
            self.called, self.optimizer = accelerator.prepare(network, self.optimizer)
            self.first, self.share = accelerator.is_main_process, (accelerator.process_index, accelerator.num_processes)
            if settings.draws % accelerator.num_processes:
                raise ConfigError(
                    f"{accelerator.num_processes} processes can't share the {settings.draws} draws of a step evenly: "
                    f"launch a number of them that divides {settings.draws}"
                )

    def step(self, step: int) -> dict[str, float]:
        """Draw samples and take one step."""
        settings = self.settings
        for group in self.optimizer.param_groups:
            group["lr"] = settings.rate_at(step)
        number, processes = self.share
        torch.manual_seed(settings.seed * 1_000_003 + step * processes + number)  # dropout
        draws = self._drawn(step)
        samples = [sample for draw in draws for sample in draw]
        parts = _parts(draws, settings.parts)
        self.optimizer.zero_grad()
        losses = []
        for part in parts:
            loss = self.called(part) * (len(part) / len(samples))
            losses.append(loss.detach())
            loss.backward() if self.accelerator is None else self.accelerator.backward(loss)
        norm = torch.nn.utils.clip_grad_norm_(self.learning, NORM)
        self.optimizer.step()
        told = torch.stack(losses).sum()
        if self.accelerator is not None:
            told = self.accelerator.reduce(told, "mean")
        return {"loss": round(float(told), 4), "norm": round(float(norm), 3), "rate": settings.rate_at(step)}

    def _drawn(self, step: int) -> list[Sequence[Sample]]:
        """This process's share of a step's draws."""
        settings, (number, processes) = self.settings, self.share
        lengths = settings.lengths(step)
        found = []
        for draw in range(number, settings.draws, processes):
            chance = Random(f"{settings.seed} {step} {draw}")
            if lengths:
                found.append(self.texts(chance, lengths[draw % len(lengths)]))
            else:
                found.append(self.answers(chance, settings.span))
        return found

    def resume(self, learns_from: str) -> list[dict[str, Any]]:
        """Go on from the checkpoint of a run like this one: the figures up to there; none where there is none."""
        about = {"weights": fingerprint(self.network), "learns_from": learns_from}
        found = resume(self.out, {**asdict(self.settings), **about}, writes=self.first)
        if found is None:
            return []
        state, lines = found
        with torch.no_grad():
            for parameter, value in zip(self.learning, state["learnt"], strict=True):
                parameter.copy_(value)
        self.optimizer.load_state_dict(state["optimizer"])
        return lines

    def keep(self, steps: int) -> None:
        """Write a checkpoint."""
        learnt = [parameter.detach() for parameter in self.learning]
        keep(self.out, {"learnt": learnt, "optimizer": self.optimizer.state_dict(), "steps": steps})


def _parts(draws: Sequence[Sequence[Sample]], many: int) -> list[Sequence[Sample]]:
    """Samples in parts of like length; those of a draw stay together, so that their text is compressed once.

    As many draws make as many parts, whatever is in them: processes that learn together wait for one another in each.
    """
    found = sorted(draws, key=lambda draw: sum(len(sample.tokens) for sample in draw))
    size = -(-len(found) // many)
    return [[sample for draw in found[at : at + size] for sample in draw] for at in range(0, len(found), size)]
