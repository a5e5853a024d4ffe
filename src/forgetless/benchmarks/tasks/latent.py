"""`forgetless bench latent`: what latent memory costs and keeps, turn by turn, beside text and the whole history.

Dialogues with whole replies, those that training holds out. Before each reply a model is shown what a form makes of the
dialogue so far: how long the prompt is, how long it takes to make and to read, how much memory that takes, and how
surprising the reply of the file is after it. No reply of the model's own is needed, so that it may be a small one.
Times are those of one thread's processor, which other work on the machine does not lengthen.
"""

from __future__ import annotations

import ctypes
import gc
import json as json_
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import process_time
from typing import Annotated, Any

from cyclopts import Parameter

from forgetless.benchmarks.adapters import adapters_of
from forgetless.benchmarks.forms import LATENT_FORMS, Form, Messages, Scene, form
from forgetless.benchmarks.metrics import estimate, mean
from forgetless.benchmarks.peak import Peak, peak_mib
from forgetless.benchmarks.plots import draw, turns_plot
from forgetless.benchmarks.results import Run, resume_run
from forgetless.datasets.dialogues import Dialogue, read_dialogues
from forgetless.errors import ConfigError
from forgetless.models.latent import Latent
from forgetless.models.load import load_latent
from forgetless.policies.rea.latent import memories_of

__all__ = ["BENCHMARK", "latent", "play", "summarise"]

BENCHMARK = "latent@1"

POLICIES = ("vanilla", "rea", "em", *LATENT_FORMS, "abandon")

COSTS = ("prompt_tokens", "prompt_ms", "first_token_ms", "added_mib")

Many = Parameter(consume_multiple=True)


def latent(
    *,
    data: Path,
    adapters: Path | None = None,
    policy: Annotated[tuple[str, ...], Many] = POLICIES,
    dialogues: int = 8,
    turns: int = 5,
    out: Path = Path("results/latent-turns"),
    seed: int = 0,
    json: bool = False,
) -> None:
    """Measure prompts of latent memory, of text and of the whole history, turn by turn.

    A broken run goes on where it stopped, and policies can be added with another command.

    Args:
        data: a folder of dialogues, as `train rea-latent` takes it; those are measured that it holds out.
        adapters: the folder that it made; by default the adapters that ship.
        policy: forms as in `bench adherence`: vanilla, rea, em (all replies compressed, by sentences), in vectors
            `rea, latent` and `em, latent`, and abandon (no replies), which memory has to beat.
        dialogues: most dialogues; 0 for all.
        turns: that are measured; dialogues with fewer are left out, so that each turn has the same ones.
        out: the results folder.
        seed: of the intervals.
        json: print the summary to stdout, and the table to stderr.
    """
    if dialogues < 0 or turns < 2:
        raise ConfigError(f"dialogues must be at least 0 and turns at least 2, not {dialogues!r} and {turns!r}")
    held = [one for one in read_dialogues(data) if one.held_out and len(one.turns) >= turns]
    if not held:
        raise ConfigError(
            f"{str(data)!r} holds no dialogue of {turns} turns that training holds out: give more of them"
        )
    chosen = sorted(held, key=lambda one: one.group)[: dialogues or None]  # a hash: of all sets, in no order of theirs
    model = load_latent(str(adapters or ""))
    _one_thread()
    forms = {name: _form(name, model) for name in policy}
    config = {
        "data": data.name,
        "model": model.name,
        **adapters_of(model),
        "slots": model.slots,
        "seed": seed,
        "turns": turns,
        "dialogues": [one.group for one in chosen],
        "licences": sorted({one.licence for one in chosen}),
    }
    try:
        with resume_run(out, BENCHMARK, **config) as run:
            records = [*run.before, *_play_all(run, chosen, forms, model, turns)]
            summary = {"model": model.name, "slots": model.slots, **summarise(records, seed)}
            run.finish(summary)
    finally:
        model.close()
    draw(turns_plot, summary, out / "turns.png")
    _print(summary, stderr=json)
    if json:
        print(json_.dumps(summary, indent=2, ensure_ascii=False))


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def _form(name: str, model: Latent) -> Form:
    """A form that has no memories in common with others, which would look the faster for them."""
    memories_of.cache_clear()
    return form(name, Scene(model, (), 1))


def _play_all(
    run: Run, dialogues: Sequence[Dialogue], forms: Mapping[str, Form], model: Latent, turns: int
) -> Iterator[dict[str, Any]]:
    known = {(record["policy"], record["dialogue"], record["turn"]) for record in run.before}
    for number, dialogue in enumerate(dialogues, 1):
        for name, shown in forms.items():
            done = {turn for policy, group, turn in known if (policy, group) == (name, dialogue.group)}
            for turn in play(dialogue, shown, model, turns, done):
                record = {"policy": name, "dialogue": dialogue.group, **turn}
                run.record(**record)
                yield record
        print(f"{number} of {len(dialogues)} dialogues, {len(dialogue.turns)} turns", file=sys.stderr, flush=True)


def play(
    dialogue: Dialogue, shown: Form, model: Latent, turns: int, done: frozenset[int] | set[int] = frozenset()
) -> Iterator[dict[str, Any]]:
    """What a form makes of each turn that has one before it.

    Args:
        dialogue: with its replies.
        shown: makes prompts of it.
        model: reads them.
        turns: most turns.
        done: turns that are known. They are shown all the same, so that a later one finds replies compressed.
    """
    messages: Messages = []
    for turn, (user, reply) in enumerate(dialogue.turns[:turns], 1):
        messages.append({"role": "user", "content": user})
        if turn > 1:
            _trim()
            with peak_mib() as before:
                pass
            started = process_time()
            with peak_mib() as peak:
                prompt = shown(list(messages))
                shaped = process_time()
                if turn not in done:
                    usage = model({"messages": prompt, "max_tokens": 1, "temperature": 0}).get("usage") or {}
                    first = process_time()
            if turn not in done:
                nats, tokens = model.loss(prompt, reply)
                yield {
                    "turn": turn,
                    "prompt_tokens": usage.get("prompt_tokens"),
                    "prompt_ms": round((shaped - started) * 1e3, 1),
                    "first_token_ms": round((first - shaped) * 1e3, 1),
                    "peak_mib": peak.mib,
                    "added_mib": _added(before, peak),
                    "nats": round(nats, 3),
                    "tokens": tokens,
                }
        messages.append({"role": "assistant", "content": reply})


def _added(before: Peak, after: Peak) -> float | None:
    """What making and reading a prompt took above what the process had; what it had hangs on what it did before."""
    return None if before.mib is None or after.mib is None else round(after.mib - before.mib, 1)


def _trim() -> None:
    """Give memory that is free back to the system, so that one form's peak is not the next one's."""
    gc.collect()
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)  # glibc


def summarise(records: Sequence[Mapping[str, Any]], seed: int) -> dict[str, Any]:
    """A row for each policy: nats a token of the file's replies, with an interval over dialogues, and costs by turn."""
    rows = []
    for name in dict.fromkeys(record["policy"] for record in records):
        own = [record for record in records if record["policy"] == name]
        by: dict[str, list[float]] = {}
        for record in own:
            by.setdefault(record["dialogue"], []).append(record["nats"] / record["tokens"])
        turns = [[record for record in own if record["turn"] == turn] for turn in sorted({r["turn"] for r in own})]
        rows.append(
            {
                "policy": name,
                **estimate("nats", by, seed),
                "replies": len(own),
                **{cost: _mean(own, cost) for cost in COSTS},
                "by_turn": {
                    "turn": [found[0]["turn"] for found in turns],
                    "nats": [mean([record["nats"] / record["tokens"] for record in found]) for found in turns],
                    **{cost: [_mean(found, cost) for found in turns] for cost in COSTS},
                },
            }
        )
    return {"rows": rows}


def _mean(records: Sequence[Mapping[str, Any]], key: str) -> float | None:
    return mean([record[key] for record in records if record[key] is not None])


def _print(summary: Mapping[str, Any], *, stderr: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    stream = sys.stderr if stderr else sys.stdout
    grid = Table("policy", "nats a token", "95 %", "prompt tokens", "last turn", "ms to make", "ms to read", "MiB more")
    grid.title = f"{summary['model']}, {summary['slots']} vectors a reply"
    for row in summary["rows"]:
        grid.add_row(
            row["policy"],
            f"{row['nats']:.3f}",
            f"{row['nats_low']:.3f} - {row['nats_high']:.3f}",
            *(_shown(value) for value in (row["prompt_tokens"], row["by_turn"]["prompt_tokens"][-1])),
            *(_shown(row[cost]) for cost in COSTS[1:]),
        )
    Console(file=stream, width=None if stream.isatty() else 120).print(grid)


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"
