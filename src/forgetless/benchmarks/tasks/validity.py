"""`forgetless bench validity`: every policy on random histories, every promise checked on each."""

from __future__ import annotations

import sys
from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from json import dumps
from pathlib import Path
from typing import Any

from forgetless.benchmarks.histories import DIALECTS, History, budget_for, make
from forgetless.benchmarks.promises import FAULTS, Breach, Outcome, Variant, emitted, examine, measure
from forgetless.benchmarks.results import Run, open_run
from forgetless.benchmarks.stand_ins import STAND_INS, Summariser
from forgetless.instructions.noisy import Noisy
from forgetless.instructions.rules import Rules
from forgetless.registry import DEFAULT, policy_names

__all__ = ["VERSION", "validity", "variants"]

VERSION = "validity-1"

PEER_HISTORIES = 1_000
INSTRUCTIONS = 0.3
_CHUNK = 25
_WORKERS = 2
_PEER_FAULTS = ("refused", "over_budget", "altered", "order", "pins_lost", "crash")


@dataclass
class _Total:
    """What a policy did in all its runs."""

    runs: int = 0
    faulty: int = 0
    budget_errors: int = 0
    skipped: int = 0
    faults: Tally[str] = field(default_factory=Tally)

    def add(self, outcome: Outcome) -> None:
        self.runs += 1
        self.faulty += bool(outcome.breaches)
        self.budget_errors += outcome.budget_error
        self.faults.update({breach.fault for breach in outcome.breaches})

    def as_dict(self, faults: Iterable[str]) -> dict[str, Any]:
        """Figures; faults are counted once a run."""
        counted = {fault: self.faults[fault] for fault in faults}
        figures = {"runs": self.runs, "faulty_runs": self.faulty, "budget_errors": self.budget_errors}
        return {**figures, "skipped": self.skipped, "faults": counted}


def validity(
    *,
    histories: int = 10_000,
    out: Path = Path("results/validity"),
    seed: int = 0,
    peers: bool = True,
    instructions: bool = False,
    json: bool = False,
) -> None:
    """Check every promise of every policy on random histories of all dialects.

    Args:
        histories: how many; a third of them in each dialect.
        out: folder for config.json, records.jsonl (a line per fault, one of totals per policy), summary.json.
        seed: of the first history; each later one has the next.
        peers: also run LangChain's and LiteLLM's trimming, on up to the first 1,000 chat histories.
        instructions: have three user messages in ten count as standing instructions, which every policy has to keep.
        json: print the summary as JSON, not as a table.

    Raises:
        SystemExit: 1 when a policy of ours broke a promise.
    """
    names = [variant.name for variant in variants()]
    config = {"histories": histories, "seed": seed, "policies": names, "peers": peers, "instructions": instructions}
    with open_run(out, VERSION, **config) as run:
        totals = {name: _Total() for name in names}
        for number, dialect, budget, outcomes in _progress(
            _examined(seed, histories, instructions), histories, "histories"
        ):
            for name, outcome in zip(names, outcomes, strict=True):
                totals[name].add(outcome)
                _record(run, outcome.breaches, seed=number, dialect=dialect, policy=name, budget=budget)
        rivals = _rivals(run, seed, histories) if peers else {}
        for name, total in {**totals, **rivals}.items():
            run.record(policy=name, **total.as_dict(FAULTS))
        summary = {
            "histories": histories,
            "seed": seed,
            "policies": {name: total.as_dict(FAULTS) for name, total in totals.items()},
            "peers": {name: total.as_dict(_PEER_FAULTS) for name, total in rivals.items()},
        }
        run.finish(summary)
    print(dumps(summary, indent=2) if json else _table({**totals, **rivals}))
    if any(total.faulty for total in totals.values()):
        raise SystemExit(1)


def variants(*, instructions: bool = False) -> list[Variant]:
    """Every registered policy (stand-ins for what calls a model), the papers' own forms, and truncation.

    Args:
        instructions: with a recogniser that errs, so that there are many.
    """
    named = [Variant(name, name, STAND_INS.get(name, {})) for name in policy_names(models=True)]
    eager = Variant("recent-eager", "recent", {"eager": True})
    paper = Variant("rea-paper", "rea", {"replies": "paper"})
    rewritten = Variant("rea-rewritten", "rea", {"compress": Summariser()})
    cut = Variant(f"{DEFAULT}-truncate", DEFAULT, truncate=True)
    find = Noisy(Rules(), false_positives=INSTRUCTIONS) if instructions else None
    return [replace(variant, instructions=find) for variant in (*named, eager, paper, rewritten, cut)]


def _history(number: int) -> History:
    return make(number, DIALECTS[number % len(DIALECTS)])


_Examined = tuple[int, str, int, list[Outcome]]


def _examined(seed: int, many: int, instructions: bool) -> Iterator[_Examined]:
    """The outcomes of each history in turn, from two processes where it is worth it."""
    chunks = [range(at, min(at + _CHUNK, seed + many)) for at in range(seed, seed + many, _CHUNK)]
    if len(chunks) <= _WORKERS * 4:
        for chunk in chunks:
            yield from _chunk(chunk, instructions)
        return
    with ProcessPoolExecutor(_WORKERS) as pool:
        for examined in pool.map(partial(_chunk, instructions=instructions), chunks):
            yield from examined


def _chunk(numbers: Iterable[int], instructions: bool) -> list[_Examined]:
    found: list[_Examined] = []
    forms = variants(instructions=instructions)
    for number in numbers:
        history = _history(number)
        measured = measure(history)
        budget = budget_for(history, measured.total, measured.floor)
        outcomes = [examine(history, budget, variant, measured) for variant in forms]
        found.append((number, history.dialect, budget, outcomes))
    return found


def _rivals(run: Run, seed: int, many: int) -> dict[str, _Total]:
    """Other libraries on the same chat histories, each message list at the same budget.

    They know neither pins nor errors for what can't fit, so pins are not asked of them, and histories whose
    floor is above the budget are skipped.
    """
    from forgetless.benchmarks.peers import NAMES, Peers

    totals = {name: _Total() for name in NAMES}
    numbers = [n for n in range(seed, seed + many) if _history(n).dialect == "chat"][:PEER_HISTORIES]
    with Peers() as peers:
        for number in _progress(numbers, len(numbers), "histories of peers"):
            history = _history(number)
            measured = measure(history)
            budget = budget_for(history, measured.total, measured.floor)
            for name, total in totals.items():
                if measured.floor > budget:
                    total.skipped += 1
                    continue
                outcome = _rival(peers, name, history, budget)
                total.add(outcome)
                _record(run, outcome.breaches, seed=number, dialect="chat", policy=name, budget=budget)
    return totals


def _rival(peers: Any, name: str, history: History, budget: int) -> Outcome:
    measured = measure(history)
    room = budget - measured.fixed
    reply = peers.call(name, history.messages, room)
    if reply.messages is None:
        return Outcome((Breach("crash", str(reply.error)),))
    try:
        return Outcome(tuple(emitted(history, reply.messages, room, measured)))
    except Exception as error:  # noqa: BLE001 - a failed record is data; nothing says what a peer returns
        return Outcome((Breach("crash", f"{type(error).__name__}: {error}"),))


def _record(run: Run, breaches: Iterable[Breach], **about: Any) -> None:
    for breach in breaches:
        run.record(**about, fault=breach.fault, detail=breach.detail)


def _progress(items: Iterable[Any], many: int, what: str) -> Iterator[Any]:
    """The items, counted on stderr as they pass."""
    for done, item in enumerate(items, 1):
        yield item
        if done % 50 == 0 or done == many:
            print(f"\r{done:,} of {many:,} {what}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def _table(totals: Mapping[str, _Total]) -> str:
    """A line for each policy: runs, faulty ones, budget errors, and each kind of fault that occurred."""
    seen = [fault for fault in FAULTS if any(total.faults[fault] for total in totals.values())]
    head = ["policy", "runs", "faulty", "BudgetError", *seen]
    rows: list[list[Any]] = [
        [name, total.runs, total.faulty, total.budget_errors, *(total.faults[f] for f in seen)]
        for name, total in totals.items()
    ]
    lines = [[str(cell) for cell in row] for row in [head, *rows]]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.rjust, row, widths)) for row in lines)
