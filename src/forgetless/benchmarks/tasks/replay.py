"""`forgetless bench replay`: what policies send over whole agent runs, and what it costs with a prompt cache.

Each model call of a recorded run is made again: the history before it goes through a session under a budget, and what
would be sent is compared, message by message on the wire, with what was sent the call before. No model is called: the
recorded reply follows, whatever was sent, so this says what a policy costs and not what an agent would do under it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial
from itertools import product
from json import dumps
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, TypeAlias

from cyclopts import Parameter

from forgetless.benchmarks.metrics import by_policy, estimate
from forgetless.benchmarks.peers import PINS, Peers
from forgetless.benchmarks.plots import draw, replay_plot
from forgetless.benchmarks.prices import PRICES, Price, Request, cost
from forgetless.benchmarks.results import open_run
from forgetless.benchmarks.subjects import subject
from forgetless.benchmarks.validators.chat import validate
from forgetless.compaction import compact
from forgetless.datasets.trajectories import Recording, load_trajectories
from forgetless.errors import BudgetError, ConfigError
from forgetless.registry import DEFAULT, LASTING, load_dialect, policy_names
from forgetless.session import LOW, Session
from forgetless.tokens import Counter, for_model

__all__ = ["EVERY_TURN", "FULL", "MAIN", "Cell", "replay"]

BENCHMARK = "replay@1"

FULL = "full"
EVERY_TURN = f"{DEFAULT}-every-turn"
"""The default policy without a session: it chooses anew at each call, for what the newest step asks."""

LANGCHAIN = ("langchain-trim", "langchain-trim-defaults")
MAIN = PRICES[0]
"""The price of the figures with intervals: the runs were recorded with this model's predecessor."""

COUNTS = ("over", "refused", "overstated", "understated")

History: TypeAlias = Sequence[Mapping[str, Any]]
Many = Parameter(consume_multiple=True)


@dataclass(frozen=True, slots=True)
class Sent:
    """What goes out for one call.

    Attributes:
        messages: on the wire.
        tokens: what the library says it sends; None where it says nothing.
        reused: what it says is the start of its previous request.
    """

    messages: History
    tokens: int | None = None
    reused: int | None = None


Sender: TypeAlias = Callable[[History], Sent]


@dataclass(slots=True)
class Cell:
    """What one policy did under one budget (None: without one) in one run.

    Attributes:
        requests: one for each model call.
        evictions: by the session's own count; None where there is no session.
        rewrites: requests that do not begin with the whole of the previous one.
        over: requests above the budget by our count; for our policies, what must stay was.
        refused: requests that a provider would refuse.
        overstated: calls in which our `tokens` is not what the wire says, or our `reused_tokens` is more.
        understated: calls in which our `reused_tokens` is less.
    """

    task: str
    trial: str
    policy: str
    budget: int | None
    requests: list[Request] = field(default_factory=list)
    evictions: int | None = None
    rewrites: int = 0
    over: int = 0
    refused: int = 0
    overstated: int = 0
    understated: int = 0

    @property
    def run(self) -> tuple[str, str]:
        """The run that it belongs to."""
        return self.task, self.trial

    @property
    def tokens(self) -> int:
        """Of all requests together."""
        return sum(request.tokens for request in self.requests)

    @property
    def share(self) -> float:
        """Of the tokens sent, those that are an exact prefix of the previous request."""
        return sum(request.prefix for request in self.requests) / max(1, self.tokens)

    @property
    def peak(self) -> int:
        """Tokens of the largest request."""
        return max(request.tokens for request in self.requests)

    def cents(self, price: Price, *, caching: bool) -> float:
        """Of the whole run."""
        return 100 * cost(self.requests, price, caching=caching)

    def record(self) -> dict[str, Any]:
        """The row for `records.jsonl`."""
        columns = {name: [getattr(request, name) for request in self.requests] for name in Request.__slots__}
        return {name: getattr(self, name) for name in self.__slots__ if name != "requests"} | columns


def replay(
    *,
    data: Path,
    out: Path = Path("results/replay"),
    seed: int = 0,
    budgets: Annotated[tuple[int, ...], Many] = (4_000,),
    lows: Annotated[tuple[float, ...], Many] = (),
    peers: bool = True,
    json: bool = False,
) -> None:
    """Measure what every policy sends and costs over recorded agent runs, beside LangChain's trimming.

    Args:
        data: the file of recorded runs, or the folder that holds it.
        out: the results folder.
        seed: of the bootstrap intervals.
        budgets: tokens of the whole request.
        lows: low water marks to try with the default policy, as shares of the room that what must stay leaves.
        peers: compare with LangChain, in an environment that is made when missing.
        json: print the summary to stdout, and the tables to stderr.
    """
    budgets, lows = tuple(sorted(set(budgets))), tuple(sorted(set(lows)))
    if min((*budgets, 1)) < 1 or not budgets:
        raise ConfigError(f"budgets must be above 0 tokens, not {budgets!r}")
    if not all(0 < low <= 1 for low in lows):
        raise ConfigError(f"low water marks must be above 0 and at most 1, not {lows!r}")
    recordings = [recording for recording in load_trajectories(data) if any(_calls(recording))]
    if not recordings:
        raise ConfigError(f"{str(data)!r} holds no run with a model call")
    config = {
        "data": data.name,
        "seed": seed,
        "budgets": budgets,
        "low": LOW,
        "lows": lows,
        "peers": PINS[:1] if peers else (),
        "prices": [asdict(price) for price in PRICES],
    }
    with ExitStack() as stack:
        others = stack.enter_context(Peers()) if peers else None
        run = stack.enter_context(open_run(out, BENCHMARK, **config))
        cells: list[Cell] = []
        swept: dict[float, list[Cell]] = {low: [] for low in lows}
        for recording in _progress(recordings):
            measured = _Measured(recording, _counter())
            for cell in measured.cells(budgets, others):
                run.record(**cell.record())
                cells.append(cell)
            for low, budget in product(lows, budgets):
                cell = measured.under(LASTING, budget, low)
                run.record(low=low, **cell.record())
                swept[low].append(cell)
        summary = _summary(cells, swept, budgets, seed)
        run.finish(summary)
    draw(replay_plot, summary, out / "replay.png")
    _tables(summary, stderr=json)
    if json:
        print(dumps(summary, indent=2))


@lru_cache(maxsize=1)
def _counter() -> Counter:
    """The built-in counter, which here meets every text many times."""
    return Counter(lru_cache(maxsize=100_000)(for_model().text))


def _progress(items: Sequence[Recording]) -> Iterable[Recording]:
    from rich.console import Console
    from rich.progress import track

    return track(items, "runs", console=Console(stderr=True), transient=True)


def _calls(recording: Recording) -> Iterator[int]:
    """Places of the replies that have anything before them."""
    return (place for place, message in enumerate(recording.messages) if place and message["role"] == "assistant")


class _Measured:
    """One run, and a scale for what is sent in it: wire messages as text, with their tokens, each counted once."""

    def __init__(self, recording: Recording, counter: Counter) -> None:
        self.recording = recording
        self.counter = counter
        self.wire = load_dialect("chat")
        self.known: dict[str, int] = {}

    def cells(self, budgets: Sequence[int], others: Peers | None) -> Iterator[Cell]:
        """The whole history, then every policy (in a session, and the default one anew each turn) and LangChain."""
        yield self._cell(FULL, None, Sent)
        for budget in budgets:
            for name in policy_names():
                if name != FULL:  # which has no answer above the budget
                    yield self.under(name, budget, LOW)
            yield self._cell(EVERY_TURN, budget, partial(_anew, budget, subject(DEFAULT, self.counter), self.counter))
            for name in LANGCHAIN if others else ():
                assert others is not None
                yield self._cell(name, budget, partial(_trimmed, others, name, budget))

    def under(self, name: str, budget: int, low: float) -> Cell:
        """The run in a session of its own."""
        session = Session(budget=budget, low=low, policy=name, counter=self.counter)
        cell = self._cell(name, budget, partial(_prepared, session, name, self.counter))
        cell.evictions = session.evictions
        return cell

    def _cell(self, name: str, budget: int | None, send: Sender) -> Cell:
        messages = self.recording.messages
        cell = Cell(self.recording.task, self.recording.trial, name, budget)
        before: list[tuple[str, int]] = []
        told = True  # whether the library knows the previous request
        for place in _calls(self.recording):
            sent = send(messages[:place])
            now = self._weighed(sent.messages)
            prefix, tokens = _common(before, now), _total(now)
            output = _total(self._weighed([messages[place]]))
            cell.requests.append(Request(tokens, prefix, output))
            cell.rewrites += prefix < _total(before)
            cell.over += budget is not None and tokens > budget
            cell.refused += bool(validate(list(sent.messages)))
            reused = prefix if sent.reused is None or not told else sent.reused
            cell.overstated += sent.tokens not in (None, tokens) or reused > prefix
            cell.understated += reused < prefix
            before, told = now, sent.reused is not None
        return cell

    def _weighed(self, messages: History) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        for message in messages:
            text = dumps(message)
            if text not in self.known:
                self.known[text] = sum(map(self.counter.message, self.wire.parse([message]).messages))
            found.append((text, self.known[text]))
        return found


def _total(weighed: Iterable[tuple[str, int]]) -> int:
    return sum(tokens for _, tokens in weighed)


def _common(before: Sequence[tuple[str, int]], now: Sequence[tuple[str, int]]) -> int:
    """Tokens of the messages at the start that are the same, byte for byte."""
    same = 0
    for one, other in zip(before, now, strict=False):
        if one != other:
            break
        same += one[1]
    return same


def _prepared(session: Session, name: str, counter: Counter, history: History) -> Sent:
    try:
        done = session.prepare(history)
    except BudgetError as error:
        return _floor(history, error, name, counter)
    return Sent(done.messages, done.tokens, done.reused_tokens)


def _anew(budget: int, policy: Any, counter: Counter, history: History) -> Sent:
    try:
        done = compact(history, budget=budget, policy=policy, counter=counter)
    except BudgetError as error:
        return _floor(history, error, policy, counter)
    return Sent(done.messages, done.tokens)


def _floor(history: History, error: BudgetError, policy: Any, counter: Counter) -> Sent:
    """What must stay, over the budget as it is: what the proxy sends then."""
    return Sent(compact(history, budget=error.floor, policy=policy, counter=counter).messages)


def _trimmed(others: Peers, name: str, budget: int, history: History) -> Sent:
    """What LangChain makes of it; a failure is an empty request, which is refused."""
    return Sent(others.call(name, history, budget).messages or [])


def _summary(
    cells: Sequence[Cell], swept: Mapping[float, Sequence[Cell]], budgets: Sequence[int], seed: int
) -> dict[str, Any]:
    whole = {cell.run: cell for cell in cells if cell.policy == FULL}
    row = partial(_row, whole, seed)
    return {
        "task": BENCHMARK,
        "tasks": len({cell.task for cell in whole.values()}),
        "runs": len(whole),
        "calls": sum(len(cell.requests) for cell in whole.values()),
        "pressed": {
            str(budget): {
                "runs": sum(cell.peak > budget for cell in whole.values()),
                "calls": sum(request.tokens > budget for cell in whole.values() for request in cell.requests),
            }
            for budget in budgets
        },
        "price": MAIN.model,
        "rows": by_policy(cells, row),
        "lows": [{"low": low, **found} for low, tried in swept.items() for found in by_policy(tried, row)],
    }


def _row(whole: Mapping[tuple[str, str], Cell], seed: int, cells: list[Cell]) -> dict[str, Any]:
    """Means over runs, with intervals that draw whole tasks, since runs of one task resemble one another."""

    def over_tasks(name: str, figure: Callable[[Cell], float]) -> dict[str, float | None]:
        groups: dict[str, list[float]] = {}
        for cell in cells:
            groups.setdefault(cell.task, []).append(figure(cell))
        return estimate(name, groups, seed)

    def beside_full(cell: Cell) -> float:
        return cell.cents(MAIN, caching=True) / whole[cell.run].cents(MAIN, caching=True)

    evictions = [cell.evictions for cell in cells if cell.evictions is not None]
    return {
        **over_tasks("prefix_share", lambda cell: cell.share),
        **over_tasks("input", lambda cell: cell.tokens),
        "input_total": sum(cell.tokens for cell in cells),
        "peak": max(cell.peak for cell in cells),
        "evictions": round(fmean(evictions), 4) if evictions else None,
        "rewrites": round(fmean(cell.rewrites for cell in cells), 4),
        **{name: sum(getattr(cell, name) for cell in cells) for name in COUNTS},
        **over_tasks("cached", lambda cell: cell.cents(MAIN, caching=True)),
        **over_tasks("uncached", lambda cell: cell.cents(MAIN, caching=False)),
        **over_tasks("cached_to_full", beside_full),
        "cents": {
            price.model: {
                name: round(fmean(cell.cents(price, caching=caching) for cell in cells), 4)
                for name, caching in (("cached", True), ("uncached", False))
            }
            for price in PRICES
        },
    }


def _tables(summary: Mapping[str, Any], *, stderr: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    stream = sys.stderr if stderr else sys.stdout
    console = Console(file=stream, width=None if stream.isatty() else 160)
    for rows, first in ((summary["rows"], "policy"), (summary["lows"], "low")):
        table = Table(first, "budget", "prefix share", "input", "evictions", "rewrites", "peak", "over", "refused")
        for name in ("cached, cents", "uncached", "cached beside full"):
            table.add_column(name)
        for row in rows:
            budget = "none" if row["budget"] is None else f"{row['budget']:,}"
            evictions = "-" if row["evictions"] is None else f"{row['evictions']:.2f}"
            counts = [f"{row['rewrites']:.2f}", *(f"{row[name]:,}" for name in ("peak", "over", "refused"))]
            money = [f"{row[name]:.2f}" for name in ("cached", "uncached")]
            shares = _figure(row, "prefix_share"), f"{row['input']:,.0f}"
            table.add_row(str(row[first]), budget, *shares, evictions, *counts, *money, _figure(row, "cached_to_full"))
        if rows:
            table.title = f"{summary['task']}, {summary['price']}"
            wrong = [sum(row[name] for row in rows) for name in ("overstated", "understated")]
            table.caption = "beside the wire our reused_tokens is too high in {:,} calls, too low in {:,}".format(
                *wrong
            )
            console.print(table)


def _figure(row: Mapping[str, Any], name: str) -> str:
    return f"{row[name]:.2f} [{row[f'{name}_low']:.2f}, {row[f'{name}_high']:.2f}]"
