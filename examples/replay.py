"""The proxy at work: a long support conversation goes through it, turn by turn, to the embedded model.

Starts `forgetless serve` on the embedded model, replays the conversation in `support_agent.json` with the OpenAI
client (the history is replayed; what the small model says is shown, not appended), and prints for each turn what
the whole history takes, what was sent, and what left. Then the proxy stays up for your own requests; with ONCE=1 in
the environment it ends.

    python examples/replay.py
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import Any

import httpx2
from openai import OpenAI
from rich.console import Console
from rich.table import Table

from forgetless import compact

HERE = Path(__file__).parent
PORT = 8787
BUDGET = 3_000
WORDS = 16
"""Tokens of each reply: enough to see that there is one."""

console = Console(width=118, highlight=False)


@contextmanager
def proxy(folder: str) -> Iterator[str]:
    """Run `forgetless serve`; hands on its address."""
    port = PORT if free(PORT) else 0
    command = [str(Path(sys.executable).with_name("forgetless")), "serve", "--upstream", "embedded"]
    command += ["--budget", str(BUDGET), "--port", str(port), "--store", f"{folder}/forgetless.db"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, encoding="utf-8")
    try:
        assert process.stderr is not None
        first = process.stderr.readline()
        if not first.startswith("forgetless: http"):
            raise SystemExit(first.strip())
        address = first.split()[1].removesuffix("/v1")
        drain(process)
        wait(address, process)
        yield address
    finally:
        process.terminate()
        process.wait()


def free(port: int) -> bool:
    """Whether nobody listens on a port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def drain(process: subprocess.Popen[str]) -> None:
    """Keep reading the proxy's log, so that it never waits for us."""
    assert process.stderr is not None
    Thread(target=process.stderr.read, daemon=True).start()


def wait(address: str, process: subprocess.Popen[str]) -> None:
    """Wait until the model is loaded."""
    end = monotonic() + 60
    while monotonic() < end and process.poll() is None:
        try:
            if httpx2.get(f"{address}/healthz").status_code == 200:
                return
        except httpx2.ConnectError:
            sleep(0.05)
    raise SystemExit("the proxy did not start")


def replay(address: str, messages: list[dict[str, Any]]) -> tuple[int, int, list[dict[str, Any]]]:
    """Send each turn; returns tokens of all histories, tokens sent, and the last ledger."""
    client = OpenAI(base_url=f"{address}/v1", api_key="no key is needed")
    before = after = 0
    gone: set[int] = set()
    ledger: list[dict[str, Any]] = []
    table = Table("turn", "history", "sent", "reused", "what left", "the small model's first words")
    for column in table.columns[:4]:
        column.justify = "right"
    ends = [place + 1 for place, message in enumerate(messages) if message["role"] == "user"]
    with console.status("") as status:
        for turn, end in enumerate(ends, 1):
            status.update(f"turn {turn} of {len(ends)}")
            raw = client.chat.completions.with_raw_response.create(
                model="smollm2", messages=messages[:end], max_tokens=WORDS
            )
            told = {name: raw.headers[f"x-forgetless-{name}"] for name in ("tokens-before", "tokens-after")}
            before += int(told["tokens-before"])
            after += int(told["tokens-after"])
            asked = f"{address}/forgetless/requests/{raw.headers['x-forgetless-request-id']}"
            ledger = httpx2.get(asked, headers={"authorization": f"Bearer {client.api_key}"}).json()["ledger"]
            now = {at for entry in ledger if entry["form"] != "raw" for at in entry["messages"]}
            words = (raw.parse().choices[0].message.content or "").split()
            table.add_row(
                str(turn),
                f"{int(told['tokens-before']):,}",
                f"{int(told['tokens-after']):,}",
                f"{int(raw.headers['x-forgetless-tokens-reused']):,}",
                ranges(sorted(now - gone)) + (f"; back: {ranges(sorted(gone - now))}" if gone - now else ""),
                " ".join(words)[:34],
            )
            gone = now
    console.print(table)
    return before, after, ledger


def among(names: list[str], messages: list[dict[str, Any]]) -> int:
    """How many of the names stand in messages, word for word."""
    text = json.dumps(messages, ensure_ascii=False)
    return sum(name in text for name in names)


def ranges(indices: list[int]) -> str:
    """1-3, 7 for 1, 2, 3, 7."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def main() -> None:
    """Run the demonstration."""
    messages = json.loads((HERE / "support_agent.json").read_text("utf-8"))["messages"]
    needed = json.loads((HERE / "support_agent.expect.json").read_text("utf-8"))["identifiers"]
    with tempfile.TemporaryDirectory() as folder, proxy(folder) as address:
        console.print(f"forgetless serves the embedded model at {address}/v1 with a budget of {BUDGET:,} tokens.")
        console.print(f"A conversation of {len(messages)} messages goes through it, turn by turn:\n")
        before, after, ledger = replay(address, messages)
        kept = [messages[at] for entry in ledger if entry["form"] == "raw" for at in entry["messages"]]
        anew = compact(messages, budget=BUDGET).messages
        console.print(f"\nTokens sent: {after:,} in place of {before:,}, {1 - after / before:.0%} less.")
        console.print(
            f"Of {len(needed)} numbers and names that the last question needs, {among(needed, kept)} are there: what"
            " stays was chosen when the\nbudget was passed last, for the sake of the prompt cache. Chosen anew for this"
            f" question (--every-turn), {among(needed, anew)} would be."
        )
        if os.environ.get("ONCE"):
            return
        console.print(
            f"""
The proxy stays up. Point any OpenAI or Anthropic client at it, or:

  curl -i {address}/v1/chat/completions -H 'content-type: application/json' \\
    -d '{{"messages": [{{"role": "user", "content": "Name three colours."}}], "max_tokens": 40}}'

Its figures: curl {address}/metrics    Its store: {folder}/forgetless.db    Ctrl-C ends it."""
        )
        try:
            while True:
                sleep(3_600)
        except KeyboardInterrupt:
            console.print("bye")


if __name__ == "__main__":
    main()
