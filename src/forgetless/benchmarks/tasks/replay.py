"""`forgetless bench replay`: what policies send over whole agent runs, and what it costs with a prompt cache.

Each model call of a recorded run is made again: the history before it goes through a session under a budget, and what
would be sent is compared, message by message on the wire, with what was sent the call before. No model is called: the
recorded reply follows, whatever was sent, so this says what a policy costs and not what an agent would do under it. The
same for an agent that rewrites a memory of a given size at each turn (CCM).
"""

from __future__ import annotations

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

from forgetless.benchmarks.agent_plots import ccm_plot
from forgetless.benchmarks.ccm_costs import MEMORIES, Shape, break_evens, by_length, rewritten, told
from forgetless.benchmarks.metrics import by_policy, estimate
from forgetless.benchmarks.peers import PINS, Peers
from forgetless.benchmarks.plots import draw, replay_plot
from forgetless.benchmarks.prices import PRICES, Price, Request, cost
from forgetless.benchmarks.replay_tables import tables
from forgetless.benchmarks.results import open_run
from forgetless.benchmarks.scale import Piece, Scale, common, total
from forgetless.benchmarks.subjects import subject
from forgetless.benchmarks.validators.chat import validate
from forgetless.compaction import compact
from forgetless.datasets.trajectories import Recording, load_trajectories
from forgetless.errors import BudgetError, ConfigError
from forgetless.registry import DEFAULT, LASTING, policy_names
from forgetless.session import LOW, Session
from forgetless.tokens import Counter, for_model

__all__ = ["EVERY_TURN", "FULL", "MAIN", "Cell", "replay"]

BENCHMARK = "replay@2"

FULL, CCM = "full", "ccm"
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
    memories: Annotated[tuple[int, ...], Many] = MEMORIES,
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
        memories: tokens of a memory that the agent rewrites at each turn in place of having its history (CCM).
        peers: compare with LangChain, in an environment that is made when missing.
        json: print the summary to stdout, and the tables to stderr.
    """
    budgets, lows, memories = _checked(budgets, lows, memories)
    recordings = [recording for recording in load_trajectories(data) if any(_calls(recording))]
    if not recordings:
        raise ConfigError(f"{str(data)!r} holds no run with a model call")
    config = {
        "data": data.name,
        "seed": seed,
        "budgets": budgets,
        "low": LOW,
        "lows": lows,
        "memories": memories,
        "peers": PINS[:1] if peers else (),
        "prices": [asdict(price) for price in PRICES],
    }
    with ExitStack() as stack:
        others = stack.enter_context(Peers()) if peers else None
        run = stack.enter_context(open_run(out, BENCHMARK, **config))
        cells: list[Cell] = []
        swept: dict[float, list[Cell]] = {low: [] for low in lows}
        kept: dict[int, list[Cell]] = {memory: [] for memory in memories}
        for recording in _progress(recordings):
            measured = _Measured(recording, _counter())
            for cell in measured.cells(budgets, others):
                run.record(**cell.record())
                cells.append(cell)
            for low, budget in product(lows, budgets):
                cell = measured.under(LASTING, budget, low)
                run.record(low=low, **cell.record())
                swept[low].append(cell)
            for memory in memories:
                cell = measured.with_memory(memory)
                run.record(memory=memory, **cell.record())
                kept[memory].append(cell)
        summary = _summary(cells, swept, budgets, seed) | {"ccm": _ccm(cells, kept, recordings, seed)}
        run.finish(summary)
    draw(replay_plot, summary, out / "replay.png")
    if memories:
        draw(ccm_plot, summary, out / "ccm.png")
    tables(summary, stderr=json)
    if json:
        print(dumps(summary, indent=2))


def _checked(
    budgets: tuple[int, ...], lows: tuple[float, ...], memories: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[float, ...], tuple[int, ...]]:
    """The options, each once and in order."""
    if min((*budgets, 1)) < 1 or not budgets:
        raise ConfigError(f"budgets must be above 0 tokens, not {budgets!r}")
    if not all(0 < low <= 1 for low in lows):
        raise ConfigError(f"low water marks must be above 0 and at most 1, not {lows!r}")
    if min((*memories, 0)) < 0:
        raise ConfigError(f"memories must be at least 0 tokens, not {memories!r}")
    return tuple(sorted(set(budgets))), tuple(sorted(set(lows))), tuple(sorted(set(memories)))


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
    """One run, and a scale for what is sent in it."""

    def __init__(self, recording: Recording, counter: Counter) -> None:
        self.recording = recording
        self.counter = counter
        self.scale = Scale(counter)

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

    def with_memory(self, memory: int) -> Cell:
        """The run of an agent that rewrites its memory."""
        cell = Cell(self.recording.task, self.recording.trial, CCM, None)
        cell.requests = rewritten(
            self.recording.messages, [*_calls(self.recording)], memory, self.scale, told(self.counter)
        )
        cell.rewrites = len(cell.requests) - 1
        return cell

    def _cell(self, name: str, budget: int | None, send: Sender) -> Cell:
        messages = self.recording.messages
        cell = Cell(self.recording.task, self.recording.trial, name, budget)
        before: list[Piece] = []
        told = True  # whether the library knows the previous request
        for place in _calls(self.recording):
            sent = send(messages[:place])
            now = self.scale.weigh(sent.messages)
            prefix, tokens = common(before, now), total(now)
            output = total(self.scale.weigh([messages[place]]))
            cell.requests.append(Request(tokens, prefix, output))
            cell.rewrites += prefix < total(before)
            cell.over += budget is not None and tokens > budget
            cell.refused += bool(validate(list(sent.messages)))
            reused = prefix if sent.reused is None or not told else sent.reused
            cell.overstated += sent.tokens not in (None, tokens) or reused > prefix
            cell.understated += reused < prefix
            before, told = now, sent.reused is not None
        return cell


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


def _ccm(
    cells: Sequence[Cell], kept: Mapping[int, Sequence[Cell]], recordings: Sequence[Recording], seed: int
) -> dict[str, Any]:
    """What a memory costs: over all runs, by their length, and from which length on it is cheaper."""
    whole = {cell.run: cell for cell in cells if cell.policy == FULL}
    shape = Shape.of(
        ((recording.messages, [*_calls(recording)]) for recording in recordings), Scale(_counter()), told(_counter())
    )
    with_memory = {memory: [cell.requests for cell in found] for memory, found in kept.items()}
    return {
        "rows": [
            {"memory": memory, **row}
            for memory, found in kept.items()
            for row in by_policy(found, partial(_row, whole, seed))
        ],
        "by_length": by_length([cell.requests for cell in whole.values()], with_memory, MAIN, shape.told),
        "shape": asdict(shape),
        "break_even": break_evens(shape, [*kept]),
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
