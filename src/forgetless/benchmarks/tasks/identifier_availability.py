"""Whether an agent's next action still finds the identifiers it needs in its context: recorded runs.

For each action of a run, the identifiers in its calls that stood anywhere before it are what it needs. The
history before the action goes through a policy under a budget for the whole request, with the task (all up
to the first user message) pinned. Availability is the share of the needed identifiers that the context holds
byte for byte, in any of its texts. It needs no model and no environment; it says what an agent could have
copied, not what it would do.

In a second part the budget is for the steps alone and all of them compete for it, the newest too, which for small
budgets is often too long. What the task itself says stands beside, and is not asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from statistics import fmean
from typing import Any

from forgetless.benchmarks.hindsight import ORACLE, best_cover, keep_first
from forgetless.benchmarks.metrics import by_policy, estimate, mean, recall
from forgetless.datasets.trajectories import Recording
from forgetless.errors import BudgetError
from forgetless.identifiers import contains, identifiers
from forgetless.messages import Call, Message, Part, Result, Text
from forgetless.policies.base import Context, Policy, capacity, floor
from forgetless.registry import load_dialect
from forgetless.splitting import split
from forgetless.tokens import Counter
from forgetless.units import Unit

__all__ = [
    "BUDGETS",
    "DENSITY",
    "STEP_BUDGETS",
    "VERSION",
    "Action",
    "Cell",
    "actions",
    "compare",
    "density",
    "measure",
    "measure_steps",
    "records",
    "summarise",
    "texts",
]

VERSION = 2
BUDGETS = (2_048, 3_072, 4_096, 6_144)
"""Above what must stay (task and newest step) for nearly all actions, and below most whole histories."""

STEP_BUDGETS = (512, 1_024, 2_048)
"""Tokens of all steps; one has 456 in the median."""

DENSITY = "identifier density"
"""The name of the baseline that scores by `density`."""


@dataclass(slots=True)
class Cell:
    """What one policy did under one budget (None: without one) with the actions of one run.

    Attributes:
        shares: availability at each action that needs anything.
        pressed: those of `shares` where the whole history was over the budget, so that something had to go.
        tokens: of each context.
        floors: tokens of what must stay, on the row without a budget.
        failed: actions for which what must stay was over the budget; they are in no list.
    """

    task: str
    trial: str
    policy: str
    budget: int | None
    shares: list[float] = field(default_factory=list)
    pressed: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    floors: list[int] = field(default_factory=list)
    failed: int = 0

    @property
    def all_there(self) -> list[float]:
        """1 for each action with everything it needs, else 0."""
        return [float(share == 1.0) for share in self.shares]


@dataclass(slots=True)
class _Finder:
    """Looks for identifiers in the texts of one run, each pair once."""

    known: dict[tuple[str, str], bool] = field(default_factory=dict)

    def holds(self, texts: Sequence[str], identifier: str) -> bool:
        return any(self._one(text, identifier) for text in texts)

    def _one(self, text: str, identifier: str) -> bool:
        key = (text, identifier)
        if key not in self.known:
            self.known[key] = contains(text, identifier)
        return self.known[key]


@dataclass(frozen=True, slots=True)
class Action:
    """One action of a run: what stood before it, and what of that it needs."""

    units: list[Unit]
    needed: list[str]

    @property
    def tokens(self) -> int:
        """Of the whole history."""
        return sum(unit.tokens for unit in self.units)

    @property
    def floor(self) -> int:
        """Tokens of what must stay."""
        return sum(self.units[index].tokens for index in floor(self.units))


def actions(recording: Recording, counter: Counter, finder: _Finder | None = None) -> Iterator[Action]:
    """The actions of a run that need anything from before them."""
    finder = finder or _Finder()
    messages: tuple[Message, ...] = load_dialect("chat").parse(recording.messages).messages
    first_user = next((i for i, message in enumerate(messages) if message.role == "user"), 0)
    for place, message in enumerate(messages):
        if not message.calls:
            continue
        before = texts(messages[:place])
        used = [name for call in message.calls for text in _leaves(call) for name in identifiers(text)]
        needed = [name for name in dict.fromkeys(used) if finder.holds(before, name)]
        if needed:
            yield Action(split(messages[:place], counter, pins=range(first_user + 1)), needed)


def texts(messages: Sequence[Message]) -> list[str]:
    """Every text that a model reads in messages; arguments come as their strings, free of JSON's escapes."""
    return [text for message in messages for part in message.parts for text in _texts(part)]


def _texts(part: Part) -> Iterator[str]:
    match part:
        case Text(text=text):
            yield text
        case Call():
            yield from _leaves(part)
        case Result(content=content):
            for inner in content:
                yield from _texts(inner)
        case _:
            return


def _leaves(call: Call) -> Iterator[str]:
    arguments: Any = call.arguments
    if isinstance(arguments, str):
        with suppress(ValueError):  # what is no JSON is read as it is
            arguments = json.loads(arguments)
    waiting = [arguments]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            waiting.extend(reversed([*value.values()]))
        elif isinstance(value, list):
            waiting.extend(reversed(value))
        elif value is not None:
            yield json.dumps(value)


def measure(
    recording: Recording, policies: Mapping[str, Policy | None], budgets: Sequence[int], counter: Counter
) -> Iterator[Cell]:
    """The cells of one run: without a budget, then for each policy (None is `hindsight`'s selection) and budget."""
    finder = _Finder()
    acts = list(actions(recording, counter, finder))
    whole = Cell(recording.task, recording.trial, "full", None)
    whole.shares = [1.0] * len(acts)
    whole.tokens = [act.tokens for act in acts]
    whole.floors = [act.floor for act in acts]
    yield whole
    for name, policy in policies.items():
        cells = [Cell(recording.task, recording.trial, name, budget) for budget in budgets]
        for act in acts:
            for budget, cell in zip(budgets, cells, strict=True):
                _add(cell, act, policy, budget, finder)
        yield from cells


def measure_steps(
    recording: Recording, policies: Mapping[str, Policy | None], counter: Counter, budgets: Sequence[int] = STEP_BUDGETS
) -> Iterator[Cell]:
    """The cells of one run where budgets are for its steps; only actions with more steps than that count."""
    finder = _Finder()
    acts = [_among_steps(act, finder) for act in actions(recording, counter, finder)]
    for name, policy in policies.items():
        for budget in budgets:
            cell = Cell(recording.task, recording.trial, name, budget)
            for act in acts:
                if act.needed and act.tokens > act.floor + budget:
                    _add(cell, act, policy, act.floor + budget, finder)
            yield cell


def _among_steps(act: Action, finder: _Finder) -> Action:
    """The same where the newest step need not stay, and what the task says is not asked for."""
    told = texts([message for unit in act.units if unit.pinned for message in unit.messages])
    units = [replace(unit, open=False) for unit in act.units]
    return Action(units, [name for name in act.needed if not finder.holds(told, name)])


def density(units: Sequence[Unit], _: Unit | None = None) -> list[float]:
    """A baseline: the identifiers of each unit by its tokens."""
    return [len(identifiers(unit.text)) / max(1, unit.tokens) for unit in units]


def _add(cell: Cell, act: Action, policy: Policy | None, budget: int, finder: _Finder) -> None:
    try:
        context = policy(act.units, budget) if policy else _best(act, budget, finder)
    except BudgetError:
        cell.failed += 1
        return
    kept = texts(context.messages)
    share = recall(act.needed, {name for name in act.needed if finder.holds(kept, name)})
    cell.shares.append(share)
    cell.tokens.append(context.tokens)
    if act.tokens > budget:
        cell.pressed.append(share)


def _best(act: Action, budget: int, finder: _Finder) -> Context:
    """The selection of whole units with the most of the needed identifiers."""
    pinned = floor(act.units)
    room = capacity(act.units, pinned, budget)
    rest = [unit for unit in act.units if unit.index not in pinned]
    covered = 0
    for index in pinned:
        covered |= _mask(act.units[index], act.needed, finder)
    chosen = best_cover([_mask(u, act.needed, finder) for u in rest], [u.tokens for u in rest], room, covered)
    return keep_first(act.units, {rest[place].index for place in chosen}, budget)


def _mask(unit: Unit, needed: Sequence[str], finder: _Finder) -> int:
    held = texts(unit.messages)
    return sum(1 << bit for bit, name in enumerate(needed) if finder.holds(held, name))


def records(cells: Sequence[Cell]) -> Iterator[dict[str, Any]]:
    """The rows for `records.jsonl`: one for each run and policy, with lists in the order of the budgets."""
    for (task, trial, policy), group in groupby(cells, key=lambda cell: (cell.task, cell.trial, cell.policy)):
        row = list(group)
        yield {
            "part": "agents",
            "task": task,
            "trial": trial,
            "policy": policy,
            "budgets": [cell.budget for cell in row],
            "actions": [len(cell.shares) for cell in row],
            "availability": [mean(cell.shares) for cell in row],
            "all": [mean(cell.all_there) for cell in row],
            "pressed": [len(cell.pressed) for cell in row],
            "tokens": [mean(cell.tokens) for cell in row],
            "failed": [cell.failed for cell in row],
        }


def summarise(cells: Sequence[Cell], seed: int) -> list[dict[str, Any]]:
    """One row for each policy and budget: means over actions, then runs, with intervals over tasks."""

    def row(cells: list[Cell]) -> dict[str, Any]:
        made = sum(len(cell.shares) for cell in cells)
        failed = sum(cell.failed for cell in cells)
        return {
            **estimate("availability", _by_task((cell.task, cell.shares) for cell in cells), seed),
            **estimate("all", _by_task((cell.task, cell.all_there) for cell in cells), seed),
            **estimate("pressed_availability", _by_task((cell.task, cell.pressed) for cell in cells), seed),
            "tokens": mean([tokens for cell in cells for tokens in cell.tokens]),
            "pressed": round(sum(len(cell.pressed) for cell in cells) / made, 4) if made else 0.0,
            "failed": round(failed / (made + failed), 4) if made + failed else 0.0,
        }

    return by_policy(cells, row)


def _by_task(runs: Iterable[tuple[str, Sequence[float]]]) -> dict[str, list[float]]:
    """The mean of each run that has values, by task."""
    groups: dict[str, list[float]] = {}
    for task, values in runs:
        if values:
            groups.setdefault(task, []).append(fmean(values))
    return groups


def compare(cells: Sequence[Cell], policy: str, seed: int) -> list[dict[str, Any]]:
    """How much more is there under a policy than under each other, in the same runs, with intervals over tasks.

    `closed` is the share of the way from the other to the oracle.
    """
    shares: dict[tuple[str, int | None], dict[tuple[str, str], float]] = {}
    for cell in cells:
        if cell.shares:
            shares.setdefault((cell.policy, cell.budget), {})[cell.task, cell.trial] = fmean(cell.shares)
    rows: list[dict[str, Any]] = []
    for (other, budget), theirs in shares.items():
        ours = shares.get((policy, budget), {})
        more: dict[str, list[float]] = {}
        for task, trial in ours.keys() & theirs.keys() if other != policy else ():
            more.setdefault(task, []).append(ours[task, trial] - theirs[task, trial])
        if more:
            best = fmean(shares.get((ORACLE, budget), theirs).values()) - fmean(theirs.values())
            closed = round((fmean(ours.values()) - fmean(theirs.values())) / best, 4) if best else None
            row = {"policy": policy, "beside": other, "budget": budget, "closed": closed}
            rows.append({**row, **estimate("more", more, seed)})
    return rows
