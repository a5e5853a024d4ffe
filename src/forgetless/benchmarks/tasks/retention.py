"""`forgetless bench retention`: what policies keep of what is needed later, in dialogues and in agent runs.

No model is called: both tasks look for bytes in contexts, so a run takes minutes and its figures are exact
but for the sample. Beside the policies stand `full`, without a budget, and `oracle`, which knows what will
be needed. Policies that learn have the weights that ship, or are fitted to logs (`train_on`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from json import dumps
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from cyclopts import Parameter

from forgetless.benchmarks.hindsight import ORACLE
from forgetless.benchmarks.plots import draw, retention_plot
from forgetless.benchmarks.results import Run, open_run
from forgetless.benchmarks.subjects import Subject, named, once
from forgetless.benchmarks.tasks import dialogue_recall, identifier_availability
from forgetless.benchmarks.tasks.identifier_availability import DENSITY, compare, density, measure_steps
from forgetless.benchmarks.trained import FITTED, trained
from forgetless.datasets.locomo import Conversation, load_locomo
from forgetless.datasets.logs import read_logs
from forgetless.datasets.trajectories import Recording, load_trajectories
from forgetless.errors import ConfigError
from forgetless.policies.select import Select
from forgetless.registry import load_policy
from forgetless.tokens import Counter, for_model

__all__ = ["POLICIES", "retention"]

BENCHMARK = "retention@2"
DIALOGUE = f"dialogue-recall@{dialogue_recall.VERSION}"
AGENTS = f"identifier-availability@{identifier_availability.VERSION}"

POLICIES = ("recent", "fifo", "masking", "bm25", "lre", "relevance")
ABLATIONS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "rea, preserve": ("rea", {"replies": "preserve"}),
    "rea, abandon": ("rea", {"replies": "abandon"}),
    "rea, latent": ("rea", {"compress": "latent"}),
}
"""What may be measured beside policies by name: REA with all replies, with none (its Table 5), with latent memory."""

RULES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "locomo": {"lre": ("gold", "best"), "relevance": ("gold", "best")},
    "endless_terminals": {"lre": ("next",)},
}
"""Labels that policies are fitted to, by data set."""

TITLES = {"locomo": "LoCoMo", "endless_terminals": "Endless Terminals, recorded runs"}

Item = TypeVar("Item")
Many = Parameter(consume_multiple=True)
Dataset = Literal["locomo", "trajectories", "all"]


def retention(
    *,
    data: Path,
    dataset: Dataset = "all",
    train_on: Path | None = None,
    out: Path = Path("results/retention"),
    seed: int = 0,
    policies: Annotated[tuple[str, ...], Many] = POLICIES,
    dialogue_budgets: Annotated[tuple[int, ...], Many] = dialogue_recall.BUDGETS,
    agent_budgets: Annotated[tuple[int, ...], Many] = identifier_availability.BUDGETS,
    json: bool = False,
) -> None:
    """Measure recall of evidence (LoCoMo) and availability of identifiers (recorded agent runs).

    Args:
        data: folder with `locomo/` and `endless_terminals/`, or the one data set that is measured.
        dataset: what to measure.
        train_on: a file or folder like `data`: `lre` and `relevance` are measured also with weights fitted to it, less
            the conversation or task that is measured.
        out: the results folder.
        seed: of fits and of the bootstrap intervals.
        policies: names of policies, `rea, preserve`, `rea, abandon`, or `rea, latent` (`rea, latent#FOLDER` with
            adapters of your own); `full` and `oracle` are always there.
        dialogue_budgets: tokens of the whole request.
        agent_budgets: tokens of the whole request.
        json: print the summary to stdout, and the table to stderr.
    """
    budgets = {"dialogue": tuple(sorted(set(dialogue_budgets))), "agents": tuple(sorted(set(agent_budgets)))}
    if min((*budgets["dialogue"], *budgets["agents"], 1)) < 1:
        raise ConfigError(f"budgets must be above 0 tokens, not {budgets!r}")
    counter = _counter()
    names = [name for name in dict.fromkeys(policies) if name not in ("full", ORACLE)]
    shipped = [_ablation(name, counter) if _kind(name) in ABLATIONS else named(name, counter) for name in names]
    names = list(map(_kind, names))
    talks = load_locomo(_folder(data, "locomo")) if dataset != "trajectories" else []
    runs = load_trajectories(_folder(data, "endless_terminals")) if dataset != "locomo" else []
    subjects = {
        kind: [*shipped, *_fitted(names, kind, train_on, seed)]
        for kind, found in (("locomo", talks), ("endless_terminals", runs))
        if found
    }
    config = {
        "seed": seed,
        "policies": names,
        "budgets": budgets,
        "tasks": [DIALOGUE, AGENTS],
        "train_on": [*subjects] if train_on else [],
    }
    summary: dict[str, Any] = {}
    with open_run(out, BENCHMARK, data=[TITLES[kind] for kind in subjects], **config) as run:
        if talks:
            summary["dialogue"] = _dialogue(
                run, talks, subjects["locomo"], budgets["dialogue"], counter=counter, seed=seed
            )
        if runs:
            summary["agents"] = _agents(
                run, runs, subjects["endless_terminals"], budgets["agents"], counter=counter, seed=seed
            )
        run.finish(summary)
    draw(retention_plot, summary, out / "retention.png")
    _tables(summary, stderr=json)
    if json:
        print(dumps(summary, indent=2))


def _folder(data: Path, name: str) -> Path:
    return data / name if (data / name).exists() else data


def _fitted(names: Sequence[str], kind: str, train_on: Path | None, seed: int) -> list[Subject]:
    if train_on is None or not any(name in FITTED for name in names):
        return []
    path = _folder(train_on, kind)
    logs = list(read_logs([path]))
    return [trained(name, rule, logs, path.name, seed) for name in names for rule in RULES[kind].get(name, ())]


def _kind(name: str) -> str:
    """A policy's name without the folder of its adapters, which no results name."""
    return name.partition("#")[0]


def _ablation(name: str, counter: Counter) -> Subject:
    kind, _, adapters = name.partition("#")
    policy, options = ABLATIONS[kind]
    if adapters:
        options = {"compress": f"{options['compress']}#{adapters}"}
    made = load_policy(policy, counter=counter, **options)
    return Subject(kind, "", lambda _: made)


def _counter() -> Counter:
    """The built-in counter, which here meets every text many times."""
    return Counter(lru_cache(maxsize=100_000)(for_model().text))


def _progress(items: Sequence[Item], what: str) -> Iterable[Item]:
    from rich.console import Console
    from rich.progress import track

    return track(items, what, console=Console(stderr=True), transient=True)


def _dialogue(
    run: Run,
    talks: Sequence[Conversation],
    subjects: Sequence[Subject],
    budgets: Sequence[int],
    *,
    counter: Counter,
    seed: int,
) -> dict[str, Any]:
    asked: list[dialogue_recall.Cell] = []
    evicted: list[dialogue_recall.Cell] = []
    for talk in _progress(talks, "dialogue"):
        policies = {subject.name: subject.make(talk.name) for subject in subjects}
        asked += dialogue_recall.per_question(talk, {**policies, ORACLE: None}, budgets, counter)
        evicted += dialogue_recall.at_evictions(talk, policies, budgets, counter)
    for cell in (*asked, *evicted):
        run.record(**cell.record())
    whole = [cell for cell in asked if cell.budget is None]
    return {
        "task": DIALOGUE,
        "weights": _weights(subjects),
        "conversations": len(whole),
        "questions": sum(len(cell.recalls) for cell in whole),
        "adversarial_questions": sum(len(cell.adversarial) for cell in whole),
        "rows": dialogue_recall.summarise(asked, seed),
        "at_evictions": dialogue_recall.summarise(evicted, seed),
    }


def _agents(
    run: Run,
    recordings: Sequence[Recording],
    subjects: Sequence[Subject],
    budgets: Sequence[int],
    *,
    counter: Counter,
    seed: int,
) -> dict[str, Any]:
    cells: list[identifier_availability.Cell] = []
    steps: list[identifier_availability.Cell] = []
    dense = once(Select(lambda units, _=None: density(units)))
    for recording in _progress(recordings, "agents"):
        policies = {subject.name: subject.make(recording.task) for subject in subjects}
        cells += identifier_availability.measure(recording, {**policies, ORACLE: None}, budgets, counter)
        steps += measure_steps(recording, {**policies, DENSITY: dense, ORACLE: None}, counter)
    for part, found in (("agents", cells), ("steps", steps)):
        for record in identifier_availability.records(found):
            run.record(**{**record, "part": part})
    whole = [cell for cell in cells if cell.budget is None]
    learnt = [subject.name for subject in subjects if subject.name.partition(",")[0] == "lre"]
    return {
        "task": AGENTS,
        "weights": _weights(subjects),
        "tasks": len({cell.task for cell in whole}),
        "runs": len(whole),
        "actions": sum(len(cell.shares) for cell in whole),
        "floor_tokens": _spread([tokens for cell in whole for tokens in cell.floors]),
        "history_tokens": _spread([tokens for cell in whole for tokens in cell.tokens]),
        "rows": identifier_availability.summarise(cells, seed),
        "steps": identifier_availability.summarise(steps, seed),
        "compared": [row for name in learnt for row in compare(steps, name, seed)],
    }


def _weights(subjects: Sequence[Subject]) -> dict[str, str]:
    return {subject.name: subject.weights for subject in subjects if subject.weights}


def _spread(values: Sequence[int]) -> dict[str, int]:
    """Nearest-rank quantiles."""
    ordered = sorted(values)
    shares = {"median": 0.5, "p90": 0.9, "max": 1.0}
    return {name: ordered[round(share * (len(ordered) - 1))] for name, share in shares.items()} if ordered else {}


def _tables(summary: Mapping[str, Any], *, stderr: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    stream = sys.stderr if stderr else sys.stdout
    console = Console(file=stream, width=None if stream.isatty() else 140)
    for part, rows, schedule, figures in (
        ("dialogue", "rows", "chosen for each question", ("recall", "adversarial_recall")),
        ("dialogue", "at_evictions", "chosen at evictions", ("recall", "adversarial_recall")),
        ("agents", "rows", "chosen for each action", ("availability", "all", "pressed_availability")),
        ("agents", "steps", "budget for the steps alone", ("availability", "all", "pressed_availability")),
    ):
        if part not in summary:
            continue
        heads = (figure.replace("_", " ") for figure in figures)
        table = Table("policy", "weights", "budget", *heads, "tokens", "failed")
        for row in summary[part][rows]:
            budget = "none" if row["budget"] is None else f"{row['budget']:,}"
            cells = [_figure(row, figure) for figure in figures]
            last = (f"{row['tokens'] or 0:,.0f}", f"{row['failed']:.1%}")
            table.add_row(row["policy"], summary[part]["weights"].get(row["policy"]) or "-", budget, *cells, *last)
        table.title = f"{summary[part]['task']}, {schedule}"
        console.print(table)


def _figure(row: Mapping[str, Any], name: str) -> str:
    if row[name] is None:
        return "-"
    return f"{row[name]:.3f} [{row[f'{name}_low']:.3f}, {row[f'{name}_high']:.3f}]"
