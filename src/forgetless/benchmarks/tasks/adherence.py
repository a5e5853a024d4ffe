"""`forgetless bench adherence`: whether a model still keeps to a rule that was given in the first turn (REA, Figure 4).

MT-Eval's recollection dialogues, the model's own replies in the history, greedy. A turn scores 10 where its reply
keeps to the rule, else 0; their mean is the paper's instruction adherence rate (IAR).
"""

from __future__ import annotations

import json as json_
import sys
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, Literal

import numpy as np
from cyclopts import Parameter

from forgetless.benchmarks.adapters import adapters_of
from forgetless.benchmarks.constraints import follows
from forgetless.benchmarks.forms import FORMS, Form, Messages, Scene, Summarised, form
from forgetless.benchmarks.metrics import estimate
from forgetless.benchmarks.peak import peak_mib
from forgetless.benchmarks.plots import adherence_plot, draw
from forgetless.benchmarks.results import Run, resume_run
from forgetless.datasets.mt_eval import Recollection, read_recollection
from forgetless.errors import ConfigError
from forgetless.models.base import Model
from forgetless.models.load import load_model

__all__ = ["BENCHMARK", "adherence", "play", "summarise"]

BENCHMARK = "adherence@1"

Many = Parameter(consume_multiple=True)

VECTORS = 32
"""Characters that a memory counts for in a prompt: about four a vector, as for a token."""

NOT_RUN = {"llmlingua2": "needs the authors' checkpoint: name it with --policy llmlingua2 where it is installed"}
"""What the paper's tables have and this run does not, with the reason."""


def adherence(
    *,
    data: Path,
    model: str = "embedded",
    dataset: Literal["mt_eval"] = "mt_eval",  # noqa: ARG001 - the only one so far
    policy: Annotated[tuple[str, ...], Many] = tuple(FORMS),
    rule: Annotated[tuple[str, ...], Many] = (),
    dialogues: int = 0,
    new_tokens: int = 96,
    budget: int = 512,
    model_name: str | None = None,
    threads: int | None = None,
    out: Path = Path("results/adherence"),
    seed: int = 0,
    json: bool = False,
) -> None:
    """Measure how well a rule of the first turn is kept to, turn by turn.

    A broken run goes on where it stopped, and policies can be added to a run with another command. With other settings
    the folder is begun anew.

    Args:
        data: MT-Eval's folder, or one of its recollection files.
        model: `embedded`, a GGUF file, the address of an OpenAI-compatible server, or `latent`, also `latent#FOLDER`.
        dataset: the only one so far.
        policy: forms of the paper's tables by name, or policies of this project: `lre`, `lre, kept`, `lre, reminded`;
            for a model that reads memory vectors `rea, latent` and `em, latent`.
        rule: only dialogues with these rules, such as `startend:start_char`.
        dialogues: only so many, the first; 0 for all.
        new_tokens: most tokens of a reply.
        budget: tokens of a prompt, for the policies of this project; the paper's forms have none.
        model_name: the model's name at a server.
        threads: of a model in this process.
        out: the results folder.
        seed: of the recognisers that err, and of the intervals.
        json: print the summary to stdout, and the table to stderr.
    """
    for name, value, least in (("new_tokens", new_tokens, 1), ("budget", budget, 1), ("dialogues", dialogues, 0)):
        if value < least:
            raise ConfigError(f"{name} must be at least {least}, not {value!r}")
    chosen = _chosen(read_recollection(data), rule, dialogues)
    asked = load_model(model, model_name, threads=threads)
    scene = Scene(asked, [dialogue.instruction for dialogue in chosen], budget, seed)
    forms = {name: form(name, scene) for name in policy}
    config = {
        "data": data.name,
        "model": asked.name,
        **adapters_of(asked),
        "new_tokens": new_tokens,
        "budget": budget,
        "seed": seed,
        "dialogues": [dialogue.id for dialogue in chosen],
    }
    try:
        with resume_run(out, BENCHMARK, **config) as run:
            records = [*run.before, *_play_all(run, chosen, forms, asked, new_tokens)]
            summary = {"model": asked.name, "new_tokens": new_tokens, **summarise(records, seed)}
            for row in summary["rows"]:
                row["prefix_share"] = prefix_share(chosen, forms.get(row["policy"]), records, row["policy"])
            run.finish(summary)
    finally:
        asked.close()
    draw(adherence_plot, summary, out / "adherence.png")
    _print(summary, stderr=json)
    if json:
        print(json_.dumps(summary, indent=2, ensure_ascii=False))


def _chosen(found: Sequence[Recollection], rules: Sequence[str], most: int) -> list[Recollection]:
    known = {dialogue.rule for dialogue in found}
    if missing := [rule for rule in rules if rule not in known]:
        raise ConfigError(f"no dialogue with the rule {missing[0]!r}; there are {', '.join(sorted(known))}")
    return [dialogue for dialogue in found if not rules or dialogue.rule in rules][: most or None]


def _play_all(
    run: Run, dialogues: Sequence[Recollection], forms: Mapping[str, Form], model: Model, most: int
) -> Iterator[dict[str, Any]]:
    total = len(forms) * len(dialogues)
    for at, (name, shown) in enumerate(forms.items()):
        for number, dialogue in enumerate(dialogues):
            before = [r for r in run.before if (r["policy"], r["dialogue"]) == (name, dialogue.id)]
            for turn in play(dialogue, shown, model, most, [r["reply"] for r in before]):
                record = {"policy": name, "dialogue": dialogue.id, **turn}
                run.record(**record)
                yield record
            print(
                f"{at * len(dialogues) + number + 1} of {total}: {name}, {dialogue.rule}", file=sys.stderr, flush=True
            )


def play(
    dialogue: Recollection, shown: Form, model: Model, most: int, replies: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
    """The turns of a dialogue.

    Args:
        dialogue: asks.
        shown: makes prompts of it.
        model: answers.
        most: tokens of a reply.
        replies: those of the first turns, where these were played before.
    """
    messages: Messages = [_said("user", dialogue.instruction), _said("assistant", dialogue.reply)]
    for turn, question in enumerate(dialogue.questions):
        messages.append(_said("user", question))
        if turn < len(replies):
            messages.append(_said("assistant", replies[turn]))
            continue
        started = perf_counter()
        prompt = shown(list(messages))
        shaped = perf_counter()
        with peak_mib() as peak:
            found = model({"messages": prompt, "max_tokens": most, "temperature": 0})
        reply = str(found["choices"][0]["message"]["content"] or "")
        usage = found.get("usage") or {}
        yield {
            "turn": turn + 1,
            "score": 10 * follows(dialogue, turn, reply),
            "prompt_tokens": usage.get("prompt_tokens"),
            "reply_tokens": usage.get("completion_tokens"),
            "prompt_ms": round((shaped - started) * 1e3, 2),
            "seconds": round(perf_counter() - shaped, 3),
            "peak_mib": peak.mib,
            "reply": reply,
        }
        messages.append(_said("assistant", reply))


def _said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def summarise(records: Sequence[Mapping[str, Any]], seed: int) -> dict[str, Any]:
    """A row for each policy: IAR with its interval over dialogues, and means, also by turn."""
    rows = []
    for name in dict.fromkeys(record["policy"] for record in records):
        own = [record for record in records if record["policy"] == name]
        by: dict[str, list[float]] = {}
        for record in own:
            by.setdefault(record["dialogue"], []).append(record["score"])
        turns = sorted({record["turn"] for record in own})
        rows.append(
            {
                "policy": name,
                **estimate("iar", by, seed),
                "turns": len(own),
                "prompt_tokens": _mean(own, "prompt_tokens"),
                "seconds": _mean(own, "seconds"),
                "peak_mib": max((record["peak_mib"] or 0 for record in own), default=0),
                "iar_by_turn": [_mean([r for r in own if r["turn"] == turn], "score") for turn in turns],
                "prompt_tokens_by_turn": [
                    _mean([r for r in own if r["turn"] == turn], "prompt_tokens") for turn in turns
                ],
                "iar_by_rule": {key: round(float(np.mean(scores)), 2) for key, scores in sorted(by.items())},
            }
        )
    return {"rows": rows, "not_run": NOT_RUN}


def prefix_share(
    dialogues: Sequence[Recollection], shown: Form | None, records: Sequence[Mapping[str, Any]], name: str
) -> float | None:
    """How much of a prompt begins as the prompt before it, in characters: what a prompt cache can read.

    The prompts are made again from the replies; None for a form that has a model write them, or is not at hand.
    """
    if shown is None or isinstance(shown, Summarised):
        return None
    same = total = 0
    for dialogue in dialogues:
        own = (record for record in records if (record["policy"], record["dialogue"]) == (name, dialogue.id))
        replies = [record["reply"] for record in sorted(own, key=lambda record: record["turn"])]
        before = ""
        for prompt in prompts(dialogue, shown, replies):
            now = "".join(f"\n{message['role']}: {_read(message['content'])}" for message in prompt)
            if before:
                same += next((at for at, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), len(before))
                total += len(now)
            before = now
    return round(same / total, 4) if total else None


def _read(content: Any) -> str:
    """A content as text; for vectors, a few characters that tell them from others."""
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or sha256(str(part).encode()).hexdigest()[:VECTORS] for part in content)


def prompts(dialogue: Recollection, shown: Form, replies: Sequence[str]) -> Iterator[Messages]:
    """What a model was shown at each turn that it has replied to."""
    messages: Messages = [_said("user", dialogue.instruction), _said("assistant", dialogue.reply)]
    for question, reply in zip(dialogue.questions, replies, strict=False):
        messages.append(_said("user", question))
        yield shown(list(messages))
        messages.append(_said("assistant", reply))


def _mean(records: Sequence[Mapping[str, Any]], key: str) -> float | None:
    found = [record[key] for record in records if record[key] is not None]
    return round(float(np.mean(found)), 2) if found else None


def _print(summary: Mapping[str, Any], *, stderr: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    stream = sys.stderr if stderr else sys.stdout
    grid = Table("policy", "IAR", "95 %", "first three", "last three", "prompt tokens", "last", "cached", "s a turn")
    grid.title = f"{summary['model']}, replies of at most {summary['new_tokens']} tokens"
    for row in summary["rows"]:
        by, sizes = row["iar_by_turn"], row["prompt_tokens_by_turn"]
        grid.add_row(
            row["policy"],
            f"{row['iar']:.2f}",
            f"{row['iar_low']:.2f} - {row['iar_high']:.2f}",
            f"{np.mean(by[:3]):.2f}",
            f"{np.mean(by[-3:]):.2f}",
            f"{row['prompt_tokens']:,.0f}" if row["prompt_tokens"] is not None else "-",
            f"{sizes[-1]:,.0f}" if sizes[-1] is not None else "-",
            f"{row['prefix_share']:.0%}" if row["prefix_share"] is not None else "-",
            f"{row['seconds']:.1f}",
        )
    Console(file=stream, width=None if stream.isatty() else 120).print(grid)
