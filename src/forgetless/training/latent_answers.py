"""Stage 2's targets: what the uncompressed model answers in dialogues whose whole text it sees (sequence distillation).

Answers are kept in the run's folder, a line each, and a broken run asks for those alone that are missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import torch

from forgetless.datasets.dialogues import Dialogue
from forgetless.models.local.chat import render
from forgetless.models.local.network import Network, Sample
from forgetless.training.checkpoints import fingerprint, folder_for, replace_text
from forgetless.training.latent_samples import TARGET, answered, history

__all__ = ["Answers", "ask", "told_apart"]

FILE = "answers.jsonl"

ROWS = 16
"""Answers at once."""


@dataclass(frozen=True, slots=True)
class Answers:
    """Dialogues with the model's own answers.

    Attributes:
        tokenizer: of the model.
        dialogues: that were asked about.
        asked: of each answer, the dialogue, the turn and the answer's tokens.
    """

    tokenizer: Any
    dialogues: Sequence[Dialogue]
    asked: Sequence[tuple[int, int, tuple[int, ...]]]

    def draw(self, chance: Random, span: int) -> tuple[Sample]:
        """A sample of stage 2."""
        number, turn, answer = chance.choice(self.asked)
        messages, replies = history(self.tokenizer, self.dialogues[number], turn, span)
        return (answered(self.tokenizer, messages, replies, answer),)


def ask(
    network: Network, tokenizer: Any, dialogues: Sequence[Dialogue], *, many: int, span: int, out: Path, seed: int = 0
) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Answers of the backbone alone, greedy: those of the folder first, then new ones, which are added to it.

    Args:
        network: whose backbone answers.
        tokenizer: of the backbone.
        dialogues: to draw from.
        many: answers.
        span: most tokens of each past reply.
        out: the run's folder.
        seed: of the draw.
    """
    places = [(at, turn) for at, one in enumerate(dialogues) for turn in range(1, len(one.turns))]
    Random(seed).shuffle(places)
    file = folder_for(out) / FILE
    of = {"of": f"{fingerprint(network.model, skip='lora_')} {told_apart(dialogues)}", "span": span}
    known = _known(file, of)
    for begin in range(0, many, ROWS):
        part = places[begin : min(begin + ROWS, many)]
        held = known[begin : begin + len(part)]
        if [tuple(one[:2]) for one in held] != part:  # the last ones of a broken run, or another run's
            prompts = [history(tokenizer, dialogues[at], turn, span)[0] for at, turn in part]
            answers = _answers(network, tokenizer, prompts)
            held = [[*place, answer] for place, answer in zip(part, answers, strict=True)]
            known[begin:] = held
            replace_text(file, "".join(json.dumps(one) + "\n" for one in (of, *known)))
        yield from ((at, turn, tuple(answer)) for at, turn, answer in held)


def told_apart(dialogues: Sequence[Dialogue]) -> str:
    """What tells dialogues from others."""
    found = sha256()
    for one in dialogues:
        found.update(json.dumps(one.turns).encode())
    return found.hexdigest()[:16]


def _known(file: Path, of: dict[str, Any]) -> list[Any]:
    """The answers that a file holds, if they are of this model on these dialogues."""
    try:
        first, *found = [json.loads(line) for line in file.read_text("utf-8").split("\n")[:-1]]
    except (OSError, ValueError):
        return []
    return found if first == of else []


def _answers(network: Network, tokenizer: Any, prompts: Sequence[Sequence[dict[str, Any]]]) -> list[list[int]]:
    """The tokens of answers, each with the one that ends it if it comes in time."""
    ends = network.ends(tokenizer)
    filler = min(ends)
    rows = [render(tokenizer, prompt, answer=True) for prompt in prompts]
    width = max(map(len, rows))
    device = network.rows.device
    tokens = torch.tensor([[filler] * (width - len(row)) + row for row in rows], device=device)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=device)
    network.use(None)
    with torch.no_grad():
        model = network.model.get_base_model()
        found = model.generate(input_ids=tokens, attention_mask=mask, max_new_tokens=TARGET, do_sample=False)
    said = [row[width:].tolist() for row in found]
    stops = [next((at + 1 for at, token in enumerate(row) if token in ends), len(row)) for row in said]
    return [row[:stop] for row, stop in zip(said, stops, strict=True)]
