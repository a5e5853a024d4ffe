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
    """Loss by step, loss of the next turn and reply by the reply's length, and the share of the way to its text.

    Args:
        summary: of `forgetless train rea-latent`.
        path: the PNG file to write.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    figure = canvas()
    learnt, carried, way = figure.subplots(1, 3)
    runs = [summary, *([summary["beside"]] if summary["beside"] else [])]
    for run in runs:
        lines = run["steps"]
        name = f"{run['settings']['shape']['start']}, {len(lines)} steps"
        losses = [line["loss"] for line in lines]
        means = [sum(losses[max(0, at - MEAN + 1) : at + 1]) / min(at + 1, MEAN) for at in range(len(losses))]
        learnt.plot([line["step"] for line in lines], means, label=name)
        whole = [row for row in run["rows"] if row["whole"]]
        way.plot([row["span"] for row in whole], [100 * row["way"] for row in whole], marker="o", label=name)
    learnt.set(title=f"training, mean of {MEAN} steps", xlabel="step", ylabel="nats a token")
    learnt.legend(fontsize="small")
    rows = [row for row in summary["rows"] if row["whole"]]
    for form, style in FORMS.items():
        carried.plot([row["span"] for row in rows], [row[form] for row in rows], style, marker="o", label=form)
    carried.set(title="next turn and reply, held out", ylabel="nats a token")
    way.axhline(0, color="grey", linewidth=1)
    way.set(title="from another's memory to the text", ylabel="% of the way")
    spans = sorted({row["span"] for run in runs for row in run["rows"] if row["whole"]})
    for panel in (carried, way):
        panel.set_xscale("log", base=2)
        panel.set_xticks(spans, labels=[str(span) for span in spans])
        panel.minorticks_off()
        panel.set(xlabel="most tokens of the reply")
        panel.legend(fontsize="small")
    for panel in (learnt, carried, way):
        panel.grid(alpha=0.3)
    figure.savefig(path, dpi=110)
