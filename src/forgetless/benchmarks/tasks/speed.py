r"""`forgetless bench speed`: how fast the policy `lre` scores what it has not seen, and chooses anew in a long session.

Scoring is held against one pass of the regular expression `\w+` over the same texts, the two in turn. Times are of the
processor, in one thread, so that other work on the machine counts little. Python's cyclic collector is left as it is.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from json import dumps
from pathlib import Path
from statistics import median
from typing import Any

from forgetless.benchmarks.results import open_run
from forgetless.benchmarks.tasks.overhead import history
from forgetless.compaction import compact
from forgetless.datasets.logs import read_logs
from forgetless.errors import ConfigError
from forgetless.policies.lre.carried import of_piece
from forgetless.policies.lre.scorer import scorer
from forgetless.session import Session

__all__ = ["TARGETS", "speed"]

BENCHMARK = "speed@1"
POLICY = "lre"
UNITS = 10_000
ROOM = 10**9  # a budget that no history meets
TURNS = 20  # timed, of each session
PER_UNIT = {"chat": 1.0, "steps": 8 / 5}  # messages of a unit in `history`
WORD = re.compile(r"\w+")

TARGETS: Mapping[str, float] = {
    "most passes of a regular expression that cold scoring takes": 8.0,
    "least LoCoMo turns scored a second": 20_000.0,
    "most ms of one more unit without an eviction": 2.0,
    "most ms of one more unit with an eviction": 20.0,
}
"""On one core; the first two hold for LoCoMo, the others for a chat."""


def speed(
    *,
    data: Path,
    out: Path = Path("results/speed"),
    repeats: int = 7,
    units: int = UNITS,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Measure the speed of cold scoring, and of one more unit in a long session.

    Args:
        data: folder with `locomo/` or `endless_terminals/`, or both.
        out: the results folder.
        repeats: of scoring.
        units: of the sessions.
        seed: of the made sessions.
        json: print the summary to stdout, and the tables to stderr.
    """
    folders = [data / name for name in ("locomo", "endless_terminals") if (data / name).exists()]
    if not folders:
        raise ConfigError(f"{str(data)!r} holds neither the folder 'locomo' nor 'endless_terminals'")
    if min(repeats, units) < 1:
        raise ConfigError(f"repeats and units must be at least 1, not {repeats!r} and {units!r}")
    config = {"data": [folder.name for folder in folders], "repeats": repeats, "units": units, "seed": seed}
    with open_run(out, BENCHMARK, policy=POLICY, **config) as run:
        scoring = [_scoring(folder, repeats) for folder in folders]
        sessions = [
            _session(variant, units, seed, every_turn=every_turn)
            for variant in PER_UNIT
            for every_turn in (False, True)
        ]
        for row in (*scoring, *sessions):
            run.record(**row)
        summary = {"scoring": scoring, "sessions": sessions, "targets": list(_targets(scoring, sessions))}
        run.finish(summary)
    _print(summary, stderr=json)
    if json:
        print(dumps(summary, indent=2))


def _scoring(folder: Path, repeats: int) -> dict[str, Any]:
    """Every conversation scored from nothing, and a pass over its texts, in turn."""
    passes: list[float] = []
    scored: list[float] = []
    for _ in range(repeats):
        talks = [log.units for log in read_logs([folder])]  # new ones each time: units keep their keys
        texts = [unit.text for units in talks for unit in units]
        of_piece.cache_clear()
        start = time.thread_time()
        for text in texts:
            WORD.findall(text)
        between = time.thread_time()
        for units in talks:
            list(scorer()(units))
        passes.append(between - start)
        scored.append(time.thread_time() - between)
    seconds = median(scored)
    return {
        "data": folder.name,
        "conversations": len(talks),
        "units": len(texts),
        "characters": sum(map(len, texts)),
        "seconds": round(seconds, 4),
        "units_a_second": round(len(texts) / seconds),
        "passes": round(median(mine / theirs for mine, theirs in zip(scored, passes, strict=True)), 2),
    }


def _session(variant: str, units: int, seed: int, *, every_turn: bool) -> dict[str, Any]:
    """One more unit, time and again, in a session of so many units whose budget is half of them."""
    size = int(units * PER_UNIT[variant])
    messages = history(size + 8 * TURNS, seed, variant)
    ends = [at + 1 for at in range(size, len(messages)) if messages[at]["role"] != "assistant" or variant == "chat"]
    budget = compact(messages[:size], budget=ROOM, policy="full").tokens // 2
    session = Session(budget=budget, policy=POLICY, every_turn=every_turn)
    session.prepare(messages[:size])
    times: list[float] = []
    before = session.evictions
    for end in ends[:TURNS]:
        start = time.thread_time()
        done = session.prepare(messages[:end])
        times.append((time.thread_time() - start) * 1e3)
    return {
        "session": variant,
        "units": len(done.ledger),
        "tokens": done.tokens_before,
        "evictions": session.evictions - before,
        "turns": len(times),
        "ms": round(median(times), 2),
        "ms_most": round(max(times), 2),
    }


def _targets(scoring: Sequence[Mapping[str, Any]], sessions: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The figures that have a target."""
    talks = [row for row in scoring if row["data"] == "locomo"]
    chats = [row["ms"] for row in sessions if row["session"] == "chat"]
    figures = [*((talks[0]["passes"], talks[0]["units_a_second"]) if talks else (None, None)), *chats]
    for (name, target), figure in zip(TARGETS.items(), figures, strict=True):
        if figure is not None:
            reached = figure >= target if name.startswith("least") else figure <= target
            yield {"name": name, "target": target, "figure": figure, "reached": reached}


def _print(summary: Mapping[str, Any], *, stderr: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    stream = sys.stderr if stderr else sys.stdout
    console = Console(file=stream, width=None if stream.isatty() else 120)
    for title, rows in (("cold scoring", summary["scoring"]), ("one more unit", summary["sessions"])):
        table = Table(*(name.replace("_", " ") for name in rows[0]), title=title)
        for row in rows:
            table.add_row(*(f"{value:,}" if isinstance(value, int | float) else value for value in row.values()))
        console.print(table)
    for row in summary["targets"]:
        told = "reached" if row["reached"] else "missed"
        console.print(f"{row['name']}: {row['figure']:,} ({told}: {row['target']:,})", highlight=False)
