"""The plot of `forgetless train rea-latent`: how it learnt, and what a memory carries by the length of the reply."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forgetless.benchmarks.plots import canvas

__all__ = ["latent_plot"]

MEAN = 10
"""Steps of a moving mean."""

FORMS = {"full": "-", "right": "-", "other": "--", "none": ":", "omitted": ":"}
"""Of a reply, with their lines."""


def latent_plot(summary: Mapping[str, Any], path: Path) -> None:
    """Loss by step, and loss of the next turn and reply by the reply's length for each form of it.

    Args:
        summary: of `forgetless train rea-latent`.
        path: the PNG file to write.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    figure = canvas()
    learnt, carried = figure.subplots(1, 2)
    runs = {summary["settings"]["shape"]["start"]: summary, **summary["beside"]}
    for name, run in runs.items():
        lines = run["steps"]
        losses = [line["loss"] for line in lines]
        means = [sum(losses[max(0, at - MEAN + 1) : at + 1]) / min(at + 1, MEAN) for at in range(len(losses))]
        learnt.plot([line["step"] for line in lines], means, label=name)
    learnt.set(title=f"training, mean of {MEAN} steps", xlabel="step", ylabel="nats a token")
    learnt.legend(fontsize="small")
    rows = [row for row in summary["rows"] if row["whole"]]
    for form, style in FORMS.items():
        carried.plot([row["span"] for row in rows], [row[form] for row in rows], style, marker="o", label=form)
    carried.set_xscale("log", base=2)
    carried.set_xticks([row["span"] for row in rows], labels=[str(row["span"]) for row in rows])
    carried.minorticks_off()
    carried.set(title="next turn and reply, on dialogues not trained on", xlabel="most tokens of the reply")
    carried.set_ylabel("nats a token")
    carried.legend(fontsize="small")
    for panel in (learnt, carried):
        panel.grid(alpha=0.3)
    figure.savefig(path, dpi=110)
