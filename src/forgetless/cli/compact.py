"""`forgetless compact`: a conversation from a file, within a budget, to standard output."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from forgetless.cli.files import dump, read, write
from forgetless.compaction import compact
from forgetless.errors import ConfigError
from forgetless.intake import Compaction
from forgetless.registry import DEFAULT, RECOGNISER, options_of
from forgetless.tokens import from_file

__all__ = ["compact_file", "first_words", "ranges"]

ROWS = 40
"""Most rows of the ledger on the screen; the file of `--ledger` holds all."""


def compact_file(
    file: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    policy: str = DEFAULT,
    budget: int | None = None,
    model: str | None = None,
    dialect: Literal["auto", "chat", "responses", "anthropic"] = "auto",
    truncate: Annotated[bool, Parameter(negative="")] = False,
    instructions: str = RECOGNISER,
    remind: bool | None = None,
    pin: Annotated[tuple[int, ...], Parameter(negative="")] = (),
    option: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    tokenizer: str | None = None,
    ledger: Path | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Bring a conversation within a token budget.

    The compacted request goes to standard output (a trajectory as a list of chat messages), the ledger as a table
    to standard error.

    Args:
        file: a list of messages, a request body, JSONL of messages, or an ATIF trajectory; - is standard input.
        policy: what decides which units stay.
        budget: most tokens of the whole request; by default the model's window less the reply's `max_tokens`.
        model: whose tokens to count; by default the one that the request names.
        dialect: the wire format; by default told by its shape.
        truncate: where what must stay is over the budget, cut inside its longest user texts and tool results.
        instructions: what recognises the user's standing instructions, which then stay word for word: learned, rules,
            or none.
        remind: say them again beside the newest question, in place of keeping them where they were given; by default
            only the policy rea does.
        pin: index of a message that must stay; may be given more than once.
        option: NAME=VALUE, an option of the policy, such as turns=3; may be given more than once.
        tokenizer: a tokenizer.json or .tiktoken file to count exactly with.
        ledger: write the whole ledger to this file as JSON.
        json: print one object with request, ledger, tokens and budget, and no table.
    """
    conversation = read(file)
    if ledger is not None and file != "-" and ledger.resolve() == Path(file).resolve():
        raise ConfigError(f"the ledger would overwrite {file!r}")
    done = compact(
        conversation.request,
        budget=budget,
        policy=policy,
        dialect=dialect,
        counter=None if tokenizer is None else from_file(tokenizer),
        model=model,
        pins=pin,
        truncate=truncate,
        instructions=instructions,
        remind=remind,
        **options_of(option),
    )
    if ledger is not None:
        _write(ledger, dump([asdict(entry) for entry in done.ledger], indent=2))
    indent = 2 if sys.stdout is not None and sys.stdout.isatty() else None  # a pipe has no use for blanks
    if json:
        write(dump(done.as_dict(), indent=indent))
        return
    write(dump(done.request, lines=conversation.lines, indent=None if conversation.lines else indent))
    show(done, conversation.request)


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise ConfigError(f"{str(path)!r} cannot be written: {error.strerror}") from error


def show(done: Compaction, request: Any) -> None:
    """Print a compaction's ledger as a table to standard error."""
    from rich.console import Console
    from rich.table import Table

    width = None if sys.stderr.isatty() else 140  # a log has no edge to wrap at
    console = Console(stderr=True, markup=False, highlight=False, width=width)
    gone = [entry for entry in done.ledger if entry.form != "raw"]
    console.print(
        f"{done.tokens_before:,} tokens in, {done.tokens:,} out, budget {done.budget:,}; "
        f"{len(done.ledger)} units, {len(gone)} of them omitted or compressed"
    )
    if not gone:
        return
    table = Table("unit", "messages", "role", "form", "reason", "score", "tokens", "begins with")
    for entry in gone[:ROWS]:
        role, begins = _about(request, entry.messages)
        score = "" if entry.score is None else f"{entry.score:.3g}"
        tokens = f"{entry.tokens_before:,} → {entry.tokens_after:,}"
        table.add_row(str(entry.unit), ranges(entry.messages), role, entry.form, entry.reason, score, tokens, begins)
    console.print(table)
    if len(gone) > ROWS:
        console.print(f"and {len(gone) - ROWS} more; --ledger FILE writes all of them")


def ranges(indices: Sequence[int]) -> str:
    """Indices as a table shows them: a run by its ends."""
    if len(indices) > 1 and indices[-1] - indices[0] == len(indices) - 1:
        return f"{indices[0]}-{indices[-1]}"
    return ", ".join(map(str, indices))


def _about(request: Any, indices: Sequence[int]) -> tuple[str, str]:
    """Role and first words of the input message that a unit begins with."""
    listed = request if isinstance(request, list) else request.get("messages", request.get("input"))
    if isinstance(listed, str) or indices[0] < 0:
        return "", ""
    first: Mapping[str, Any] = listed[indices[0]]
    words = first_words(first.get("content") or first.get("tool_calls") or first.get("arguments"))
    text = " ".join("".join(c if c.isprintable() else " " for c in words).split())  # no escapes to the terminal
    return str(first.get("role") or first.get("type")), text[:48] + ("…" if len(text) > 48 else "")


def first_words(value: Any) -> str:
    """The first readable text inside a content value."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        for key in ("text", "thinking", "content", "function", "name", "arguments"):
            if value.get(key):
                return first_words(value[key])
    if isinstance(value, Sequence):
        return next(filter(None, map(first_words, value)), "")
    return ""
