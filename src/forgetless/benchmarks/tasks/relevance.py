"""`forgetless bench relevance`: how well scorers rank the units of a history by whether they are needed later.

The measure is LRE's: the AUC of each conversation (or task), and the mean over them. What is fitted is fitted to
other conversations than it is measured on: each is left out in turn, or `train_on` names other data altogether.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from forgetless.benchmarks.metrics import mean_by_group
from forgetless.benchmarks.results import open_run
from forgetless.datasets.logs import Log, read_logs
from forgetless.errors import ConfigError
from forgetless.policies.decay import Decay
from forgetless.policies.lre.scorer import scorer as load_scorer
from forgetless.training.labels import Case, cases
from forgetless.training.lre import AGENT, CONVERSATION, Table, by_group, folds, regression, table
from forgetless.training.tfidf import Part, fit_tfidf, salience

__all__ = ["BENCHMARK", "Row", "measure", "relevance"]

BENCHMARK = "relevance@1"

Floats = NDArray[np.float64]
Dataset = Literal["locomo", "longmemeval", "trajectories"]
Scores = Callable[[Table, int], Floats]
"""A fitted scorer: a table and the place of a case in it -> a score for each of its units."""
Fit = Callable[[Mapping[str, Table], Sequence[str]], Scores]
"""Tables of cases by rule, and the groups to fit to -> a fitted scorer."""

PAPER = "paper, words and trajectory"
OURS = "ours"


@dataclass(frozen=True, slots=True)
class Row:
    """A scorer's AUC.

    Attributes:
        scorer: its name.
        label: the rule that it was fitted to; "" where nothing was fitted.
        areas: of each group that has both classes.
    """

    scorer: str
    label: str
    areas: Mapping[str, float]


def relevance(
    *,
    dataset: Dataset,
    data: Path,
    scorer: Path | None = None,
    train_on: Path | None = None,
    out: Path = Path("results/relevance"),
    seed: int = 0,
    json: bool = False,
) -> None:
    """Measure how well scorers rank units by later need: macro AUC over conversations or tasks.

    Args:
        dataset: locomo and longmemeval are measured by their marks of evidence, trajectories by identifiers that at
            least three later steps take up.
        data: the data set's file or folder.
        scorer: a weights file to measure beside the others.
        train_on: fit to this file or folder instead, to be of the same kind.
        out: the results folder.
        seed: of fits and bootstrap intervals.
        json: print the summary to stdout, and the table to stderr.
    """
    logs = _read(data, dataset)
    others = _read(train_on, dataset) if train_on is not None else None
    config = {"data": [dataset], "trained_on": train_on.name if train_on else "the other groups", "seed": seed}
    with open_run(out, BENCHMARK, **config) as run:
        rows = list(_shown(measure(logs, dataset, scorer=scorer, others=others, seed=seed)))
        for row in rows:
            run.record(scorer=row.scorer, label=row.label, areas=row.areas)
        summary = _summary(rows, dataset, seed)
        run.finish(summary)
    _print(summary, stderr=json)
    if json:
        print(dumps(summary, indent=2))


def _read(path: Path, dataset: Dataset) -> list[Log]:
    if not path.exists():
        raise ConfigError(f"there is no file or folder {str(path)!r}")
    logs = list(read_logs([path]))
    test = _rules(dataset)[0]
    if not any(cases(log, test) for log in logs):
        raise ConfigError(f"{str(path)!r} says of no unit whether it was needed (rule {test!r}): is it {dataset}?")
    return logs


def _rules(dataset: Dataset) -> tuple[str, ...]:
    """The rule that is measured by, and all rules that models are fitted to."""
    return ("reuse",) if dataset == "trajectories" else ("gold", "answers", "best")


def measure(
    logs: Sequence[Log],
    dataset: Dataset,
    *,
    scorer: Path | None = None,
    others: Sequence[Log] | None = None,
    seed: int = 0,
) -> Iterator[Row]:
    """The rows of the benchmark: what needs no fit, the weights that ship, the paper's models, ours."""
    rules = _rules(dataset)
    test = _table(logs, rules[0])
    tables = {rule: _table(logs if others is None else others, rule) for rule in rules}
    for name, fit in _unfitted(scorer, dataset).items():
        yield Row(name, "", _areas(test, tables, fit, apart=others is not None))
    variants: tuple[tuple[str, tuple[Part, ...], Sequence[str]], ...] = (
        ("paper, words only", ("words",), rules[:1]),
        ("paper, trajectory only", ("trajectory",), rules[:1]),
        (PAPER, ("words", "trajectory"), rules[:2]),
    )
    for name, parts, told in variants:
        for rule in told:
            yield Row(name, rule, _areas(test, tables, _paper(rule, parts, seed), apart=others is not None))
    names = AGENT if dataset == "trajectories" else CONVERSATION
    for rule in rules:
        yield Row(OURS, rule, _areas(test, tables, _ours(rule, names, seed), apart=others is not None))


def _table(logs: Sequence[Log], rule: str) -> Table:
    return table(case for log in logs for case in cases(log, rule))


def _areas(test: Table, tables: Mapping[str, Table], fit: Fit, *, apart: bool) -> dict[str, float]:
    """The AUC of each group, scored by what was fitted to the other groups, or to other data altogether."""
    scores: list[Floats] = [np.zeros(0)] * len(test.cases)
    for fold in [sorted(set(test.groups))] if apart else folds(test.groups):
        groups = {group for found in tables.values() for group in found.groups}
        scored = fit(tables, sorted(groups if apart else groups - set(fold)))
        for at, group in enumerate(test.groups):
            if group in fold:
                scores[at] = scored(test, at)
    return by_group(test, scores)


def _unfitted(scorer: Path | None, dataset: Dataset) -> dict[str, Fit]:
    shipped = load_scorer()
    found: dict[str, Fit] = {
        "recency": lambda *_: lambda data, at: np.arange(len(data.labels[at]), dtype=np.float64),
        "length": lambda *_: lambda data, at: np.array([len(text.split()) for text in _texts(data.cases[at])], float),
        "TF-IDF salience": lambda *_: lambda data, at: salience(_texts(data.cases[at])),
    }
    if dataset != "trajectories":  # these count re-use, which is what is measured by there; without it they are recency
        found["ACT-R decay"] = lambda *_: lambda data, at: np.array(Decay("act-r").strengths(data.cases[at].units))
        found["MemoryBank decay"] = lambda *_: (
            lambda data, at: np.array(Decay("memorybank").strengths(data.cases[at].units))
        )
    found["shipped weights"] = lambda *_: lambda data, at: np.array(shipped(data.cases[at].units))
    if scorer is not None:
        given = load_scorer(scorer)
        found[scorer.name] = lambda *_: lambda data, at: np.array(given(data.cases[at].units))
    return found


def _by_text(scores: Callable[[Sequence[str]], Floats]) -> Scores:
    return lambda data, at: scores(_texts(data.cases[at]))


def _paper(rule: str, parts: Sequence[Part], seed: int) -> Fit:
    return lambda tables, groups: _by_text(fit_tfidf(*_talks(tables[rule], groups), parts, seed=seed))


def _ours(rule: str, names: Sequence[str], seed: int) -> Fit:
    def fit(tables: Mapping[str, Table], groups: Sequence[str]) -> Scores:
        data = tables[rule]
        found = regression(data, [at for at, group in enumerate(data.groups) if group in groups], names, seed=seed)
        return lambda test, at: found(test.rows[at])

    return fit


def _talks(data: Table, groups: Sequence[str]) -> tuple[list[Sequence[str]], list[NDArray[np.bool_]]]:
    """The texts and labels of the cases of groups."""
    chosen = [at for at, group in enumerate(data.groups) if group in groups]
    return [_texts(data.cases[at]) for at in chosen], [data.labels[at] for at in chosen]


def _texts(case: Case) -> Sequence[str]:
    return case.texts or [unit.text for unit in case.units]


def _shown(rows: Iterator[Row]) -> Iterator[Row]:
    from rich.console import Console

    with Console(stderr=True).status("measuring") as status:
        for row in rows:
            status.update(f"measured {row.scorer} {row.label}")
            yield row


def _summary(rows: Sequence[Row], dataset: Dataset, seed: int) -> dict[str, Any]:
    def interval(areas: Mapping[str, float]) -> dict[str, float]:
        found = mean_by_group({group: [area] for group, area in areas.items()}, seed=seed)
        return {"auc": round(found.mean, 4), "low": round(found.low, 4), "high": round(found.high, 4)}

    test = _rules(dataset)[0]
    paper = {row.label: row for row in rows if row.scorer == PAPER}
    pairs = [
        (row, paper["answers" if row.label in ("answers", "best") else test])
        for row in rows
        if row.scorer in (OURS, "shipped weights")
    ]
    return {
        "dataset": dataset,
        "measured_by": test,
        "groups": len(rows[0].areas),
        "rows": [{"scorer": row.scorer, "label": row.label, **interval(row.areas)} for row in rows],
        "differences": [
            {
                "scorer": f"{row.scorer} ({row.label})" if row.label else row.scorer,
                "beside": f"{PAPER} ({other.label})",
                **interval({group: area - other.areas[group] for group, area in row.areas.items()}),
            }
            for row, other in pairs
        ],
    }


def _print(summary: Mapping[str, Any], *, stderr: bool) -> None:
    from rich.console import Console
    from rich.table import Table as Grid

    stream = sys.stderr if stderr else sys.stdout
    console = Console(file=stream, width=None if stream.isatty() else 120)
    grid = Grid("scorer", "fitted to", "macro AUC", title=f"{summary['dataset']}, {summary['groups']} groups")
    for row in summary["rows"]:
        grid.add_row(row["scorer"], row["label"] or "-", f"{row['auc']:.3f} [{row['low']:.3f}, {row['high']:.3f}]")
    console.print(grid)
    for row in summary["differences"]:
        figures = f"{row['auc']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}]"
        console.print(f"{row['scorer']} beside {row['beside']}: {figures}", highlight=False)
