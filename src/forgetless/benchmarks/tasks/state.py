"""`forgetless bench state`: instructions that a user reveals piece by piece (Lost in Conversation; REA, Table 10).

The same instruction is given in one piece (`full`), as the list of its shards (`concat`), and a shard a turn
(`sharded`), there under each policy: `vanilla`, the whole history, is what the paper calls Shared. The user reveals the
next shard word for word, whatever the model says. A run is solved when any reply is right, as the benchmark has it; how
often the last reply is right stands beside it, since one that guesses at every turn may be right by chance. What the
model says is kept in the folder (`answers.jsonl`), so a broken run, or one with one more policy, asks only what it has
not asked.
"""

from __future__ import annotations

import json as json_
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

import numpy as np
from cyclopts import Parameter

from forgetless.benchmarks.asked import Asked
from forgetless.benchmarks.evaluators.base import Evaluator
from forgetless.benchmarks.evaluators.calls import Calls
from forgetless.benchmarks.evaluators.code import Code
from forgetless.benchmarks.evaluators.number import Number
from forgetless.benchmarks.metrics import estimate, mean
from forgetless.benchmarks.player import Player
from forgetless.benchmarks.results import Run, open_run
from forgetless.datasets.lost_in_conversation import Sharded, read_sharded
from forgetless.errors import ConfigError
from forgetless.models.load import load_model

__all__ = ["BENCHMARK", "EVALUATORS", "NOT_RUN", "Played", "play", "state", "summarise"]

BENCHMARK = "state@1"

EVALUATORS: Mapping[str, Evaluator] = MappingProxyType({"actions": Calls(), "code": Code(), "math": Number()})
"""By task."""

NOT_RUN: Mapping[str, str] = MappingProxyType(
    {
        "code without test": "records from other sources than HumanEval bring no test that could be run",
        "data2text": "scored by BLEU against several references with a tokeniser of its own",
        "database": "the databases of Spider, which the tests run on, are not part of the records",
        "summary": "scored by a judge model over up to 100,000 tokens of documents",
        "translation": "scored by BLEU over documents that are not part of the records",
    }
)
"""Why the benchmark's other tasks are not run."""

CONCAT = "Take all of this into account:\n"

Many = Parameter(consume_multiple=True)


@dataclass(frozen=True, slots=True)
class Played:
    """One instruction in one setting.

    Attributes:
        task, kind: of the instruction.
        setting: `full`, `concat` or `sharded`.
        policy: what the model was shown of the conversation.
        solved: whether any reply was right.
        last: whether the last one was.
        attempts: replies that gave an answer.
        turns: replies.
        prompt_tokens: of all prompts.
        seconds: that the model took.
        failed: why a reply is missing, which ends the run; else "".
        replies: their words.
    """

    task: str
    kind: str
    setting: str
    policy: str
    solved: bool
    last: bool
    attempts: int
    turns: int
    prompt_tokens: int
    seconds: float
    failed: str
    replies: tuple[str, ...]


def state(
    *,
    data: Path,
    model: str,
    dataset: Literal["lost_in_conversation"] = "lost_in_conversation",
    model_name: str | None = None,
    policy: Annotated[tuple[str, ...], Many] = ("vanilla", "rea"),
    budget: int = 1_024,
    task: Annotated[tuple[str, ...], Many] = tuple(EVALUATORS),
    sample: int = 0,
    max_tokens: int = 512,
    threads: int | None = None,
    out: Path = Path("results/state"),
    seed: int = 0,
    json: bool = False,
) -> None:
    """Measure what is left of instructions that a user reveals piece by piece.

    Args:
        data: a file of sharded instructions.
        model: that replies: `embedded`, a GGUF file, or the address of a server.
        dataset: the only one so far.
        model_name: the model's name at its server.
        policy: forms of the paper's tables, or policies of this project, named as in `bench adherence`.
        budget: tokens of a prompt, for the policies of this project; the paper's forms have none.
        task: kinds of instructions: math, code, actions. Code that the model writes is run, in no sandbox.
        sample: so many of each kind, drawn at random; 0 for all.
        max_tokens: of a reply.
        threads: of a model in this process.
        out: the results folder.
        seed: of the sample.
        json: print the summary to stdout, and the table to stderr.
    """
    found = read_sharded(data)
    chosen = _sample(found, task, sample, seed)
    with closing(load_model(model, model_name, threads=threads)) as replies:
        about = {
            "dataset": dataset,
            "data": data.name,
            "tasks": dict(Counter(one.kind for one in chosen)),
            "model": replies.name,
            "budget": budget,
            "max_tokens": max_tokens,
            "seed": seed,
        }
        with open_run(out, BENCHMARK, **about, policies=list(policy)) as run:
            asked = Asked(replies, out / "answers.jsonl")
            players = {
                name: Player(asked, name, budget, max_tokens, seed) for name in dict.fromkeys(("vanilla", *policy))
            }
            played = _all(chosen, players, policy, run)
            summary = {**about, "settings": summarise(played, seed), "not_run": _not_run(found, task)}
            run.finish(summary)
    _print(summary, stderr=json)
    if json:
        print(json_.dumps(summary, indent=2, ensure_ascii=False))


def _sample(found: Sequence[Sharded], kinds: Sequence[str], most: int, seed: int) -> list[Sharded]:
    if unknown := [kind for kind in kinds if kind not in EVALUATORS]:
        why = NOT_RUN.get(unknown[0], f"known: {', '.join(EVALUATORS)}")
        raise ConfigError(f"the task {unknown[0]!r} can't be run: {why}")
    if most < 0:
        raise ConfigError(f"sample must be at least 0, not {most!r}")
    chosen: list[Sharded] = []
    for kind in kinds:
        own = [one for one in found if one.kind == kind]
        if 0 < most < len(own):
            own = [own[at] for at in np.sort(np.random.default_rng(seed).choice(len(own), most, replace=False))]
        chosen += own
    if not chosen:
        raise ConfigError(f"the data hold no instruction of {', '.join(map(repr, kinds))}")
    return chosen


def _all(chosen: Sequence[Sharded], players: Mapping[str, Player], policies: Sequence[str], run: Run) -> list[Played]:
    played = []
    for at, one in enumerate(chosen, 1):
        settings = [("full", "vanilla", [one.whole])]
        settings += [("concat", "vanilla", [CONCAT + "\n".join(f"- {shard}" for shard in one.shards)])]
        settings += [("sharded", policy, list(one.shards)) for policy in policies]
        for setting, policy, said in settings:
            done = play(one, setting, said, players[policy], EVALUATORS[one.kind])
            run.record(**asdict(done))
            played.append(done)
        print(f"{at} of {len(chosen)}: {one.name}", file=sys.stderr, flush=True)
    return played


def play(one: Sharded, setting: str, said: Sequence[str], player: Player, evaluator: Evaluator) -> Played:
    """Play one instruction: the user says one thing after the other, and each reply is scored.

    Raises:
        ModelError: the model can't be reached.
    """
    messages = [{"role": "system", "content": evaluator.prompt(one.record)}]
    answers, scores = [], []
    for text in said:
        messages.append({"role": "user", "content": text})
        answer = player(messages)
        answers.append(answer)
        if answer.failed:
            break
        messages.append({"role": "assistant", "content": answer.text})
        scores.append(evaluator.score(answer.text, one.record))
    return Played(
        one.name,
        one.kind,
        setting,
        player.policy,
        solved=any(scores),
        last=len(scores) == len(said) and bool(scores[-1]),
        attempts=sum(score is not None for score in scores),
        turns=len(scores),
        prompt_tokens=sum(answer.tokens for answer in answers),
        seconds=round(sum(answer.seconds for answer in answers), 3),
        failed=answers[-1].failed,
        replies=tuple(answer.text for answer in answers),
    )


def summarise(played: Sequence[Played], seed: int) -> list[dict[str, Any]]:
    """A row for each setting, policy and kind: shares solved and right at last, and what a run cost."""
    rows = []
    for key in dict.fromkeys((one.setting, one.policy, one.kind) for one in played):
        own = [one for one in played if (one.setting, one.policy, one.kind) == key]
        rows.append(
            {
                **dict(zip(("setting", "policy", "task"), key, strict=True)),
                "runs": len(own),
                **estimate("solved", {one.task: [float(one.solved)] for one in own}, seed),
                "last": mean([one.last for one in own]),
                "attempts": mean([one.attempts / max(1, one.turns) for one in own]),
                "failed": sum(bool(one.failed) for one in own),
                "prompt_tokens": mean([one.prompt_tokens for one in own]),
                "seconds": mean([one.seconds for one in own]),
            }
        )
    return rows


def _not_run(found: Sequence[Sharded], kinds: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What the data hold and this run leaves out, with the reason."""
    left = Counter(one.kind for one in found if one.kind not in kinds)
    return {
        kind: {"records": count, "reason": NOT_RUN.get(kind, "not asked for" if kind in EVALUATORS else "unknown")}
        for kind, count in sorted(left.items())
    }


def _print(summary: Mapping[str, Any], *, stderr: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    stream = sys.stderr if stderr else sys.stdout
    columns = ("task", "setting", "policy", "runs", "solved", "95 %", "last right", "prompt tokens", "s a run")
    grid = Table(*columns, title=f"{summary['data']}, {summary['model']}, seed {summary['seed']}")
    for row in sorted(summary["settings"], key=lambda row: str(row["task"])):
        interval = f"{row['solved_low']:.2f} to {row['solved_high']:.2f}"
        cost = [f"{row[key]:,.1f}" for key in ("prompt_tokens", "seconds")]
        shares = [f"{row['solved']:.2f}", interval, f"{row['last']:.2f}"]
        grid.add_row(row["task"], row["setting"], row["policy"], str(row["runs"]), *shares, *cost)
    for kind, left in summary["not_run"].items():
        grid.add_row(kind, f"not run: {left['reason']}")
    Console(file=stream, width=None if stream.isatty() else 120).print(grid)
