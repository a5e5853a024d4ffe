"""What a memory carries: the loss of the next turn and its reply, with the right memory and with others in its place.

Forms of a reply, with the same adapters throughout: its text (`full`), its memory (`right`), the memory of another
dialogue's reply (`other`), the place left empty (`none`), and the reply's whole message left out (`omitted`). What
`right` is better by than `other` can only come from this reply. Where a chat template wants turns to alternate there is
no history without the message, and `omitted` is the same as `none`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import numpy as np
import torch

from forgetless.datasets.dialogues import Dialogue, Exchange
from forgetless.errors import ConfigError, RequestError
from forgetless.models.local.chat import MEMORY, numbers
from forgetless.models.local.network import Network, Sample
from forgetless.training.latent_samples import clipped, exchange

__all__ = ["FORMS", "measure", "summary"]

FORMS = ("full", "right", "other", "none", "omitted")

ROWS = 4
"""Exchanges at once."""

DRAWN = 1_000
"""Samples of the bootstrap, over dialogues."""


def measure(
    network: Network, tokenizer: Any, dialogues: Sequence[Dialogue], span: int, *, most: int, whole: bool, seed: int = 0
) -> Iterator[dict[str, Any]]:
    """A record for each exchange: nats of each form, and the tokens that they are of.

    Args:
        network: with its adapters.
        tokenizer: of its backbone.
        dialogues: to measure on.
        span: most tokens of a reply.
        most: exchanges, drawn evenly.
        whole: replies of up to so many tokens, and more than the memory's slots: shorter ones nobody compresses.
            Otherwise longer replies, of which the first `span` tokens are taken.
        seed: of the draw.
    """
    found = _exchanges(network, tokenizer, dialogues, span, whole)
    Random(seed).shuffle(found)
    found = found[:most]
    if len({group for group, _, _ in found}) < 2:
        raise ConfigError(f"too few held-out dialogues have replies of about {span} tokens: give more data")
    network.eval()
    with torch.no_grad():
        memories = [memory for at in range(0, len(found), ROWS) for memory in _memories(network, found[at : at + ROWS])]
        for at in range(0, len(found), ROWS):
            part = range(at, min(at + ROWS, len(found)))
            samples = {form: [_sample(tokenizer, form, *found[number][1:]) for number in part] for form in FORMS}
            others = [_another(found, number) for number in part]
            nats = {
                form: network.losses(
                    samples[form],
                    [
                        [memories[at]] * sample.tokens.count(MEMORY)
                        for at, sample in zip(others if form == "other" else part, samples[form], strict=True)
                    ],
                )
                for form in FORMS
            }
            for place, number in enumerate(part):
                group, _, reply = found[number]
                tokens, losses = len(nats["full"][place]), {form: float(nats[form][place].sum()) for form in FORMS}
                yield {"group": group, "span": span, "whole": whole, "reply": len(reply), "tokens": tokens, **losses}


def summary(records: Sequence[dict[str, Any]], seed: int = 0) -> dict[str, Any]:
    """Nats a token of each form, and the share of the way from another's memory to the text, with 95 % intervals.

    Args:
        records: of `measure`, on one span.
        seed: of the bootstrap, which draws whole dialogues.
    """
    groups: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault(record["group"], []).append(record)
    sums = np.array([[sum(r[key] for r in rows) for key in ("tokens", *FORMS)] for rows in groups.values()])
    draws = np.random.default_rng(seed).integers(len(sums), size=(DRAWN, len(sums)))
    drawn = [_figures(sums[draw].sum(0)) for draw in draws]
    told: dict[str, Any] = {"exchanges": len(records), "dialogues": len(groups), "tokens": int(sums[:, 0].sum())}
    for name, value in _figures(sums.sum(0)).items():
        low, high = np.nanquantile([one[name] for one in drawn], (0.025, 0.975))
        told[name] = round(value, 4)
        if name not in FORMS:
            told[f"{name}_low"], told[f"{name}_high"] = round(float(low), 4), round(float(high), 4)
    return told


def _figures(sums: Any) -> dict[str, float]:
    full, right, other, none, omitted = (float(value) for value in sums[1:] / sums[0])
    way = (other - right) / (other - full) if other != full else float("nan")
    forms = dict(zip(FORMS, (full, right, other, none, omitted), strict=True))
    return {**forms, "below_other": other - right, "below_none": min(none, omitted) - right, "way": way}


def _exchanges(
    network: Network, tokenizer: Any, dialogues: Sequence[Dialogue], span: int, whole: bool
) -> list[tuple[str, Exchange, tuple[int, ...]]]:
    found = []
    for dialogue in dialogues:
        for one in dialogue.exchanges():
            reply = tuple(numbers(tokenizer, one.reply))
            if (network.shape.slots < len(reply) <= span) if whole else len(reply) > span:
                found.append((dialogue.group, one, clipped(tokenizer, reply[:span])))
    return found


def _memories(network: Network, part: Sequence[tuple[str, Exchange, tuple[int, ...]]]) -> list[Any]:
    return list(network.compress([reply for _, _, reply in part]))


def _sample(tokenizer: Any, form: str, found: Exchange, reply: tuple[int, ...]) -> Sample:
    if form in ("right", "other"):
        return exchange(tokenizer, found, reply)
    content = {"full": tokenizer.decode(reply), "none": ""}.get(form)
    try:
        return exchange(tokenizer, found, reply, content=content)
    except RequestError:  # templates that want turns to alternate take no history without the reply's message
        if content is not None:
            raise
        return exchange(tokenizer, found, reply, content="")


def _another(found: Sequence[Any], number: int) -> int:
    """The next exchange of another dialogue."""
    places = ((number + step) % len(found) for step in range(1, len(found)))
    return next(place for place in places if found[place][0] != found[number][0])
