"""`forgetless bench training`: what the parts of CCM's objective do, from one start and under one budget.

GRPO with distillation, GRPO alone, and distillation alone (CCM, section 4.1 and appendix D.1), each with several seeds.
Every run is a folder of its own under `runs`, from which a broken one goes on.
"""

from __future__ import annotations

import json as json_
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Annotated, Any

from cyclopts import Parameter

from forgetless.benchmarks.plots import draw
from forgetless.benchmarks.results import open_run
from forgetless.benchmarks.training_plots import arms_plot
from forgetless.errors import ConfigError
from forgetless.models.local.backbone import use_threads

__all__ = ["ARMS", "BENCHMARK", "training"]

BENCHMARK = "training@1"

ARMS: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {"both": {}, "grpo": {"distill": 0.0}, "distill": {"grpo": 0.0, "kl": 0.0}}
)
"""What differs from the objective's own weights."""

Many = Parameter(consume_multiple=True)


def training(
    *,
    start: Path,
    out: Path = Path("results/training"),
    arms: Annotated[tuple[str, ...], Many] = tuple(ARMS),
    seeds: int = 3,
    updates: int = 60,
    groups: int = 4,
    episodes: int = 8,
    rate: float = 3e-4,
    held_out: int = 100,
    threads: int = 1,
    json: bool = False,
) -> None:
    """Train an agent to rewrite its memory in several ways, from one start, and compare.

    Args:
        start: folder that `train ccm-start` made.
        out: results folder.
        arms: `both`, `grpo`, `distill`.
        seeds: runs of each.
        updates: steps of the optimiser in a run.
        groups: beginnings of episodes in a batch.
        episodes: played from each.
        rate: of learning.
        held_out: episodes that are measured and not trained on.
        threads: that compute.
        json: print the summary to stdout.
    """
    if not arms:
        raise ConfigError(f"give at least one arm: {', '.join(ARMS)}")
    if unknown := [arm for arm in arms if arm not in ARMS]:
        raise ConfigError(f"there is no arm {unknown[0]!r}: it is one of {', '.join(ARMS)}")
    if seeds < 1:
        raise ConfigError(f"seeds must be at least 1, not {seeds!r}")
    use_threads(threads)
    from forgetless.training.ccm import Settings
    from forgetless.training.starts import load_start

    begun = load_start(start)
    sizes = {"updates": updates, "groups": groups, "episodes": episodes, "rate": rate, "held_out": held_out}
    Settings(**sizes)  # type: ignore[arg-type]  # refuses what can't be, before anything is written
    config = {"began_from": begun.told, "arms": list(arms), "seeds": seeds, **sizes}
    runs: list[dict[str, Any]] = []
    with open_run(out, BENCHMARK, **config) as run:
        for arm in arms:
            for seed in range(seeds):
                lines = _one(start, out / "runs" / f"{arm}-{seed}", arm, seed, sizes)
                for line in lines:
                    run.record(arm=arm, seed=seed, **line)
                runs.append({"arm": arm, "seed": seed, "lines": lines})
        summary = {"benchmark": BENCHMARK, "rows": [_row(one, updates) for one in runs], "arms": _means(runs, updates)}
        run.finish(summary)
    draw(partial(arms_plot, runs), summary, out / "training.png")
    print(json_.dumps(summary, indent=2) if json else _table(summary))


def _one(start: Path, out: Path, arm: str, seed: int, sizes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The figures of a run: first, as update 0, those of the start itself."""
    from forgetless.training.actor import Actor
    from forgetless.training.ccm import Settings, evaluate, train
    from forgetless.training.grpo import Terms
    from forgetless.training.starts import load_start

    begun = load_start(start)
    actor = Actor(begun.model, begun.tokenizer)
    long = {"turns": begun.told["turns"], "reply": begun.told["reply"]}
    settings = Settings(terms=Terms(**ARMS[arm]), seed=seed, **long, **sizes)
    told = {
        f"{kind}_{key}": value
        for kind, temperature in (("held_out", 0.0), ("sampled", settings.temperature))
        for key, value in evaluate(actor, begun.worlds, settings, temperature).items()
    }
    lines: list[dict[str, Any]] = [{"update": 0, **told, "seconds": 0.0}]
    for line in train(actor, begun.worlds, settings, out, begun.told):
        lines.append(line)
        held = f", held out {line['held_out_success']:.0%}" if "held_out_success" in line else ""
        print(f"{arm}, seed {seed}, update {line['update']}: {line['success']:.0%}{held}", file=sys.stderr, flush=True)
    return lines


def _row(run: Mapping[str, Any], updates: int) -> dict[str, Any]:
    first, *rest = run["lines"]
    last = rest[-1]
    return {
        "arm": run["arm"],
        "seed": run["seed"],
        "start": first["held_out_success"],
        "success": last["held_out_success"],
        "start_sampled": first["sampled_success"],
        "sampled": last["sampled_success"],
        "memory_changed": last["held_out_wrote"],
        "updates": updates,
        "updates_to_80": next((row["update"] for row in rest if row.get("held_out_success", 0.0) >= 0.8), None),
        "minutes": round(sum(row["seconds"] for row in rest) / 60, 2),
    }


def _means(runs: Sequence[Mapping[str, Any]], updates: int) -> dict[str, dict[str, float]]:
    """Means over the seeds of each arm."""
    rows = [_row(run, updates) for run in runs]
    keys = ("start", "success", "start_sampled", "sampled", "memory_changed", "minutes")
    return {
        arm: {key: round(fmean(row[key] for row in rows if row["arm"] == arm), 4) for key in keys}
        for arm in dict.fromkeys(row["arm"] for row in rows)
    }


def _table(summary: Mapping[str, Any]) -> str:
    lines = ["arm      seed  start  success  sampled before  after  updates to 80 %  minutes"]
    lines += [
        f"{row['arm']:8} {row['seed']:4}  {row['start']:5.2f}  {row['success']:7.2f}  {row['start_sampled']:14.2f}  "
        f"{row['sampled']:5.2f}  {row['updates_to_80'] or '-':>15}  {row['minutes']:7.1f}"
        for row in summary["rows"]
    ]
    return "\n".join(lines)
