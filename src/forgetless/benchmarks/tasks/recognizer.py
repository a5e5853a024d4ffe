"""`forgetless bench recognizer`: how well standing instructions are told from all else that users say.

Data are JSON lines of `text` and `label` (true: the message holds one), where known with `language`, `kind` and
`instruction` (the pieces that hold it), or MT-Eval's files, whose turn `instruction` holds one and whose later user
turns hold none (REA, Table 9).
"""

from __future__ import annotations

import json as json_
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import numpy as np
from cyclopts import Parameter

from forgetless.benchmarks.results import open_run
from forgetless.errors import ConfigError
from forgetless.instructions.base import Recogniser, Span
from forgetless.instructions.learned import Learned, RecogniserWeights
from forgetless.instructions.llm import Llm
from forgetless.instructions.rules import Rules
from forgetless.models.load import load_model
from forgetless.training.recognizer import Example, examples, labelled, ship, table, threshold

__all__ = ["BENCHMARK", "Item", "Outcome", "figures", "judge", "read", "recognizer"]

BENCHMARK = "recognizer@1"

SHARES = (8, 4, 2, 1)
"""Parts of the training data that the learning curve is measured at: one of so many."""

CALIBRATION = 200
"""Messages that a model's threshold is chosen on."""

QUICK = 10_000
"""Microseconds under which other work on the machine would show in one timing."""

Paths = Annotated[tuple[Path, ...], Parameter(consume_multiple=True)]


@dataclass(frozen=True, slots=True)
class Item:
    """A message to judge.

    Attributes:
        text, label, marked: as an `Example`'s.
        language: as the data says, else "".
        kind: likewise.
    """

    text: str
    label: bool
    marked: tuple[Span, ...] = ()
    language: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a recogniser made of a message.

    Attributes:
        spans: what it found.
        micros: the time that it took.
    """

    spans: Sequence[Span]
    micros: float


def recognizer(
    *,
    data: Paths,
    model: Annotated[tuple[str, ...], Parameter(consume_multiple=True)] = (),
    train: Paths = (),
    weights: Path | None = None,
    sample: int = 0,
    out: Path = Path("results/recognizer"),
    seed: int = 0,
    json: bool = False,
) -> None:
    """Measure recognisers of standing instructions: accuracy, precision, recall, time.

    Args:
        data: files to measure on.
        model: also ask these with the paper's prompt: `embedded`, or GGUF files.
        train: files to fit to: gives a learning curve, and the models' thresholds.
        weights: a weights file for `learned`, instead of those that ship.
        sample: judge so many messages, drawn at random; 0 for all.
        out: the results folder.
        seed: of the sample, and of the parts of the training data.
        json: print the summary to stdout, and the table to stderr.
    """
    items = _sample([item for path in data for item in read(path)], sample, seed)
    fitted = examples(train)
    config = {"data": [path.name for path in data], "train": [path.name for path in train], "models": list(model)}
    with open_run(
        out, BENCHMARK, **{**config, "models": [Path(name).name for name in model]}, sample=sample, seed=seed
    ) as run:
        rows: dict[str, Any] = {}
        for name, find in _recognisers(weights, fitted, model, seed):
            outcomes = judge(items, find)
            for at, (item, outcome) in enumerate(zip(items, outcomes, strict=True)):
                run.record(recognizer=name, item=at, label=item.label, found=bool(outcome.spans), kind=item.kind)
            rows[name] = figures(items, outcomes)
            _tell(f"{name}: {rows[name]['accuracy']:.3f}")
        summary = {"items": len(items), "positive": sum(item.label for item in items), "recognizers": rows}
        run.finish(summary)
    _print(summary, stderr=json)
    if json:
        print(json_.dumps(summary, indent=2, ensure_ascii=False))


def read(path: Path) -> list[Item]:
    """The messages of a file, each line of it.

    Raises:
        ConfigError: it can't be read, or is of no known layout.
    """
    return [
        Item(found.text, found.label, found.marked, str(line.get("language", "")), str(line.get("kind", "")))
        for line, found in labelled(path)
    ]


def _sample(items: list[Item], most: int, seed: int) -> list[Item]:
    if not items:
        raise ConfigError("the data hold no message")
    if not 0 < most < len(items):
        return items
    return [items[at] for at in np.sort(np.random.default_rng(seed).choice(len(items), most, replace=False))]


def _recognisers(
    weights: Path | None, fitted: Sequence[Example], models: Iterable[str], seed: int
) -> Iterator[tuple[str, Recogniser]]:
    yield "rules", Rules()
    yield "learned", Learned(RecogniserWeights.load(weights)) if weights else Learned()
    order = np.random.default_rng(seed).permutation(len(fitted))
    for part in SHARES if fitted else ():
        chosen = [fitted[at] for at in order[: len(fitted) // part]]
        yield f"learned, fitted to {len(chosen):,}", Learned(ship(table(chosen), about="", seed=seed))
    for spec in models:
        asked = load_model(spec)
        yield f"llm {asked.name}", Llm(asked)
        if fitted:
            chosen = [fitted[at] for at in order[:CALIBRATION]]
            odds = np.array([Llm(asked).odds(example.text) for example in chosen])
            least = threshold(odds[None], np.array([example.label for example in chosen]))
            yield f"llm {asked.name}, calibrated", Llm(asked, least)
        asked.close()


def judge(items: Sequence[Item], find: Recogniser) -> list[Outcome]:
    """What a recogniser makes of messages; what is quick is timed three times, and the best of them counts."""
    find(items[0].text)  # loads what it needs
    outcomes = []
    for item in items:
        micros, spans = _timed(find, item.text)
        if micros < QUICK:
            micros = min(micros, _timed(find, item.text)[0], _timed(find, item.text)[0])
        outcomes.append(Outcome(spans, micros))
    return outcomes


def _timed(find: Recogniser, text: str) -> tuple[float, Sequence[Span]]:
    start = perf_counter()
    spans = find(text)
    return (perf_counter() - start) * 1e6, spans


def figures(items: Sequence[Item], outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Accuracy, precision and recall, also by language and kind, and the share of marked pieces that was found."""
    pairs = list(zip(items, outcomes, strict=True))
    told = [(item.label, bool(outcome.spans)) for item, outcome in pairs]
    pieces = [
        any(min(end, to) > max(start, at) for at, to in outcome.spans)
        for item, outcome in pairs
        for start, end in item.marked
    ]
    found: dict[str, Any] = {
        **_rates(told),
        "true_positives": sum(label and said for label, said in told),
        "false_positives": sum(said and not label for label, said in told),
        "false_negatives": sum(label and not said for label, said in told),
        "true_negatives": sum(not label and not said for label, said in told),
        "pieces_found": _share(pieces),
        "micros": round(float(np.mean([outcome.micros for outcome in outcomes])), 1),
    }
    by: tuple[tuple[str, Callable[[Item], str]], ...] = (
        ("languages", lambda item: item.language),
        ("kinds", lambda item: item.kind),
    )
    for name, key in by:
        groups = sorted({key(item) for item in items} - {""})
        found[name] = {
            group: _rates([pair for item, pair in zip(items, told, strict=True) if key(item) == group])
            for group in groups
        }
    return found


def _rates(told: Sequence[tuple[bool, bool]]) -> dict[str, Any]:
    """Of pairs of label and finding; None where there is nothing to take a share of."""
    return {
        "messages": len(told),
        "accuracy": _share([label == said for label, said in told]),
        "precision": _share([label for label, said in told if said]),
        "recall": _share([said for label, said in told if label]),
    }


def _share(hits: Sequence[bool]) -> float | None:
    return round(sum(hits) / len(hits), 4) if hits else None


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _print(summary: Mapping[str, Any], *, stderr: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    stream = sys.stderr if stderr else sys.stdout
    columns = ("recognizer", "accuracy", "precision", "recall", "pieces found", "µs")
    grid = Table(*columns, title=f"{summary['items']} messages, {summary['positive']} with an instruction")
    for name, row in summary["recognizers"].items():
        rates = (row[key] for key in ("accuracy", "precision", "recall", "pieces_found"))
        grid.add_row(name, *("-" if rate is None else f"{rate:.3f}" for rate in rates), f"{row['micros']:,.0f}")
    Console(file=stream, width=None if stream.isatty() else 120).print(grid)
