"""The tables that `forgetless bench replay` prints."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

__all__ = ["tables"]


def tables(summary: Mapping[str, Any], *, stderr: bool) -> None:
    """Print a summary to stdout, or to stderr."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    console = Console(file=stream, width=None if stream.isatty() else 160)
    ccm = summary["ccm"]
    for rows, first in ((summary["rows"], "policy"), (summary["lows"], "low"), (ccm["rows"], "memory")):
        if rows:
            console.print(_costs(summary, rows, first))
    if ccm["rows"]:
        console.print(_lengths(ccm["by_length"]))
        console.print(_break_evens(ccm))


def _costs(summary: Mapping[str, Any], rows: list[Mapping[str, Any]], first: str) -> Any:
    from rich.table import Table

    table = Table(first, "budget", "prefix share", "input", "evictions", "rewrites", "peak", "over", "refused")
    for name in ("cached, cents", "uncached", "cached beside full"):
        table.add_column(name)
    for row in rows:
        budget = "none" if row["budget"] is None else f"{row['budget']:,}"
        evictions = "-" if row["evictions"] is None else f"{row['evictions']:.2f}"
        counts = [f"{row['rewrites']:.2f}", *(f"{row[name]:,}" for name in ("peak", "over", "refused"))]
        money = [f"{row[name]:.2f}" for name in ("cached", "uncached")]
        shares = _figure(row, "prefix_share"), f"{row['input']:,.0f}"
        table.add_row(str(row[first]), budget, *shares, evictions, *counts, *money, _figure(row, "cached_to_full"))
    table.title = f"{summary['task']}, {summary['price']}"
    wrong = [sum(row[name] for row in rows) for name in ("overstated", "understated")]
    table.caption = "beside the wire our reused_tokens is too high in {:,} calls, too low in {:,}".format(*wrong)
    return table


def _figure(row: Mapping[str, Any], name: str) -> str:
    return f"{row[name]:.2f} [{row[f'{name}_low']:.2f}, {row[f'{name}_high']:.2f}]"


def _lengths(rows: list[Mapping[str, Any]]) -> Any:
    from rich.table import Table

    table = Table(
        "memory", "calls", "runs", "input", "bare", "cached", "uncached", title="a memory, beside the full history"
    )
    for row in rows:
        calls = f"{row['least']} to {row['most']}" if row["most"] else f"from {row['least']}"
        shares = (
            f"{row[name]:.3f}" for name in ("input_to_full", "input_to_full_bare", "cached_to_full", "uncached_to_full")
        )
        table.add_row(f"{row['memory']:,}", calls, str(row["runs"]), *shares)
    return table


def _break_evens(ccm: Mapping[str, Any]) -> Any:
    from rich.table import Table

    table = Table("memory", "written", "model", "with a cache", "without", title="calls from which on it is not dearer")
    for row in ccm["break_even"]:
        turns = ("never" if row[name] is None else f"{row[name]:,}" for name in ("cached", "uncached"))
        table.add_row(f"{row['memory']:,}", f"{row['emitted']:,}", row["model"], *turns)
    table.caption = ", ".join(f"{part} {tokens:,}" for part, tokens in ccm["shape"].items())
    return table
