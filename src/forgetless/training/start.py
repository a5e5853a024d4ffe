"""What a policy begins from: a model that can copy, then one that imitates an expert whose memory is poor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import torch

from forgetless.training.actor import Tokenizer, padded
from forgetless.training.demonstrations import Demonstration

__all__ = ["copying", "imitate"]

ROWS = 32
"""Demonstrations of a step."""

COPIES = 64
"""Rows of a step of `copying`."""

POOLED = 8
"""Batches that are drawn at once."""

NORM = 1.0
"""Most of a gradient's length."""

WARM = 50
"""Steps in which the rate of `copying` rises."""


def copying(model: Any, size: int, *, steps: int, chance: torch.Generator, rate: float = 3e-3) -> Iterator[float]:
    """Teach a new model to copy: rows of random pieces, and again after a gap; gives the loss of what comes again.

    All that `recall` asks for is copying, which a model of two layers finds in some hundred steps here, and from
    demonstrations alone not within thousands: there most tokens can be told without it.

    Args:
        model: of transformers.
        size: of its vocabulary.
        steps: of the optimiser.
        chance: what is drawn comes from it.
        rate: of learning.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0, betas=(0.9, 0.98))
    for step in range(steps):
        length, gap = (int(torch.randint(low, high, (1,), generator=chance)) for low, high in ((6, 24), (0, 40)))
        row = torch.randint(size, (COPIES, length + gap), generator=chance)
        tokens = torch.cat([row, row[:, :length]], 1)
        logits = model(input_ids=tokens, use_cache=False).logits
        again = length + gap + 1  # the first piece that comes again can't be known
        loss = torch.nn.functional.cross_entropy(logits[:, again - 1 : -1].flatten(0, 1), tokens[:, again:].flatten())
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, (step + 1) / WARM)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), NORM)
        optimizer.step()
        yield float(loss.detach())


def imitate(
    model: Any,
    tokenizer: Tokenizer,
    shown: Iterator[Demonstration],
    *,
    steps: int,
    rows: int = ROWS,
    rate: float = 2e-3,
) -> Iterator[float]:
    """Fit a model to demonstrations, and give each step's loss, in nats for a token of a reply.

    Args:
        model: of transformers.
        tokenizer: its own.
        shown: demonstrations, as many as are needed.
        steps: of the optimiser.
        rows: demonstrations of a step.
        rate: of learning, which falls to a tenth in a cosine.
    """
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(learning, lr=rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps, rate / 10)
    for chosen in islice(_alike(shown, tokenizer, rows), steps):
        prompts, replies = zip(*chosen, strict=True)
        tokens, mask = padded([[*one, *other] for one, other in zip(prompts, replies, strict=True)], tokenizer.end)
        labels = torch.where(mask > 0, tokens, torch.full_like(tokens, -100))
        for at, prompt in enumerate(prompts):
            labels[at, : len(prompt)] = -100
        loss = model(input_ids=tokens, attention_mask=mask, labels=labels, use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learning, NORM)
        optimizer.step()
        schedule.step()
        yield float(loss.detach())


def _alike(
    shown: Iterator[Demonstration], tokenizer: Tokenizer, rows: int
) -> Iterator[Sequence[tuple[list[int], list[int]]]]:
    """Prompts and replies in batches of like lengths, so that little of a batch is padding."""
    while True:
        read = [
            (tokenizer.encode(one.prompt), [*tokenizer.encode(one.reply), tokenizer.end])
            for one in islice(shown, rows * POOLED)
        ]
        read.sort(key=lambda row: len(row[0]) + len(row[1]))
        # By strides, since neither short nor long batches should come in a row.
        yield from (read[at * rows : (at + 1) * rows] for at in range(0, POOLED, 2))
        yield from (read[at * rows : (at + 1) * rows] for at in range(1, POOLED, 2))
