"""`forgetless train lre`: a scorer of two kilobytes from logs, with no labels, no GPU and no model call."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from forgetless.cli.files import write
from forgetless.datasets.logs import Log, read_logs
from forgetless.errors import ConfigError
from forgetless.policies.lre.weights import Weights
from forgetless.training.labels import Case, cases
from forgetless.training.lre import AGENT, CONVERSATION, fit, table

__all__ = ["lre"]

Rule = Literal["gold", "answers", "reuse", "best"]


def lre(
    *,
    data: Annotated[tuple[Path, ...], Parameter(consume_multiple=True)],
    out: Path,
    label: Rule | None = None,
    seed: int = 0,
) -> None:
    """Learn from logs what is needed later.

    Args:
        data: files and folders: stores and their exports, logs of requests (JSON lines of bodies), ATIF trajectories,
            files of LoCoMo, LongMemEval, MT-Eval and MT-Bench+.
        out: the weights file to write.
        label: what counts as needed. best: for each later question, the unit that shares most with question and
            answer. reuse: identifiers that three later steps take up. answers: 40 % of a later answer's words (LRE).
            gold: marks that come with the data. By default reuse where most logs are of agents, else best.
        seed: of the solver.
    """
    missing = [str(path) for path in data if not path.exists()]
    if missing:
        raise ConfigError(f"there is no file or folder {', '.join(map(repr, missing))}")
    logs = list(_shown(read_logs(data)))
    agents = sum(any(unit.kind == "step" for unit in log.units) for log in logs) * 2 > len(logs)
    rule = label or ("reuse" if agents else "best")
    found: list[Case] = [case for log in logs for case in cases(log, rule)]
    about = ", ".join(path.name for path in data)[:120]
    weights = fit(table(found), AGENT if agents else CONVERSATION, label=rule, about=about, seed=seed)
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(f"{out.name}.partial")
    partial.write_text(weights.dump(), encoding="utf-8")
    partial.replace(out)
    write(("\n".join(_report(weights, logs, found, out)) + "\n").encode())


def _shown(logs: Iterator[Log]) -> Iterator[Log]:
    from rich.console import Console
    from rich.progress import track

    yield from track(logs, "reading", console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())


def _report(weights: Weights, logs: Sequence[Log], found: Sequence[Case], out: Path) -> Iterator[str]:
    told = weights.training
    yield (
        f"{len(logs):,} logs, {len(found):,} histories of {told['groups']:,} conversations or tasks, {told['units']:,} "
        f"units, {told['positive']:,} of them needed later (rule {weights.label!r})"
    )
    if told["auc"] is None:
        yield "no AUC: that takes two conversations, one to fit to and one to test on"
    else:
        yield f"AUC {told['auc']:.3f} on conversations that were left out (0.5 is chance)"
    yield "what a unit is kept for, and let go for (log odds for one standard deviation more):"
    up = [word for word in weights.words() if " +" in word]
    down = [word for word in weights.words() if " -" in word]
    yield f"  kept: {', '.join(up[:10])}"
    yield f"  let go: {', '.join(down[:10])}"
    yield f"{out}: {out.stat().st_size:,} bytes, version {weights.version}"
