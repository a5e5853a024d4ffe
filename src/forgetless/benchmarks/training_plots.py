"""Plots of training: one run update by update, and ways of training side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from forgetless.benchmarks.plots import canvas

__all__ = ["arms_plot", "training_plot"]

PANELS = (
    ("held_out_success", "held-out success, likeliest tokens"),
    ("success", "success of the batch, sampled"),
    ("wrote", "share of turns that change the memory"),
    ("input_tokens", "input tokens of an episode"),
    ("gate", "mean gate of the distillation"),
    ("lead", "teacher's lead on action tokens (nats)"),
)


def training_plot(summary: Mapping[str, Any], path: Path) -> None:
    """Success, what the memory does, input tokens and the gate, update by update.

    Args:
        summary: of `forgetless train ccm`.
        path: the PNG file to write.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    figure = canvas()
    figure.set_size_inches(11, 8)
    updates = summary["updates"]
    groups = (
        ("success", {"success": "sampled", "held_out_success": "held out", "reward": "reward"}),
        ("share of turns", {"wrote": "memory changed", "broken": "no memory block", "invalid": "no action"}),
        ("tokens", {"input_tokens": "input of an episode"}),
        ("distillation", {"gate": "mean gate", "gate_open": "gate above 0.5", "lead": "teacher's lead (nats)"}),
    )
    for panel, (label, keys) in zip(figure.subplots(2, 2).flat, groups, strict=True):
        for key, name in keys.items():
            points = [(line["update"], line[key]) for line in updates if key in line]
            if points:
                panel.plot(*zip(*points, strict=True), marker="o" if "held" in key else "", label=name)
        panel.set(xlabel="update", ylabel=label)
        panel.grid(alpha=0.3)
        panel.legend(fontsize="small")
    figure.savefig(path, dpi=100)


def arms_plot(runs: Sequence[Mapping[str, Any]], summary: Mapping[str, Any], path: Path) -> None:
    """Each way of training, the mean over its seeds and each of them.

    Args:
        runs: `arm`, `seed` and the `lines` of each run.
        summary: of `forgetless bench training`.
        path: the PNG file to write.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    figure = canvas()
    figure.set_size_inches(14, 8)
    arms = list(summary["arms"])
    for panel, (key, label) in zip(figure.subplots(2, 3).flat, PANELS, strict=True):
        for arm in arms:
            curves = [
                {line["update"]: line[key] for line in run["lines"] if key in line} for run in runs if run["arm"] == arm
            ]
            at = sorted({update for curve in curves for update in curve})
            if not at:
                continue
            color = f"C{arms.index(arm)}"
            for curve in curves:
                panel.plot(list(curve), list(curve.values()), color=color, alpha=0.25, linewidth=0.8)
            means = [fmean(curve[update] for curve in curves if update in curve) for update in at]
            panel.plot(at, means, color=color, label=arm)
        panel.set(xlabel="update", ylabel=label)
        panel.grid(alpha=0.3)
        panel.legend(fontsize="small")
    figure.savefig(path, dpi=70)
