"""Plots of benchmark summaries, written as PNG files; matplotlib is loaded only when one is drawn."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from forgetless.errors import MissingExtra

__all__ = [
    "adherence_plot",
    "canvas",
    "draw",
    "durability_plot",
    "overhead_plot",
    "proxy_plot",
    "replay_plot",
    "retention_plot",
    "turns_plot",
]


COLORS = (*(f"C{number}" for number in range(10)), "black", "gold", "navy", "teal", "salmon", "olive", "plum", "tan")
"""Of policies, in the order in which they come."""


def draw(plot: Callable[[Mapping[str, Any], Path], None], summary: Mapping[str, Any], path: Path) -> None:
    """Draw a plot; without matplotlib say so and go on."""
    try:
        plot(summary, path)
    except MissingExtra as missing:
        print(f"no plot: {missing}", file=sys.stderr)


def canvas() -> Any:
    """An empty figure to draw on.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("plots", "matplotlib") from None
    figure = Figure(figsize=(11, 5), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def overhead_plot(summary: Mapping[str, Any], path: Path) -> None:
    """Time of a call against the number of messages, a panel per variant, both axes logarithmic.

    Args:
        summary: of `forgetless bench overhead`.
        path: the PNG file to write.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    figure = canvas()
    panels = figure.subplots(1, len(summary["variants"]), sharey=True, squeeze=False)[0]
    for panel, (variant, by_size) in zip(panels, summary["variants"].items(), strict=True):
        subjects = dict.fromkeys(subject for rows in by_size.values() for subject in rows)
        for subject in subjects:
            points = [
                (int(size), rows[subject]["median_ms"])
                for size, rows in by_size.items()
                if "median_ms" in rows.get(subject, {})
            ]
            if points:
                style = "--" if "-" in subject else "-"  # other libraries' names have a dash
                panel.loglog(*zip(*points, strict=True), style, marker="o", markersize=3, label=subject)
        panel.set(title=variant, xlabel="messages")
        panel.grid(alpha=0.3)
        panel.legend(fontsize="small")
    panels[0].set_ylabel("ms per call (median)")
    figure.savefig(path, dpi=120)


def retention_plot(summary: Mapping[str, Any], path: Path) -> None:
    """Recall of evidence and availability of identifiers against the budget, with bands for the intervals.

    Args:
        summary: of `forgetless bench retention`.
        path: the PNG file to write.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    figure = canvas()
    parts = [
        (summary[part][rows], value, title)
        for part, rows, value, title in (
            ("dialogue", "rows", "recall", "evidence kept, for each question"),
            ("dialogue", "at_evictions", "recall", "evidence kept, at evictions"),
            ("agents", "rows", "availability", "identifiers still there, for each action"),
            ("agents", "steps", "availability", "identifiers still there, budget for steps"),
        )
        if part in summary
    ]
    lines: dict[str, Any] = {}
    height = (len(parts) + 1) // 2
    figure.set_size_inches(11, 5 * height)
    panels = figure.subplots(height, 2).flat[: len(parts)]
    for panel, (found, value, title) in zip(panels, parts, strict=True):
        rows = [row for row in found if row["budget"] is not None and row[value] is not None]
        for policy in dict.fromkeys(row["policy"] for row in rows):
            points = [
                (row["budget"], row[value], row[f"{value}_low"], row[f"{value}_high"])
                for row in rows
                if row["policy"] == policy
            ]
            budgets, means, lows, highs = zip(*points, strict=True)
            known = lines.get(policy)
            color = known.get_color() if known else COLORS[len(lines) % len(COLORS)]
            (line,) = panel.plot(budgets, means, _style(policy), color=color, marker="o", markersize=3)
            lines.setdefault(policy, line)
            panel.fill_between(budgets, lows, highs, color=line.get_color(), alpha=0.1, linewidth=0)
        ticks = sorted({row["budget"] for row in rows})
        panel.set_xscale("log", base=2)
        panel.set_xticks(ticks, labels=[f"{tick:,}" for tick in ticks])
        panel.minorticks_off()
        panel.set(title=title, xlabel="budget in tokens", ylabel=f"{value} (mean, 95 %)")
        panel.grid(alpha=0.3)
    columns = max(1, min(6, len(lines)))
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=columns, fontsize="small")
    figure.savefig(path, dpi=90)


def _style(policy: str) -> str:
    if policy == "oracle":
        return ":"
    return "--" if "," in policy else "-"  # fitted within the benchmark


def replay_plot(summary: Mapping[str, Any], path: Path) -> None:
    """Cost with a prompt cache against tokens sent, a point per policy and budget, and prefix shares as bars.

    Args:
        summary: of `forgetless bench replay`.
        path: the PNG file to write.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    figure = canvas()
    money, shares = figure.subplots(1, 2)
    rows = summary["rows"]
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    for policy in policies:
        points = [(row["input"], row["cached"]) for row in rows if row["policy"] == policy]
        money.plot(
            *zip(*points, strict=True), "--" if "trim" in policy else "-", marker="o", markersize=4, label=policy
        )
    money.set(title=f"cost of a run, {summary['price']}", xlabel="tokens sent in a run (mean)")
    money.set_ylabel("cents with the prompt cache (mean)")
    money.legend(fontsize="small")
    budgets = list(dict.fromkeys(row["budget"] for row in rows))
    for place, budget in enumerate(budgets):
        of_budget = [row for row in rows if row["budget"] == budget]
        height = 0.8 / max(1, len(budgets) - 1)  # the row without a budget stands alone
        offset = 0.0 if budget is None else (place - len(budgets) / 2) * height
        means = [row["prefix_share"] for row in of_budget]
        ends = [[abs(row["prefix_share"] - row[f"prefix_share_{end}"]) for row in of_budget] for end in ("low", "high")]
        at = [policies.index(row["policy"]) + offset for row in of_budget]
        label = "no budget" if budget is None else f"{budget:,} tokens"
        shares.barh(at, means, height, xerr=ends, error_kw={"linewidth": 1}, label=label)
    shares.set_yticks(range(len(policies)), labels=policies)
    shares.invert_yaxis()
    shares.set(title="sent tokens that start as the request before", xlabel="share (mean, 95 %)")
    names = shares.get_legend_handles_labels()
    figure.legend(*names, loc="outside lower right", ncols=len(budgets), fontsize="small")
    for panel in (money, shares):
        panel.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def proxy_plot(summary: Mapping[str, Any], path: Path) -> None:
    """What proxies add to a request, by percentile, and their memory under streams.

    Args:
        summary: of `forgetless bench proxy`.
        path: the PNG file to write.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    figure = canvas()
    added, memory = figure.subplots(1, 2)
    rows = [
        (f"{name}\n{kind}", row["added_ms"])
        for kind, by_name in summary["latency"].items()
        for name, row in by_name.items()
        if "added_ms" in row
    ]
    for place, part in enumerate(("p50", "p95", "p99")):
        heights = [max(0.0, row[part]) for _, row in rows]
        added.bar([at + (place - 1) * 0.27 for at in range(len(rows))], heights, 0.27, label=part)
    added.set_xticks(range(len(rows)), labels=[label for label, _ in rows], rotation=45, ha="right", fontsize="small")
    added.set(title="added to a request of 1,000 messages", ylabel="ms over the bare pass-through", yscale="log")
    for name, row in summary["streams"].items():
        memory.plot(row["rss_mib"], label=name)
    memory.set(title="memory under streaming clients", xlabel="s", ylabel="MiB", ylim=(0, None))
    for panel in (added, memory):
        panel.grid(alpha=0.3)
        panel.legend(fontsize="small")
    figure.savefig(path, dpi=120)


def adherence_plot(summary: Mapping[str, Any], path: Path) -> None:
    """Adherence and prompt length, turn by turn (REA, Figure 4).

    Args:
        summary: of `forgetless bench adherence`.
        path: the PNG file to write.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    figure = canvas()
    panels = figure.subplots(1, 2)
    parts = (("iar_by_turn", "instruction adherence (0 to 10)"), ("prompt_tokens_by_turn", "prompt tokens"))
    for panel, (key, label) in zip(panels, parts, strict=True):
        for at, row in enumerate(summary["rows"]):
            turns, style = range(1, len(row[key]) + 1), ("-", "--", ":")[at // 10 % 3]
            panel.plot(turns, row[key], style, color=f"C{at % 10}", marker="o", markersize=3, label=row["policy"])
        panel.set(xlabel="turn", ylabel=label, ylim=(0, None))
        panel.grid(alpha=0.3)
    names = panels[0].get_legend_handles_labels()
    figure.legend(*names, loc="outside lower center", ncols=5, fontsize="small")
    figure.savefig(path, dpi=100)


def durability_plot(summary: Mapping[str, Any], path: Path) -> None:
    """Replies read and requests broken off in each round, and what was missing afterwards.

    Args:
        summary: of `forgetless bench durability`.
        path: the PNG file to write.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    figure = canvas()
    panel = figure.subplots()
    rounds = summary["rounds"]
    at = [row["round"] + 1 for row in rounds]
    panel.bar(at, [row["read"] for row in rounds], 0.4, label="read to the last byte")
    panel.bar([place + 0.4 for place in at], [row["under_way"] for row in rounds], 0.4, label="broken off by the kill")
    panel.plot(at, [row["missing"] + row["half_written"] for row in rounds], "k.-", label="read, and not in the store")
    panel.set(title="kill -9 under load, on one store", xlabel="round", ylabel="requests")
    panel.grid(alpha=0.3)
    panel.legend(fontsize="small")
    figure.savefig(path, dpi=120)


def turns_plot(summary: Mapping[str, Any], path: Path) -> None:
    """Length of the prompt, time, memory, and the loss of the file's reply, turn by turn.

    Args:
        summary: of `forgetless bench latent`.
        path: the PNG file to write.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    figure = canvas()
    figure.set_size_inches(11, 8)
    parts = {
        "prompt_tokens": "prompt tokens",
        "first_token_ms": "CPU ms to the first token (dotted: to make it)",
        "added_mib": "memory at the peak, beyond what was there (MiB)",
        "nats": "nats a token of the reply",
    }
    for panel, (key, label) in zip(figure.subplots(2, 2).flat, parts.items(), strict=True):
        for at, row in enumerate(summary["rows"]):
            by, color = row["by_turn"], COLORS[at % len(COLORS)]
            panel.plot(by["turn"], by[key], color=color, marker="o", markersize=3, label=row["policy"])
            if key == "first_token_ms":
                panel.plot(by["turn"], by["prompt_ms"], ":", color=color)
        panel.set(xlabel="turn", title=label, xticks=by["turn"], ylim=(None if key == "nats" else 0, None))
        panel.grid(alpha=0.3)
    figure.legend(*panel.get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize="small")
    figure.savefig(path, dpi=100)
