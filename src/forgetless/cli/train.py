"""`forgetless train lre` and `train relevance`: scorers of two kilobytes from logs, without labels or a model call."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from forgetless.benchmarks.kept import SHARES, kept_of_needed
from forgetless.benchmarks.subjects import Subject, named
from forgetless.benchmarks.trained import trained
from forgetless.cli.files import write
from forgetless.datasets.logs import Log, read_logs, read_store
from forgetless.errors import ConfigError, StoreError
from forgetless.policies.lre.weights import Weights
from forgetless.stores.open import default_file, file_of
from forgetless.tokens import Counter
from forgetless.training.labels import NEXT
from forgetless.training.lre import fit, labelled
from forgetless.training.relevance import fit as fit_relevance
from forgetless.training.relevance import questions, sheet

__all__ = ["lre", "relevance"]

Rule = Literal["gold", "answers", "reuse", "best"]
Data = Annotated[tuple[Path, ...], Parameter(consume_multiple=True)]

BESIDE = ("fifo", "recent", "bm25", "length")
"""Policies that the report sets the new weights beside."""

MOST = 60
"""Logs of the report: more of them take long and change little."""


def lre(
    *,
    data: Data = (),
    store: str | None = None,
    out: Path | None = None,
    label: Rule | Literal["next"] | None = None,
    seed: int = 0,
    watch: float | None = None,
) -> None:
    """Learn from logs what is needed later.

    Args:
        data: files and folders: stores and their exports, logs of requests (JSON lines of bodies), ATIF trajectories,
            files of LoCoMo, LongMemEval, MT-Eval and MT-Bench+.
        store: a store, as `serve --store` names it; where no data is named, by default the file in your data
            directory.
        out: the weights file to write; by default lre.json beside that file.
        label: what counts as needed. next: identifiers that one of an agent's next six actions uses. best: for each
            later question, the unit that shares most with question and answer. reuse: identifiers that three later
            steps take up. answers: 40 % of a later answer's words (LRE). gold: marks that come with the data. By
            default next where most logs are of agents, else best.
        seed: of the solver.
        watch: go on, and learn anew each so many minutes. A proxy that was started with `--scorer` takes the new
            weights up by itself.
    """

    def learn() -> tuple[Weights, Iterator[str]]:
        logs = _logs(data, store)
        rule = label or (NEXT if _agents(logs) else "best")
        found = labelled(logs, rule)
        about = _about(data, store)
        weights = fit(found, found.names, label=rule, about=about, seed=seed)
        seen = f"{len(found.cases):,} histories of {weights.training['groups']:,} conversations or tasks"
        new = trained("lre", rule, logs, about, seed)
        return weights, _report(weights, logs, seen, new)

    _learned(learn, _out(out, "lre"), watch)


def relevance(
    *,
    data: Data = (),
    store: str | None = None,
    out: Path | None = None,
    label: Literal["gold", "answers", "best"] = "best",
    seed: int = 0,
    watch: float | None = None,
) -> None:
    """Learn from logs what a question needs: the questions of the log are the questions.

    Args:
        data: as in `train lre`.
        store: as in `train lre`.
        out: the weights file to write; by default relevance.json beside the store in your data directory.
        label: what counts as needed, as in `train lre`, by one question at a time.
        seed: of the solver, and of the draw of units that were not needed.
        watch: as in `train lre`.
    """

    def learn() -> tuple[Weights, Iterator[str]]:
        logs = _logs(data, store)
        found = sheet((question for log in logs for question in questions(log, label)), seed)
        weights = fit_relevance(found, label=label, about=_about(data, store), seed=seed)
        seen = f"{len(found.groups):,} questions in {weights.training['groups']:,} conversations"
        return weights, _report(weights, logs, seen)

    _learned(learn, _out(out, "relevance"), watch)


def _learned(learn: Callable[[], tuple[Weights, Iterator[str]]], out: Path, watch: float | None) -> None:
    """Learn once, or again and again; a log that says too little ends the first and not the second."""
    if watch is not None and not watch > 0:
        raise ConfigError(f"watch must be a number of minutes above 0, not {watch!r}")
    while True:
        try:
            weights, report = learn()
            _save(weights, out)
            last = f"{out}: {out.stat().st_size:,} bytes, version {weights.version}"
            write(("\n".join([*report, last]) + "\n").encode())
        except (ConfigError, StoreError) as error:
            if watch is None:
                raise
            print(f"forgetless: {error}", file=sys.stderr)
        if watch is None:
            return
        try:
            time.sleep(watch * 60)
        except KeyboardInterrupt:
            return


def _out(out: Path | None, name: str) -> Path:
    return out or default_file().with_name(f"{name}.json")


def _logs(data: Sequence[Path], store: str | None) -> list[Log]:
    missing = [str(path) for path in data if not path.exists()]
    if missing:
        raise ConfigError(f"there is no file or folder {', '.join(map(repr, missing))}")
    if data and store is None:
        return list(_shown(read_logs(data)))
    file = file_of(store)
    if file is not None and not file.exists():
        raise ConfigError(f"there is no store at {str(file)!r}: name it with --store, or logs with --data")
    return list(_shown(chain(read_logs(data), read_store(store))))


def _agents(logs: Sequence[Log]) -> bool:
    return sum(any(unit.kind == "step" for unit in log.units) for log in logs) * 2 > len(logs)


def _about(data: Sequence[Path], store: str | None) -> str:
    return ", ".join([*(path.name for path in data), *(() if data and store is None else ("the store",))])[:120]


def _save(weights: Weights, out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(f"{out.name}.partial")
    partial.write_text(weights.dump(), encoding="utf-8")
    partial.replace(out)


def _shown(logs: Iterable[Log]) -> Iterator[Log]:
    from rich.console import Console
    from rich.progress import track

    yield from track(logs, "reading", console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())


def _report(weights: Weights, logs: Sequence[Log], seen: str, new: Subject | None = None) -> Iterator[str]:
    told = weights.training
    what = next(name for name in ("units", "identifiers") if name in told)
    yield (
        f"{len(logs):,} logs, {seen}, {told[what]:,} {what}, {told['positive']:,} of them needed later "
        f"(rule {weights.label!r})"
    )
    if told["auc"] is None:
        yield "no AUC: that takes two conversations, one to fit to and one to test on"
    else:
        yield f"AUC {told['auc']:.3f} on conversations that were left out (0.5 is chance)"
        if new is not None:
            yield from _beside(new, logs, "reuse" if weights.label == NEXT else weights.label)
    yield f"what {what} are kept for, and let go for (log odds for one standard deviation more):"
    up = [word for word in weights.words() if " +" in word]
    down = [word for word in weights.words() if " -" in word]
    yield f"  kept: {', '.join(up[:10])}"
    yield f"  let go: {', '.join(down[:10])}"


def _beside(new: Subject, logs: Sequence[Log], rule: str) -> Iterator[str]:
    """What the new weights would have kept on conversations that were left out, beside other policies."""
    yield f"what of the units needed later (rule {rule!r}) would have stayed, on conversations that were left out:"
    makers = {"lre": new.make} | {name: named(name, Counter(len)).make for name in BESIDE}
    step = -(-len(logs) // MOST)
    for name, shares in kept_of_needed(logs[::step], rule, makers).items():
        figures = (
            f"{kept:.0%} at {share:.0%} of the length" for kept, share in zip(shares, SHARES, strict=True) if kept
        )
        yield f"  {name}: {', '.join(figures) or 'nothing'}"
