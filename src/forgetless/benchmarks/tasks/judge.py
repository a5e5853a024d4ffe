"""`forgetless bench judge`: replies of a model under policies, scored one by one by a judge (REA, Tables 1 to 3).

Each dialogue is played with the model, which is shown of it what the policy makes; a judge then scores the replies that
the data set has judged. A reply that the budget or the model's window leaves no room for is unanswered, and ends its
dialogue; a verdict without a rating is unjudged. Neither is in a mean; both are counted. What the model and the judge
say is kept in the folder (`answers.jsonl`, `verdicts.jsonl`), so a broken run, or one with one more policy, asks only
what it has not asked.
"""

from __future__ import annotations

import json as json_
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from cyclopts import Parameter

from forgetless.benchmarks.asked import Asked
from forgetless.benchmarks.judge import RUBRICS, Judge, Verdict
from forgetless.benchmarks.metrics import estimate, mean
from forgetless.benchmarks.player import Answer, Player
from forgetless.benchmarks.results import Run, open_run
from forgetless.datasets.characterbench import read_characterbench
from forgetless.datasets.judged import Dialogue
from forgetless.datasets.long_mt_bench_plus import read_long_mt_bench_plus
from forgetless.datasets.mt_bench import read_mt_bench, read_mt_bench_plus
from forgetless.datasets.mt_eval_judged import read_mt_eval
from forgetless.errors import ConfigError
from forgetless.models.load import load_model

__all__ = ["BENCHMARK", "READERS", "Judged", "judge", "play", "summarise"]

BENCHMARK = "judge@1"

READERS: Mapping[str, Callable[[Path], list[Dialogue]]] = {
    "characterbench": read_characterbench,
    "long_mt_bench_plus": read_long_mt_bench_plus,
    "mt_bench": read_mt_bench,
    "mt_bench_plus": read_mt_bench_plus,
    "mt_eval": read_mt_eval,
}

Names = Annotated[tuple[str, ...], Parameter(consume_multiple=True)]
Datasets = Literal["characterbench", "long_mt_bench_plus", "mt_bench", "mt_bench_plus", "mt_eval"]


@dataclass(frozen=True, slots=True)
class Judged:
    """One judged turn of a dialogue under a policy.

    Attributes:
        policy: its name.
        dialogue, group: as the data name them.
        turn: from 1.
        answer: the model's.
        verdict: the judge's; None where there is no answer.
    """

    policy: str
    dialogue: str
    group: str
    turn: int
    answer: Answer
    verdict: Verdict | None = field(default=None)

    @property
    def score(self) -> float | None:
        """The rating, where there is one."""
        return self.verdict.score if self.verdict else None

    def record(self) -> dict[str, Any]:
        """The row for `records.jsonl`."""
        return {
            "policy": self.policy,
            "dialogue": self.dialogue,
            "group": self.group,
            "turn": self.turn,
            "score": self.score,
            "prompt_tokens": self.answer.tokens,
            "seconds": self.answer.seconds,
            "failed": self.answer.failed,
            "answer": self.answer.text,
            "verdict": self.verdict.text if self.verdict else "",
        }


def judge(
    *,
    dataset: Datasets,
    data: Path,
    model: str,
    judge: str,
    model_name: str | None = None,
    judge_name: str | None = None,
    policy: Names = ("vanilla", "bm25-5", "recent-5", "rea"),
    budget: int = 2_048,
    threads: int | None = None,
    sample: int = 0,
    max_tokens: int = 512,
    out: Path = Path("results/judge"),
    seed: int = 0,
    json: bool = False,
) -> None:
    """Let a judge score a model's replies under policies.

    Args:
        dataset: what is asked.
        data: its file or folder.
        model: that replies: `embedded`, a GGUF file, or the address of a server.
        judge: that scores, likewise.
        model_name: the model's name at its server.
        judge_name: the judge's.
        policy: forms of the paper's tables, or policies of this project, named as in `bench adherence`.
        budget: tokens of a prompt, for the policies of this project; the paper's forms have none.
        threads: of a model in this process.
        sample: so many dialogues, drawn at random; 0 for all.
        max_tokens: of a reply.
        out: the results folder.
        seed: of the sample.
        json: print the summary to stdout, and the table to stderr.
    """
    dialogues = _sample(READERS[dataset](data), sample, seed)
    with (
        closing(load_model(model, model_name, threads=threads)) as replies,
        closing(load_model(judge, judge_name, threads=threads)) as scores,
    ):
        about = {
            "dataset": dataset,
            "data": data.name,
            "dialogues": len(dialogues),
            "model": replies.name,
            "judge": scores.name,
            "budget": budget,
            "max_tokens": max_tokens,
            "seed": seed,
        }
        with open_run(out, BENCHMARK, **about, policies=list(policy)) as run:
            asked = Asked(replies, out / "answers.jsonl")
            judging = Judge(Asked(scores, out / "verdicts.jsonl"), RUBRICS[dataset], seed)
            found: list[Judged] = []
            for name in policy:
                player = Player(asked, name, budget, max_tokens, seed)
                found += _all(dialogues, player, judging, run)
            summary = {**about, "policies": summarise(found, seed)}
            run.finish(summary)
    _print(summary, stderr=json)
    if json:
        print(json_.dumps(summary, indent=2, ensure_ascii=False))


def _all(dialogues: Sequence[Dialogue], player: Player, judge: Judge, run: Run) -> list[Judged]:
    found: list[Judged] = []
    for at, dialogue in enumerate(dialogues, 1):
        for one in play(dialogue, player, judge):
            run.record(**one.record())
            found.append(one)
        print(f"{player.policy}: dialogue {at} of {len(dialogues)}", file=sys.stderr, flush=True)
    return found


def play(dialogue: Dialogue, player: Player, judge: Judge) -> list[Judged]:
    """Play a dialogue and have its replies judged; after a turn without an answer there are no more.

    Raises:
        ModelError: the model or the judge can't be reached.
    """
    messages = [{"role": "system", "content": dialogue.system}] if dialogue.system else []
    answers: list[str] = []
    found: list[Judged] = []
    failed = ""
    for at, turn in enumerate(dialogue.turns):
        messages.append({"role": "user", "content": turn.user})
        answer = Answer(turn.reply, failed=failed) if turn.reply is not None else Answer(failed=failed)
        if turn.reply is None and not failed:
            answer = player(messages)
        failed = answer.failed
        answers.append(answer.text)
        messages.append({"role": "assistant", "content": answer.text})
        if turn.judged:
            verdict = None if failed else judge(dialogue, at, answers)
            found.append(Judged(player.policy, dialogue.name, dialogue.group, at + 1, answer, verdict))
    return found


def _sample(dialogues: list[Dialogue], most: int, seed: int) -> list[Dialogue]:
    if not dialogues:
        raise ConfigError("the data hold no dialogue")
    if most < 0:
        raise ConfigError(f"sample must be at least 0, not {most!r}")
    if not 0 < most < len(dialogues):
        return dialogues
    return [dialogues[at] for at in np.sort(np.random.default_rng(seed).choice(len(dialogues), most, replace=False))]


def summarise(judged: Sequence[Judged], seed: int) -> list[dict[str, Any]]:
    """A row for each policy: the mean score with its interval over dialogues, also by turn and group, and the cost."""
    rows = []
    for policy in dict.fromkeys(one.policy for one in judged):
        own = [one for one in judged if one.policy == policy]
        answered = [one.answer for one in own if not one.answer.failed]
        scored = [one for one in own if one.score is not None]
        rows.append(
            {
                "policy": policy,
                "dialogues": len({one.dialogue for one in own}),
                "turns": len(own),
                **estimate("score", _scores(own, lambda one: one.dialogue), seed),
                "by_turn": {turn: mean(values) for turn, values in _scores(scored, lambda one: str(one.turn)).items()},
                "by_group": {group: mean(values) for group, values in _scores(scored, lambda one: one.group).items()},
                "unjudged": len(own) - len(scored) - sum(bool(one.answer.failed) for one in own),
                "unanswered": len(own) - len(answered),
                "prompt_tokens": mean([answer.tokens for answer in answered]),
                "seconds": mean([answer.seconds for answer in answered]),
            }
        )
    return rows


def _scores(judged: Sequence[Judged], key: Callable[[Judged], str]) -> dict[str, list[float]]:
    groups: dict[str, list[float]] = {}
    for one in judged:
        groups.setdefault(key(one), []).extend([] if one.score is None else [one.score])
    return groups


def _print(summary: Mapping[str, Any], *, stderr: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    stream = sys.stderr if stderr else sys.stdout
    columns = ("policy", "turns", "score", "95 %", "unjudged", "unanswered", "prompt tokens", "s a reply")
    title = f"{summary['dataset']}, {summary['model']}, budget {summary['budget']:,}; judge: {summary['judge']}"
    grid = Table(*columns, title=title)
    for row in summary["policies"]:
        told = [row[key] for key in ("score", "score_low", "score_high")]
        score, low, high = ("-" if value is None else f"{value:.2f}" for value in told)
        cost = [f"{row[key] or 0:,.1f}" for key in ("prompt_tokens", "seconds")]
        counts = [str(row[key]) for key in ("unjudged", "unanswered")]
        grid.add_row(row["policy"], str(row["turns"]), score, f"{low} to {high}", *counts, *cost)
    Console(file=stream, width=None if stream.isatty() else 120).print(grid)
