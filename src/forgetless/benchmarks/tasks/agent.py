"""`forgetless bench agent`: how well an agent works under each policy, and what that takes.

Every episode is played anew under every policy and budget, by one loop. What is measured is what the agent does with
the context that it gets, not what a recorded one would have had. A run that broke off goes on where it stopped.
"""

from __future__ import annotations

import json as text
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from cyclopts import Parameter

from forgetless.benchmarks.agent_loop import Agent, Episode, Limits, play
from forgetless.benchmarks.agent_plots import agent_plot
from forgetless.benchmarks.agent_rows import MAIN, Cell, rows
from forgetless.benchmarks.keepers import EVERY_TURN, UNLIMITED, Keeper, Rewriting, Sessioned
from forgetless.benchmarks.plots import draw
from forgetless.benchmarks.results import Run, open_run, resume_run
from forgetless.benchmarks.scale import Scale
from forgetless.benchmarks.solvers import scripted
from forgetless.dialects.atif import atif_from_messages
from forgetless.environments.base import Environment
from forgetless.errors import ConfigError
from forgetless.models.base import Model
from forgetless.models.load import load_model
from forgetless.registry import DEFAULT, REWRITERS, load_environment, load_rewriter, options_of, policy_names
from forgetless.tokens import Counter, for_model

__all__ = ["agent"]

BENCHMARK = "agent@1"

FULL = "full"
SCRIPTED = "scripted"
WRITERS = frozenset(("acon", "summary"))
"""Policies that need a model to write for them."""

BUDGETS = (1_024, 1_536, 2_048, 3_072, 4_096, 6_144)
SHOWN = 2_048
"""The budget whose prompts are drawn, where it is measured."""

Many = Parameter(consume_multiple=True)
Job: TypeAlias = tuple[str, int | None, int]
"""Policy, budget and seed."""


@dataclass(frozen=True)
class Bench:
    """What all episodes of a run have in common.

    Attributes:
        environment: in which they are played.
        name: of the environment, as the command line has it.
        model: the agent's; None for the scripted one, which is made anew for each episode.
        tools: whether it takes tools.
        temperature: of it.
        counter: counts.
        limits: of an episode.
        writer: options of policies that need a model to write for them.
    """

    environment: Environment
    name: str
    model: Model | None
    tools: bool
    temperature: float
    counter: Counter
    limits: Limits
    writer: Mapping[str, Any]

    def keeper(self, policy: str, budget: int | None) -> Keeper:
        """A fresh keeper.

        Raises:
            ConfigError: unknown name or option.
        """
        room = UNLIMITED if budget is None else budget
        if policy in REWRITERS:
            template = "chat" if self.tools else "tags"
            return Rewriting(load_rewriter(policy, template=template, counter=self.counter), room, self.counter)
        return Sessioned(policy, room, self.counter, **(self.writer if policy in WRITERS else {}))

    def actor(self) -> Agent:
        """Who acts.

        Raises:
            ConfigError: nothing is scripted for this environment.
        """
        model = self.model or scripted(self.name, self.counter)
        return Agent(model, Scale(self.counter), self.tools, self.temperature)

    def play(self, policy: str, budget: int | None, seed: int) -> Episode:
        """One episode."""
        agent = Agent(
            self.model or scripted(self.name, self.counter), Scale(self.counter), self.tools, self.temperature
        )
        return play(self.environment, seed, self.keeper(policy, budget), agent, self.limits)


def agent(
    *,
    environment: str = "recall",
    data: Path | None = None,
    option: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    policy: Annotated[tuple[str, ...], Many] = (),
    budgets: Annotated[tuple[int, ...], Many] = BUDGETS,
    model: str = SCRIPTED,
    model_name: str | None = None,
    tools: bool | None = None,
    temperature: float = 0.0,
    summariser: str | None = None,
    summariser_name: str | None = None,
    episodes: int = 20,
    turns: int = 200,
    tokens: int | None = None,
    out: Path = Path("results/agent"),
    seed: int = 0,
    json: bool = False,
) -> None:
    """Let an agent work under every policy: success, tokens, cost and time; a trajectory (ATIF) for each episode.

    Args:
        environment: in which it works.
        data: what the environment reads, where it reads anything.
        option: NAME=VALUE, an option of the environment, such as codes=8; may be given more than once.
        policy: names; with `-every-turn` behind one, it chooses anew at each call; by default all that need no model.
        budgets: tokens of the whole request; `full` has none.
        model: `scripted`, `embedded`, the path of a .gguf file, or the address of an OpenAI-compatible server.
        model_name: the model's name at a server.
        tools: whether the model takes tools; by default unless it runs in this process.
        temperature: of the model.
        summariser: what writes for `summary` and `acon`, given as `model` is.
        summariser_name: its name at a server.
        episodes: to play under each policy and budget.
        turns: most model calls of an episode.
        tokens: input tokens after which an episode ends.
        out: the results folder.
        seed: of the first episode; the others follow it. Also of the bootstrap intervals.
        json: print the summary to stdout, and the table to stderr.
    """
    budgets = tuple(sorted(set(budgets)))
    if not budgets or min(*budgets, 1, episodes, turns, 1 if tokens is None else tokens) < 1:
        raise ConfigError(
            f"budgets, episodes, turns and tokens must be above 0, not {(budgets, episodes, turns, tokens)!r}"
        )
    policies = tuple(dict.fromkeys(policy)) or _all(summariser)
    if summariser is None and WRITERS.intersection(policies):
        raise ConfigError(f"{sorted(WRITERS.intersection(policies))[0]!r} needs a model that writes: give --summariser")
    given = options_of(option) | ({} if data is None else {"data": data})
    config = {
        "option": {name: value for name, value in given.items() if name != "data"},
        "data": None if data is None else data.name,
        "policies": policies,
        "budgets": budgets,
        "tools": tools,
        "temperature": temperature,
        "summariser": None if summariser is None else summariser_name or Path(summariser).name,
        "episodes": episodes,
        "seed": seed,
        "turns": turns,
        "tokens": tokens,
    }
    with ExitStack() as stack:
        played: Environment = stack.enter_context(closing(load_environment(environment, **given)))
        asked = None if model == SCRIPTED else stack.enter_context(closing(load_model(model, model_name)))
        bench = Bench(
            played,
            environment,
            asked,
            (asked is None or "://" in model) if tools is None else tools,
            temperature,
            _counter(asked),
            Limits(turns, tokens),
            {"summariser": summariser, "model_name": summariser_name},
        )
        config |= {"environment": played.name, "model": SCRIPTED if asked is None else asked.name}
        jobs = [
            (name, room, at) for name in policies for room in _rooms(name, budgets) for at in _seeds(seed, episodes)
        ]
        bench.actor()  # a name that is wrong is told before the work
        for name, room in dict.fromkeys((name, room) for name, room, _ in jobs):
            bench.keeper(name, room)
        opened = open_run if (out / "summary.json").exists() else resume_run
        run = stack.enter_context(opened(out, BENCHMARK, **config))
        cells = _played(bench, jobs, run)
        summary = _summary(cells, config, seed)
        run.finish(summary)
    draw(agent_plot, summary, out / "agent.png")
    _table(summary, stderr=json)
    if json:
        print(text.dumps(summary, indent=2))


def _played(bench: Bench, jobs: Sequence[Job], run: Run) -> list[Cell]:
    """The cells of all jobs; those that a broken run has left are not played again."""
    cells = {cell.key: cell for cell in map(Cell.read, run.before)}
    for job in _progress([job for job in jobs if job not in cells]):
        episode = bench.play(*job)
        cell = Cell.of(*job, episode, bench.counter)
        _log(run.folder / "episodes", bench, cell, episode)
        run.record(**cell.record())
        cells[job] = cell
    return [cells[job] for job in jobs]


def _all(summariser: str | None) -> tuple[str, ...]:
    """Every policy that can be measured here, the default one also anew at each turn."""
    writers = sorted(WRITERS) if summariser is not None else []
    return (*policy_names(), *writers, f"{DEFAULT}{EVERY_TURN}", *REWRITERS)


def _rooms(policy: str, budgets: Sequence[int]) -> Sequence[int | None]:
    return (None,) if policy == FULL else budgets


def _seeds(first: int, many: int) -> range:
    return range(first, first + many)


def _counter(model: Model | None) -> Counter:
    """The model's own counter where it has one, else the estimate, which here meets every text many times."""
    counter: Counter | None = getattr(model, "counter", None)
    return counter or Counter(lru_cache(maxsize=100_000)(for_model(model.name if model else None).text))


def _progress(jobs: Sequence[Job]) -> Iterable[Job]:
    from rich.console import Console
    from rich.progress import track

    return track(jobs, "episodes", console=Console(stderr=True), transient=True)


def _log(folder: Path, bench: Bench, cell: Cell, episode: Episode) -> None:
    """Write the trajectory of an episode."""
    folder.mkdir(exist_ok=True)
    name = f"{cell.policy}-{'whole' if cell.budget is None else cell.budget}-{cell.seed}"
    notes = [
        {
            "metrics": {"prompt_tokens": r.tokens, "completion_tokens": r.output, "cached_tokens": r.prefix},
            **({"extra": {"memory": memory}} if memory else {}),
        }
        for r, memory in zip(episode.requests, episode.memories, strict=True)
    ]
    trajectory = atif_from_messages(
        episode.messages,
        agent={
            "name": "forgetless",
            "version": version("forgetless"),
            "model_name": bench.model.name if bench.model else SCRIPTED,
        },
        session=f"{bench.environment.name} {name}",
        notes=notes,
        final_metrics={
            "total_prompt_tokens": cell.input,
            "total_completion_tokens": sum(r.output for r in episode.requests),
            "total_steps": len(episode.requests),
        },
        extra={"reward": cell.reward, "ended": cell.ended},
    )
    (folder / f"{name}.json").write_text(text.dumps(trajectory, ensure_ascii=False), encoding="utf-8")


def _summary(cells: Sequence[Cell], config: Mapping[str, Any], seed: int) -> dict[str, Any]:
    budgets = config["budgets"]
    return {
        "task": BENCHMARK,
        "environment": config["environment"],
        "model": config["model"],
        "price": MAIN.model,
        "shown": SHOWN if SHOWN in budgets else budgets[len(budgets) // 2],
        "rows": rows(cells, seed),
    }


def _table(summary: Mapping[str, Any], *, stderr: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    stream = sys.stderr if stderr else sys.stdout
    console = Console(file=stream, width=None if stream.isatty() else 170)
    heads = (
        "success",
        "solved",
        "ended",
        "steps",
        "input",
        "peak",
        "memory",
        "calls",
        "evictions",
        "cached",
        "uncached",
    )
    table = Table("policy", "budget", *heads, "s")
    for row in summary["rows"]:
        table.add_row(
            row["policy"],
            "none" if row["budget"] is None else f"{row['budget']:,}",
            f"{row['success']:.3f} [{row['success_low']:.3f}, {row['success_high']:.3f}]",
            f"{row['solved']:.2f}",
            ", ".join(f"{name} {many}" for name, many in row["ended"].items()),
            f"{row['steps']:.1f}",
            *(f"{row[name]:,.0f}" for name in ("input", "peak", "memory_peak", "compressor_calls")),
            f"{row['evictions']:.1f}",
            *(f"{row[name]:.2f}" for name in ("cached", "uncached", "seconds")),
        )
    table.title = f"{summary['task']}: {summary['environment']}, {summary['model']}; cents for {summary['price']}"
    console.print(table)
