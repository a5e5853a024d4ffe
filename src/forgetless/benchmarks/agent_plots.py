"""Plots of what agents achieve, and of what a rewritten memory costs beside a history that grows."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

from forgetless.benchmarks.plots import COLORS, canvas

__all__ = ["agent_plot", "ccm_plot"]

LENGTHS = ("full", "ccm", "lre", "fifo", "masking", "relevance-every-turn")
"""Policies whose prompts are drawn turn by turn, where they were measured."""


def agent_plot(summary: Mapping[str, Any], path: Path) -> None:
    """Success against the budget, and the length of prompts turn by turn under one budget.

    Args:
        summary: of `forgetless bench agent`.
        path: the PNG file to write.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    figure = canvas()
    figure.set_size_inches(12, 6)
    success, prompts = figure.subplots(1, 2)
    rows = summary["rows"]
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    budgets = sorted({row["budget"] for row in rows if row["budget"] is not None})
    for policy, color in zip(policies, cycle(COLORS), strict=False):
        found = [row for row in rows if row["policy"] == policy]
        _success(success, policy, found, color)
        shown = [row for row in found if row["budget"] in (None, summary["shown"])]
        if shown and (policy in LENGTHS or len(policies) <= len(LENGTHS)):
            turns = {int(turn): tokens for turn, tokens in shown[0]["prompts"].items()}
            prompts.plot(turns.keys(), turns.values(), color=color, label=policy)
    success.set(title=f"{summary['environment']}, {summary['model']}", xlabel="budget in tokens")
    success.set(ylabel="success (mean, 95 %)", ylim=(-0.03, 1.05))
    if budgets:
        success.set_xscale("log", base=2)
        success.set_xticks(budgets, labels=[f"{budget:,}" for budget in budgets])
        success.minorticks_off()
    under = f", budget {summary['shown']:,}" if summary["shown"] else ""
    prompts.set(title=f"length of prompts{under}", xlabel="turn", ylabel="tokens (mean)", ylim=(0, None))
    prompts.legend(fontsize="small")
    for panel in (success, prompts):
        panel.grid(alpha=0.3)
    names = success.get_legend_handles_labels()
    figure.legend(*names, loc="outside lower center", ncols=6, fontsize="small")
    figure.savefig(path, dpi=100)


def _success(panel: Any, policy: str, rows: list[Mapping[str, Any]], color: str) -> None:
    within = [row for row in rows if row["budget"] is not None]
    if not within:
        panel.axhline(rows[0]["success"], color=color, linestyle=":", label=f"{policy}, no budget")
        return
    at = [row["budget"] for row in within]
    lows, highs = ([row[f"success_{end}"] for row in within] for end in ("low", "high"))
    panel.plot(at, [row["success"] for row in within], marker="o", markersize=3, color=color, label=policy)
    panel.fill_between(at, lows, highs, color=color, alpha=0.1, linewidth=0)


def ccm_plot(summary: Mapping[str, Any], path: Path) -> None:
    """Tokens sent and cents paid by an agent that rewrites its memory, beside the full history, by length of the run.

    Args:
        summary: of `forgetless bench replay`.
        path: the PNG file to write.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    figure = canvas()
    tokens, money = figure.subplots(1, 2)
    lengths = [row for row in summary["ccm"]["by_length"] if row["most"] or row["least"] > 1]  # less that of all runs
    for color, memory in zip(COLORS, dict.fromkeys(row["memory"] for row in lengths), strict=False):
        found = [row for row in lengths if row["memory"] == memory]
        calls = [row["calls"] for row in found]
        tokens.plot(calls, [row["input_to_full"] for row in found], "o-", color=color, label=f"memory {memory:,}")
        for style, kind in (("o-", "cached"), ("o:", "uncached")):
            ratios = [row[f"{kind}_to_full"] for row in found]
            money.plot(calls, ratios, style, color=color, label=f"memory {memory:,}, {kind}")
    tokens.set(title="tokens sent", ylabel="beside the full history")
    money.set(title=f"cost, {summary['price']}")
    for panel in (tokens, money):
        panel.axhline(1, color="black", linewidth=0.8)
        panel.set(xlabel="model calls of a run (mean of the group)", ylim=(0, None))
        panel.grid(alpha=0.3)
    tokens.legend(fontsize="small")
    figure.legend(*money.get_legend_handles_labels(), loc="outside lower right", ncols=3, fontsize="small")
    figure.savefig(path, dpi=100)
