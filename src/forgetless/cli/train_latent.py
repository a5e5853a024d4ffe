"""`forgetless train rea-latent`: replies as eight vectors, through one backbone with two adapters."""

from __future__ import annotations

import json as json_
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any, Literal

from forgetless.benchmarks.latent_plots import latent_plot
from forgetless.benchmarks.plots import draw
from forgetless.datasets.dialogues import Dialogue, read_dialogues
from forgetless.errors import ConfigError
from forgetless.models.local.backbone import use_threads

__all__ = ["rea_latent"]

ANSWERS = 2.5
"""Steps' draws of stage 2 for each answer that is asked for: how often one is seen, about."""

TOLD = 10
"""Steps between two lines on progress."""


def rea_latent(
    *,
    data: Path,
    out: Path = Path("results/latent"),
    backbone: str | None = None,
    start: Literal["pooled", "plain"] | None = None,
    paper: bool = False,
    steps: int | None = None,
    measured: int = 40,
    spans: Sequence[int] = (32, 64, 128, 256),
    beside: Path | None = None,
    accelerate: bool = False,
    threads: int = 1,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Teach a model to compress replies to a few vectors and to read these, and measure what they carry.

    A broken run goes on from its checkpoint, to the same numbers. Dialogues that are measured on are not trained on.

    Args:
        data: folder with dialogues: MT-Eval, LongMemEval, or JSON lines with chat `messages`.
        out: the results folder: config.json, metrics.jsonl, summary.json, records.jsonl, plot, adapters.
        backbone: a folder or a name on the hub; by default the embedded SmolLM2.
        start: of a vector: plain, the paper's, or pooled, which learns in an hour on a CPU and is the default without
            --paper.
        paper: REA's own settings, for a model of some billions of weights and a GPU.
        steps: of both stages, in the proportions of the settings.
        measured: exchanges of each measurement.
        spans: tokens of the replies that are measured.
        beside: folder of another run, to be shown in the same plot.
        accelerate: on the devices that `accelerate launch` gives.
        threads: that compute, on a CPU.
        seed: of weights and of all that is drawn.
        json: print the summary to stdout.
    """
    use_threads(threads)
    from forgetless.models.local.adapters import save_adapters
    from forgetless.training.checkpoints import folder_for
    from forgetless.training.latent import processes, train
    from forgetless.training.latent_answers import told_apart

    settings = _settings(paper, start, steps, seed)
    if measured < 2 or any(span < 1 for span in spans):
        raise ConfigError(f"measured must be at least 2 and spans at least 1, not {measured!r} and {list(spans)!r}")
    dialogues = read_dialogues(data)
    shown = _beside(beside)
    folder_for(out)
    lines = []
    with processes() if accelerate else nullcontext() as accelerator:
        found, network = _network(backbone, settings.shape, seed)
        sources = _sources(network, found.tokenizer, dialogues, settings, out)
        for line in train(network, sources, settings, out, accelerator=accelerator, learns_from=told_apart(dialogues)):
            lines.append(line)
            if line["step"] % TOLD == 0:
                mean, took = _mean(lines), line["seconds"]
                _tell(f"step {line['step']} of {settings.steps}: {mean:.3f} nats a token, {took:.1f} s")
    if accelerator is not None and not accelerator.is_main_process:
        return
    about = {"forgetless": version("forgetless"), "backbone": found.name, "data": _data(dialogues)}
    about["settings"] = asdict(settings)
    save_adapters(network, out / "adapters", about)
    held = [one for one in dialogues if one.held_out]
    records = list(_measured(network, found.tokenizer, held, spans, measured))
    (out / "records.jsonl").write_text("".join(json_.dumps(one) + "\n" for one in records), "utf-8")
    summary = {**about, "train_seconds": round(sum(line["seconds"] for line in lines), 1)}
    summary |= {"bytes": _bytes(out / "adapters"), "rows": _rows(records), "steps": lines, "beside": shown}
    (out / "summary.json").write_text(json_.dumps(summary, indent=2) + "\n", "utf-8")
    draw(latent_plot, summary, out / "latent.png")
    if json:
        print(json_.dumps(summary, indent=2))


def _beside(folder: Path | None) -> dict[str, Any]:
    """The settings, rows and steps of another run."""
    if folder is None:
        return {}
    try:
        told = json_.loads((folder / "summary.json").read_text("utf-8"))
        return {key: told[key] for key in ("settings", "rows", "steps")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{str(folder)!r} holds no finished run of `forgetless train rea-latent`") from error


def _settings(paper: bool, start: Any, steps: int | None, seed: int) -> Any:
    from forgetless.training.latent import PAPER, SMALL, Settings

    found = PAPER if paper else Settings(shape=SMALL)
    shape = found.shape if start is None else replace(found.shape, start=start)
    found = replace(found, shape=shape, seed=seed)
    if steps is None:
        return found
    if steps < 1:
        raise ConfigError(f"steps must be at least 1, not {steps!r}")
    share = steps / found.steps
    answers = round(found.answers * share)
    spans = [(round(many * share), lengths) for many, lengths in found.spans]
    spans[-1] = (steps - answers - sum(many for many, _ in spans[:-1]), spans[-1][1])
    return replace(found, spans=tuple(spans), answers=answers)


def _network(backbone: str | None, shape: Any, seed: int) -> tuple[Any, Any]:
    import torch

    from forgetless.models.local.backbone import load_backbone
    from forgetless.models.local.network import Network

    found = load_backbone(backbone)
    graphics = torch.cuda.is_available()
    if not graphics:
        found.model.set_attn_implementation("eager")  # for short texts a sixth faster than the fused one, on a CPU
    torch.manual_seed(seed)
    return found, Network(found.model, shape).to("cuda" if graphics else "cpu")


def _sources(network: Any, tokenizer: Any, dialogues: Sequence[Dialogue], settings: Any, out: Path) -> tuple[Any, Any]:
    from forgetless.training.latent_answers import Answers, ask
    from forgetless.training.latent_samples import Texts

    learnt = [one for one in dialogues if not one.held_out]
    if not learnt or len(learnt) == len(dialogues):
        raise ConfigError(f"{len(dialogues)} dialogues are too few to hold some out: give more data")
    many = round(settings.answers * settings.draws / ANSWERS)
    began, asked = perf_counter(), []
    for one in ask(network, tokenizer, learnt, many=many, span=settings.span, out=out, seed=settings.seed):
        asked.append(one)
        if len(asked) % TOLD == 0:
            _tell(f"{len(asked)} of {many} answers of the uncompressed model, {perf_counter() - began:.0f} s")
    return Texts.of(tokenizer, learnt).draw, Answers(tokenizer, learnt, asked).draw


def _measured(
    network: Any, tokenizer: Any, held: Sequence[Dialogue], spans: Sequence[int], most: int
) -> Iterator[dict[str, Any]]:
    """Records for each length: of whole replies of up to so many tokens, and of the beginnings of longer ones."""
    from forgetless.training.latent_measure import measure

    for span in spans:
        for whole in (True, False):
            try:
                yield from measure(network, tokenizer, held, span, most=most, whole=whole)
            except ConfigError as error:  # dialogues may have none of this length
                _tell(str(error))


def _rows(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    from forgetless.training.latent_measure import summary

    rows = []
    for span, whole in dict.fromkeys((one["span"], one["whole"]) for one in records):
        found = [one for one in records if (one["span"], one["whole"]) == (span, whole)]
        rows.append({"span": span, "whole": whole, **summary(found)})
        _tell(_row(rows[-1]))
    return rows


def _row(row: dict[str, Any]) -> str:
    kind = f"replies of up to {row['span']}" if row["whole"] else f"the first {row['span']} tokens of longer replies"
    forms = ", ".join(f"{form} {row[form]:.3f}" for form in ("full", "right", "other", "none", "omitted"))
    return f"{kind}: {forms}; {row['way']:.0%} of the way"


def _data(dialogues: Sequence[Dialogue]) -> dict[str, Any]:
    """What was trained on, by source."""
    found: dict[str, Any] = {}
    for one in dialogues:
        row = found.setdefault(one.source, {"licence": one.licence, "trained_on": 0, "held_out": 0})
        row["held_out" if one.held_out else "trained_on"] += 1
    return found


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _mean(lines: Sequence[dict[str, Any]]) -> float:
    return fmean(float(line["loss"]) for line in lines[-TOLD:])


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
