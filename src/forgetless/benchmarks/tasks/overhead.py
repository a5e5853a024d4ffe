"""`forgetless bench overhead`: time and memory of a `compact` call, beside other libraries' in the same run.

Repeats are interleaved, ours and theirs in turn, so that noise of the machine hits all alike. Each library
runs in a process of its own, and in all of them Python's cyclic collector is left as it is.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from json import dumps
from pathlib import Path
from random import Random
from statistics import median
from typing import Annotated, Any, TypeAlias

from cyclopts import Parameter

from forgetless.benchmarks.peers import PINS, Measure, Peers
from forgetless.benchmarks.plots import draw, overhead_plot
from forgetless.benchmarks.results import Run, open_run
from forgetless.compaction import compact
from forgetless.errors import ConfigError
from forgetless.registry import load_dialect, load_policy
from forgetless.session import Session
from forgetless.splitting import split
from forgetless.tokens import for_model

__all__ = ["VARIANTS", "history", "overhead"]

BENCHMARK = "overhead@2"
OURS = ("full", "recent", "fifo", "masking", "bm25")
TURN = "session turn"
"""One more turn of a session that has seen all before it, without an eviction."""
LANGCHAIN = "langchain-trim-defaults"
SUBJECTS: Mapping[str, tuple[str, ...]] = {
    "chat": (*OURS, TURN, LANGCHAIN, "litellm-compress", "litellm-trim"),
    "steps": (*OURS, TURN, LANGCHAIN),
}
VARIANTS = tuple(SUBJECTS)

ROOM = 10**9  # a budget that `full` never meets
LIMIT = 60.0  # seconds; a peer that takes longer is given up, at this size and all larger ones
SLOW = 5.0  # seconds; what takes longer is repeated only `FEW` times
FEW = 3
STAGES_AT = 10_000

# subject, against whom, most times as long: at `STAGES_AT` messages
TARGETS = (
    ("recent", LANGCHAIN, 1.5),
    ("bm25", LANGCHAIN, 4.0),
    ("recent", "litellm-compress", 1.0),
    ("bm25", "litellm-compress", 1.0),
    (TURN, LANGCHAIN, 0.02),
)
GROWTH_TARGET = 1.1  # times LangChain's own growth from the second largest size to the largest

WORDS = """
a about across address after again agreement all almost already also always an ancient and animal any
apartment apple are area army arrival artist as ask at audience avenue back bank battle be beautiful become
been before begin believe benefit beyond big blanket boat borrow bottom boy bread breakfast bright brother
build burden but butter by call came camera can capital careful carriage cattle center certain chamber
change character children circle city clothes coast collar college come common complete condition contain
copper cottage could country course cover culture current customer danger day decide degree depend desert
detail did difficult direction distance do does down dozen dream each early eastern effort electric empty
end enough even event example expect explain family farmer favorite fellow festival figure find finger first
flavor floor follow for forest form forward friend from garden general get give glass go good grain gravel
great had hand hardly has have he heavy help her here him his holiday home horizon hotel how hunger if
imagine in industry instead into is it its jacket judge just kind know knowledge land language large lawyer
lesson library like line listen live long look machine made make man many marriage may me mean medicine
member men merchant middle mirror moment more most mountain move much must my name narrow nature need new no
not nothing now number ocean of old on one only or orange ordinary other our out over paper part passage
pattern perhaps picture place planet pocket possible practice present problem put question railway read
remember right river said same saturday say second see sentence set shadow she show silver small so soldier
some sound station street such sudden surface take tell temple than that the their them then there these
they thing think this thought three through time to tomorrow too trouble try turn two understand up us use
vegetable very visitor want was way we wednesday well went were what when where which who why will window
with without wooden word work would write year yesterday you your
""".split()  # noqa: SIM905 - three hundred quotes would hide the words
CHARS = 480  # at most, per message: about 105 tokens of these words and marks, and 4 for the message
MARKS = (" ", " ", " ", " ", " ", " ", ", ", ". ", "; ", "? ")

History: TypeAlias = list[dict[str, Any]]
Times: TypeAlias = dict[str, list[float]]


def history(size: int, seed: int = 0, variant: str = "chat") -> History:
    """A history of `size` messages of about 110 tokens each, the same for the same arguments.

    Args:
        size: number of messages, the system message included.
        seed: of the words.
        variant: `chat` has user and assistant in turn; `steps` has three calls with their results a turn.
    """
    rng = Random(f"{variant}:{seed}")
    messages: History = [{"role": "system", "content": _prose(rng)}]
    for at in range(size - 1):
        place = at % (2 if variant == "chat" else 8)
        if place == 0:
            messages.append({"role": "user", "content": _prose(rng)})
        elif variant == "chat" or place == 7:
            messages.append({"role": "assistant", "content": _prose(rng)})
        elif place % 2:
            messages.append({"role": "assistant", "content": None, "tool_calls": [_call(rng, at)]})
        else:
            messages.append({"role": "tool", "tool_call_id": f"call_{at - 1}", "content": _prose(rng)})
    return messages[:size]


def _prose(rng: Random) -> str:
    words, marks = rng.choices(WORDS, k=CHARS // 4), rng.choices(MARKS, k=CHARS // 4)
    text = "".join([piece for pair in zip(words, marks, strict=True) for piece in pair])
    return text[: CHARS - 1].rsplit(" ", 1)[0].rstrip(",.;? ") + "."


def _call(rng: Random, at: int) -> dict[str, Any]:
    arguments = dumps({"query": _prose(rng)[: CHARS * 4 // 5], "limit": rng.randrange(100)})
    return {"id": f"call_{at}", "type": "function", "function": {"name": "search", "arguments": arguments}}


def overhead(
    *,
    sizes: Annotated[tuple[int, ...], Parameter(consume_multiple=True)] = (100, 1_000, 10_000, 100_000),
    repeats: int = 7,
    budget: int = 8_000,
    out: Path = Path("results/overhead"),
    seed: int = 0,
    peers: bool = True,
    json: bool = False,
) -> None:
    """Measure time and memory of a call of `compact`, beside LangChain and LiteLLM on the same histories.

    Args:
        sizes: numbers of messages.
        repeats: calls per subject and size; slow ones are repeated three times.
        budget: most tokens to keep.
        out: the results folder.
        seed: of the words in the messages.
        peers: compare with other libraries, in an environment that is made when missing.
        json: print the summary to stdout.
    """
    if not sizes or min(sizes) < 2 or repeats < 1:
        raise ConfigError(f"sizes must be at least 2 and repeats at least 1, not {sizes!r} and {repeats!r}")
    sizes = tuple(sorted(sizes))
    config = {
        "seed": seed,
        "sizes": sizes,
        "repeats": repeats,
        "budget": budget,
        "peers": PINS if peers else (),
    }
    with open_run(out, BENCHMARK, data="seeded words", **config) as run:
        if peers:
            with Peers() as others:
                table = _measure(_Bench(run, repeats, budget, others), sizes, seed)
        else:
            table = _measure(_Bench(run, repeats, budget), sizes, seed)
        summary = _summary(table, sizes)
        summary["stages"] = _stages(min(STAGES_AT, sizes[-1]), budget, seed, repeats)
        run.finish(summary)
    draw(overhead_plot, summary, out / "overhead.png")
    if json:
        print(dumps(summary, indent=2))


@dataclass
class _Bench:
    """Times one subject at a time and records what it finds."""

    run: Run
    repeats: int
    budget: int
    others: Peers | None = None
    given_up: dict[str, str] = field(default_factory=dict)  # peer -> why

    def measure(self, variant: str, messages: History) -> dict[str, Any]:
        """Times, by repeats in turn, and peak memory of every subject on one history."""
        subjects = [s for s in SUBJECTS[variant] if s in (*OURS, TURN) or self.others is not None]
        times: Times = {subject: [] for subject in subjects}
        place = {"variant": variant, "size": len(messages)}
        if self.others is not None:
            self.others.load(messages)
        for repeat in range(self.repeats):
            for subject in subjects:
                taken = times[subject]
                if subject in self.given_up or (repeat >= FEW and min(taken, default=0.0) > SLOW):
                    continue
                seconds = self._one(subject, messages, memory=False)
                self.run.record(**place, subject=subject, repeat=repeat, seconds=seconds)
                if seconds is not None:
                    taken.append(seconds)
        rows: dict[str, Any] = {}
        for subject in subjects:
            if subject in self.given_up:
                rows[subject] = {"error": self.given_up[subject]}
                continue
            # Tracing slows a call several times over: not for those that are slow without it.
            peak = self._one(subject, messages, memory=True) if min(times[subject]) < SLOW else None
            self.run.record(**place, subject=subject, bytes=peak)
            beside = {peer: times[peer] for peer in subjects if peer not in (*OURS, TURN) and times[peer]}
            rows[subject] = _row(times[subject], beside, peak)
        return rows

    def _one(self, subject: str, messages: History, *, memory: bool) -> float | None:
        """Seconds or peak bytes of one call; None, with a note in `given_up`, where the peer fails."""
        if subject == TURN:
            return (_peak if memory else _timed)(_turn(messages))
        if subject in OURS:
            budget = ROOM if subject == "full" else self.budget
            return (_peak if memory else _timed)(lambda: compact(messages, budget=budget, policy=subject))
        assert self.others is not None
        ask = self.others.memory if memory else self.others.time
        found: Measure = ask(subject, self.budget, limit=LIMIT)
        if found.error is not None and not memory:
            self.given_up[subject] = found.error
        return found.value


def _measure(bench: _Bench, sizes: Sequence[int], seed: int) -> dict[str, dict[int, dict[str, Any]]]:
    table: dict[str, dict[int, dict[str, Any]]] = {}
    for variant in VARIANTS:
        table[variant] = {}
        for size in sizes:
            print(f"{variant}, {size:,} messages", file=sys.stderr, flush=True)
            rows = table[variant][size] = bench.measure(variant, history(size, seed, variant))
            for subject, row in rows.items():
                print(f"  {subject:24} {_shown(row)}", file=sys.stderr, flush=True)
    return table


def _turn(messages: History) -> Callable[[], object]:
    """The next turn of a session: a user's message and what goes before it were said since the last one."""
    session = Session(budget=ROOM)
    for ago in (10, 8, 6, 4, 2):
        session.prepare(messages[: max(1, len(messages) - ago)])
    return lambda: session.prepare(messages)


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    result = call()
    seconds = time.perf_counter() - start
    del result  # freed outside of the time taken, as in the peers' processes
    return seconds


def _peak(call: Callable[[], object]) -> float:
    tracemalloc.start()
    call()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def _row(times: list[float], beside: Mapping[str, list[float]], peak: float | None) -> dict[str, Any]:
    """Figures of one subject at one size, and how many times as long as each peer it takes.

    `ratio_pairs` is the median of the ratios of each repeat. `ratio_min` is that of the minima, in which one
    or the other may have met no full pass of the collector.
    """
    return {
        "min_ms": min(times) * 1e3,
        "median_ms": median(times) * 1e3,
        "peak_bytes": peak,
        "ratio_pairs": {
            peer: median(one / other for one, other in zip(times, theirs, strict=False))
            for peer, theirs in beside.items()
        },
        "ratio_min": {peer: min(times) / min(theirs) for peer, theirs in beside.items()},
    }


def _shown(row: Mapping[str, Any]) -> str:
    if "error" in row:
        return str(row["error"])
    ratio = row["ratio_pairs"].get(LANGCHAIN)
    beside = "" if ratio is None else f"  {ratio:8.2f} x LangChain"
    return f"{row['min_ms']:12.2f} ms {row['median_ms']:12.2f} ms{beside}"


def _summary(table: Mapping[str, Mapping[int, Mapping[str, Any]]], sizes: Sequence[int]) -> dict[str, Any]:
    """Everything that a reader or a plot needs: variant -> size -> subject -> figures, growth, targets."""
    return {
        "sizes": list(sizes),
        "variants": {v: {str(size): rows for size, rows in by_size.items()} for v, by_size in table.items()},
        "growth": {variant: _growth(by_size, sizes) for variant, by_size in table.items()},
        "targets": _targets(table["chat"], sizes),
    }


def _growth(by_size: Mapping[int, Mapping[str, Any]], sizes: Sequence[int]) -> dict[str, Any]:
    """How many times longer the largest size takes than the one before it, and that beside LangChain's.

    By medians: a minimum may have met no full pass of the collector at the smaller size only.
    """
    if len(sizes) < 2:
        return {}
    small, large = by_size[sizes[-2]], by_size[sizes[-1]]
    subjects = {
        name: {f"factor_{kind}": row[f"{kind}_ms"] / small[name][f"{kind}_ms"] for kind in ("median", "min")}
        for name, row in large.items()
        if "error" not in row
    }
    theirs = subjects.get(LANGCHAIN)
    if theirs is not None:
        for factors in subjects.values():
            factors["to_langchain"] = factors["factor_median"] / theirs["factor_median"]
    return {"from": sizes[-2], "to": sizes[-1], "subjects": subjects}


def _targets(by_size: Mapping[int, Mapping[str, Any]], sizes: Sequence[int]) -> list[dict[str, Any]]:
    """What is promised beside LangChain and LiteLLM, and whether it held; empty without peers."""
    found: list[tuple[str, float, float]] = []
    for subject, peer, limit in TARGETS:
        row = by_size.get(STAGES_AT, {}).get(subject, {})
        if (measured := row.get("ratio_pairs", {}).get(peer)) is not None:
            found.append((f"{subject} beside {peer} at {STAGES_AT:,} messages", limit, measured))
    grown = _growth(by_size, sizes).get("subjects", {})
    for subject in ("recent", "bm25"):
        if (measured := grown.get(subject, {}).get("to_langchain")) is not None:
            what = f"growth of {subject} beside {LANGCHAIN} from {sizes[-2]:,} to {sizes[-1]:,} messages"
            found.append((what, GROWTH_TARGET, measured))
    return [{"what": w, "limit": limit, "measured": m, "met": m <= limit} for w, limit, m in found]


def _stages(size: int, budget: int, seed: int, repeats: int) -> dict[str, Any]:
    """Milliseconds of each stage of `compact` on the chat history of `size`, timed one by one.

    `split` holds `count`; what is over is the cutting and the keys. `policy` has one figure a policy.
    """
    messages = history(size, seed)
    wire, counter = load_dialect("chat"), for_model()
    parsed = wire.parse(messages)
    units = split(parsed.messages, counter)
    calls: dict[str, Callable[[], object]] = {
        "parse": lambda: wire.parse(messages),
        "split": lambda: split(parsed.messages, counter),
        "count": lambda: sum(map(counter.message, parsed.messages)),
        "emit": lambda: wire.emit(parsed, parsed.messages),
    }
    for name in OURS:
        policy, room = load_policy(name, counter=counter), ROOM if name == "full" else budget
        calls[f"policy {name}"] = partial(policy, units, room)
    times: Times = {stage: [] for stage in calls}
    for _ in range(repeats):
        for stage, call in calls.items():
            times[stage].append(_timed(call))
    return {"size": size, "min_ms": {stage: min(taken) * 1e3 for stage, taken in times.items()}}
