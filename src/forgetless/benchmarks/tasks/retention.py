"""`forgetless bench retention`: what policies keep of what is needed later, in dialogues and in agent runs.

No model is called: both tasks look for bytes in contexts, so a run takes minutes and its figures are exact
but for the sample. Beside the policies stand `full`, without a budget, and `oracle`, which knows what will
be needed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from json import dumps
from pathlib import Path
from typing import Annotated, Any, TypeVar

from cyclopts import Parameter

from forgetless.benchmarks.hindsight import ORACLE
from forgetless.benchmarks.results import Run, open_run
from forgetless.benchmarks.subjects import subject
from forgetless.benchmarks.tasks import dialogue_recall, identifier_availability
from forgetless.datasets.locomo import load_locomo
from forgetless.datasets.trajectories import load_trajectories
from forgetless.errors import ConfigError, MissingExtra
from forgetless.tokens import Counter, for_model

__all__ = ["POLICIES", "retention"]

BENCHMARK = "retention@1"
DIALOGUE = f"dialogue-recall@{dialogue_recall.VERSION}"
AGENTS = f"identifier-availability@{identifier_availability.VERSION}"

POLICIES = ("recent", "fifo", "masking", "bm25")

Item = TypeVar("Item")
Many = Parameter(consume_multiple=True)


def retention(
    *,
    data: Path,
    out: Path = Path("results/retention"),
    seed: int = 0,
    policies: Annotated[tuple[str, ...], Many] = POLICIES,
    dialogue_budgets: Annotated[tuple[int, ...], Many] = dialogue_recall.BUDGETS,
    agent_budgets: Annotated[tuple[int, ...], Many] = identifier_availability.BUDGETS,
    json: bool = False,
) -> None:
    """Measure recall of evidence (LoCoMo) and availability of identifiers (recorded agent runs).

    Args:
        data: folder with `locomo/` and `endless_terminals/`.
        out: the results folder.
        seed: of the bootstrap intervals.
        policies: names of policies; `full` and `oracle` are always there.
        dialogue_budgets: tokens of the whole request.
        agent_budgets: tokens of the whole request.
        json: print the summary to stdout, and the table to stderr.
    """
    budgets = {"dialogue": tuple(sorted(set(dialogue_budgets))), "agents": tuple(sorted(set(agent_budgets)))}
    if min((*budgets["dialogue"], *budgets["agents"], 1)) < 1:
        raise ConfigError(f"budgets must be above 0 tokens, not {budgets!r}")
    names = tuple(name for name in dict.fromkeys(policies) if name not in ("full", ORACLE))
    counter = _counter()
    for name in names:
        subject(name, counter)
    conversations = load_locomo(data / "locomo")
    recordings = load_trajectories(data / "endless_terminals")
    config = {"seed": seed, "policies": names, "budgets": budgets, "tasks": [DIALOGUE, AGENTS]}
    with open_run(out, BENCHMARK, data=["LoCoMo", "Endless Terminals, recorded runs"], **config) as run:
        subjects = (*names, ORACLE)
        talks: list[dialogue_recall.Cell] = []
        for conversation in _progress(conversations, "dialogue"):
            talks += dialogue_recall.measure(conversation, subjects, budgets["dialogue"], counter)
        runs: list[identifier_availability.Cell] = []
        for recording in _progress(recordings, "agents"):
            runs += identifier_availability.measure(recording, subjects, budgets["agents"], counter)
        summary = {"dialogue": _dialogue(run, talks, seed), "agents": _agents(run, runs, seed)}
        run.finish(summary)
    _plot(summary, out / "retention.png")
    _tables(summary, stderr=json)
    if json:
        print(dumps(summary, indent=2))


def _counter() -> Counter:
    """The built-in counter, which here meets every text many times."""
    return Counter(lru_cache(maxsize=100_000)(for_model().text))


def _progress(items: Sequence[Item], what: str) -> Iterable[Item]:
    from rich.console import Console
    from rich.progress import track

    return track(items, what, console=Console(stderr=True), transient=True)


def _dialogue(run: Run, cells: Sequence[dialogue_recall.Cell], seed: int) -> dict[str, Any]:
    for cell in cells:
        run.record(**cell.record())
    whole = [cell for cell in cells if cell.budget is None]
    return {
        "task": DIALOGUE,
        "conversations": len(whole),
        "questions": sum(len(cell.recalls) for cell in whole),
        "adversarial_questions": sum(len(cell.adversarial) for cell in whole),
        "rows": dialogue_recall.summarise(cells, seed),
    }


def _agents(run: Run, cells: Sequence[identifier_availability.Cell], seed: int) -> dict[str, Any]:
    for record in identifier_availability.records(cells):
        run.record(**record)
    whole = [cell for cell in cells if cell.budget is None]
    return {
        "task": AGENTS,
        "tasks": len({cell.task for cell in whole}),
        "runs": len(whole),
        "actions": sum(len(cell.shares) for cell in whole),
        "floor_tokens": _spread([tokens for cell in whole for tokens in cell.floors]),
        "history_tokens": _spread([tokens for cell in whole for tokens in cell.tokens]),
        "rows": identifier_availability.summarise(cells, seed),
    }


def _spread(values: Sequence[int]) -> dict[str, int]:
    """Nearest-rank quantiles."""
    ordered = sorted(values)
    shares = {"median": 0.5, "p90": 0.9, "max": 1.0}
    return {name: ordered[round(share * (len(ordered) - 1))] for name, share in shares.items()} if ordered else {}


def _plot(summary: Mapping[str, Any], path: Path) -> None:
    from forgetless.benchmarks.plots import retention_plot

    try:
        retention_plot(summary, path)
    except MissingExtra as missing:
        print(f"no plot: {missing}", file=sys.stderr)


def _tables(summary: Mapping[str, Any], *, stderr: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    stream = sys.stderr if stderr else sys.stdout
    console = Console(file=stream, width=None if stream.isatty() else 140)
    for part, figures in (
        ("dialogue", ("recall", "adversarial_recall")),
        ("agents", ("availability", "all", "pressed_availability")),
    ):
        table = Table("policy", "budget", *(figure.replace("_", " ") for figure in figures), "tokens", "failed")
        for row in summary[part]["rows"]:
            budget = "none" if row["budget"] is None else f"{row['budget']:,}"
            cells = [_figure(row, figure) for figure in figures]
            table.add_row(row["policy"], budget, *cells, f"{row['tokens'] or 0:,.0f}", f"{row['failed']:.1%}")
        table.title = summary[part]["task"]
        console.print(table)


def _figure(row: Mapping[str, Any], name: str) -> str:
    if row[name] is None:
        return "-"
    return f"{row[name]:.3f} [{row[f'{name}_low']:.3f}, {row[f'{name}_high']:.3f}]"
