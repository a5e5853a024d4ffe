"""A long support conversation under every policy at two budgets: what stays, what goes, and what is lost.

The customer's last message asks for numbers that were named some 60 messages earlier.
`support_agent.expect.json` lists what a right answer needs; where a policy drops all places at which a number
stands, the number is lost, and the table says so.

    python examples/tour.py
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.table import Table

from forgetless import BudgetError, Compaction, compact
from forgetless.registry import DEFAULT, policy_names

HERE = Path(__file__).parent
BUDGETS = (8_000, 4_000)
console = Console(width=118, highlight=False)


def read(name: str) -> Any:
    """A JSON file beside this one."""
    return json.loads((HERE / name).read_text("utf-8"))


def texts(messages: list[dict[str, Any]]) -> str:
    """All that the model would read of `messages`: contents, and the arguments of tool calls."""
    contents = [message["content"] or "" for message in messages]
    calls = [call["function"] for message in messages for call in message.get("tool_calls") or []]
    return "\n".join([*contents, *(call["arguments"] for call in calls)])


def lost(done: Compaction, identifiers: list[str]) -> list[str]:
    """The needed identifiers that stand nowhere in the compacted conversation."""
    kept = texts(done.messages)
    return [identifier for identifier in identifiers if identifier not in kept]


def row(policy: str, done: Compaction, expect: dict[str, Any]) -> list[str]:
    """A table row: the policy, and what it did to the conversation."""
    forms = Counter(entry.form for entry in done.ledger)
    needed = expect["identifiers"]
    found = len(needed) - len(lost(done, needed))
    standing = expect["standing_instruction"] in texts(done.messages)
    return [
        policy,
        f"{done.tokens_before:,}",
        f"{done.tokens:,}",
        *(str(forms[form]) for form in ("raw", "compressed", "omitted")),
        f"[{'green' if found == len(needed) else 'red'}]{found} of {len(needed)}[/]",
        "[green]kept[/]" if standing else "[red]lost[/]",
    ]


def compare(request: dict[str, Any], expect: dict[str, Any], budget: int) -> None:
    """Print how every policy fares at one budget."""
    console.print(f"\nBudget {budget:,} tokens:")
    table = Table("policy")
    for column in ("tokens in", "out", "raw units", "compressed", "omitted"):
        table.add_column(column, justify="right")
    table.add_column("identifiers")
    table.add_column("standing instruction")
    for policy in policy_names():
        try:
            table.add_row(*row(policy, compact(request, budget=budget, policy=policy), expect))
        except BudgetError as error:  # `full` drops nothing, so it can only refuse
            table.add_row(policy, f"{error.floor:,}", "[red]over[/]", *"---", "-", "-")
    console.print(table)


def ledger(request: dict[str, Any], done: Compaction) -> None:
    """Print what left and why: a line for each unit that is not there as it was."""
    table = Table("messages", "what it was", "form", "reason", "score", "tokens")
    for entry in done.ledger:
        if entry.form == "raw":
            continue
        first, last = entry.messages[0], entry.messages[-1]
        message = request["messages"][first]
        calls = ", ".join(call["function"]["name"] for call in message.get("tool_calls") or [])
        table.add_row(
            f"{first}-{last}" if last > first else f"{first}",
            calls or f"{message['role']}: {' '.join(message['content'].split())[:40]}…",
            entry.form,
            entry.reason,
            "" if entry.score is None else f"{entry.score:.3g}",
            f"{entry.tokens_before:,} → {entry.tokens_after:,}",
        )
    console.print(table)


def main() -> None:
    """Run the tour."""
    request, expect = read("support_agent.json"), read("support_agent.expect.json")
    messages = request["messages"]
    console.print(f"A bicycle shop's support agent, {len(messages)} messages so far. The customer now asks:")
    console.print(f"[italic]{messages[-1]['content']}[/]")
    console.print(f"A right answer needs: {', '.join(expect['identifiers'])}.")
    console.print(f"Long ago she said: [italic]{expect['standing_instruction']}[/]")
    for budget in BUDGETS:
        compare(request, expect, budget)
    began = perf_counter()
    done = compact(request, budget=BUDGETS[-1], policy=DEFAULT)
    took = (perf_counter() - began) * 1_000
    console.print(f"\n{DEFAULT} at {done.budget:,} tokens, in {took:.1f} ms: what left, and why:")
    ledger(request, done)
    missing = ", ".join(lost(done, expect["identifiers"])) or "nothing"
    console.print(f"Of what the answer needs, {DEFAULT} has lost: {missing}.")


if __name__ == "__main__":
    main()
