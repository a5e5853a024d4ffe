"""`forgetless sessions`: what a store has kept, looked up, taken along or removed."""

from __future__ import annotations

import json as standard
import os
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from cyclopts import Parameter

from forgetless.cli.compact import first_words, ranges
from forgetless.cli.files import dump, write
from forgetless.errors import ConfigError
from forgetless.instructions.load import recogniser
from forgetless.policies.base import Entry
from forgetless.proxy import pins
from forgetless.registry import RECOGNISER
from forgetless.stores.base import Conversation, Exchange, Store, Summary
from forgetless.stores.export import lines, members
from forgetless.stores.open import file_of, open_store

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["export", "list_sessions", "pin", "purge", "show", "unpin"]

ROWS = 100
"""Most rows of a table, the newest; `--json` and `export` hold all."""

DAY = 86_400

Flag = Annotated[bool, Parameter(negative="")]


def list_sessions(*, store: str | None = None, caller: str | None = None, json: Flag = False) -> None:
    """List conversations, the one updated last first.

    Args:
        store: the store; by default the file in your data directory.
        caller: only of the caller whose hash begins so.
        json: print a list of objects.
    """
    with _opened(store) as opened:
        found = opened.conversations(_caller(opened, caller))
    if json:
        write(dump([asdict(summary) for summary in found], indent=_indent()))
        return
    from rich.table import Table

    table = Table("conversation", "caller", "dialect", "model", "policy", "messages", "requests", "tokens", "updated")
    for summary in found:
        numbers = f"{summary.messages:,}", f"{summary.requests:,}"
        names = summary.conversation, summary.caller[:12], summary.dialect, summary.model, summary.policy
        tokens = f"{summary.tokens_before:,} → {summary.tokens_after:,}"
        table.add_row(*map(_plain, names), *numbers, tokens, _when(summary.updated))
    console = _console()
    console.print(table if found else "no conversations")


def show(
    conversation: str,
    /,
    *,
    store: str | None = None,
    caller: str | None = None,
    instructions: str = RECOGNISER,
    json: Flag = False,
) -> None:
    """Show the newest branch of a conversation, what stays of it at its user's wish, and its newest ledger.

    Args:
        conversation: its id.
        store: the store; by default the file in your data directory.
        caller: whose hash begins so, where several callers have a conversation of that name.
        instructions: what recognises standing instructions, as in `forgetless serve`.
        json: print one object.
    """
    with _opened(store) as opened:
        summary = _the_one(opened, conversation, _caller(opened, caller))
        branches = opened.branches(summary.caller, conversation)
        branch = next(branches, None) or Conversation(summary, (), (), ())
        others = sum(1 for _ in branches)
        newest = branch.exchanges[-1].id if branch.exchanges else ""
        request = opened.request(summary.caller, newest)
        stays = pins.wishes(opened, branch, recogniser(instructions))
    if json:
        write(dump({**_object(branch, request), "pins": [wish.as_dict() for wish in stays]}, indent=_indent()))
        return
    console = _console()
    told = (summary.conversation, summary.caller[:12], summary.dialect, summary.model, summary.policy)
    name, whose, dialect, model, policy = map(_plain, told)
    console.print(
        f"{name} of caller {whose}: {dialect}, {model}, {policy}; {_counted(summary.messages, 'message')}, "
        f"{_counted(summary.requests, 'request')} from {_when(summary.created)} to {_when(summary.updated)}"
    )
    _show_messages(console, branch, request)
    if stays:
        _show_wishes(console, stays)
    if request is not None:
        _show_ledger(console, branch, request)
    if others:
        console.print(f"{others} older {'branch' if others == 1 else 'branches'}: forgetless sessions export has them")


def pin(conversation: str, message: int, /, *, store: str | None = None, caller: str | None = None) -> None:
    """Have a message of a stored conversation stay, whatever happens.

    A proxy takes it up with the conversation; one that has it in memory is told at its own address, or by header.

    Args:
        conversation: its id.
        message: its number, as `forgetless sessions show` has it.
        store: the store; by default the file in your data directory.
        caller: whose hash begins so, where several callers have a conversation of that name.
    """
    _change(conversation, message, store, caller, pins.pin)
    print(f"message {message} of {_plain(conversation)} is pinned", file=sys.stderr)


def unpin(conversation: str, message: int, /, *, store: str | None = None, caller: str | None = None) -> None:
    """Take the pin off a message, and let it count as a standing instruction no more.

    Args:
        conversation: its id.
        message: its number, as `forgetless sessions show` has it.
        store: the store; by default the file in your data directory.
        caller: whose hash begins so, where several callers have a conversation of that name.
    """
    _change(conversation, message, store, caller, pins.unpin)
    print(f"message {message} of {_plain(conversation)} may go", file=sys.stderr)


def _change(conversation: str, message: int, store: str | None, caller: str | None, how: pins.Change) -> None:
    with _opened(store) as opened:
        summary = _the_one(opened, conversation, _caller(opened, caller))
        pins.change(opened, summary.caller, conversation, message, how)


def export(
    conversation: str | None = None,
    /,
    *,
    store: str | None = None,
    caller: str | None = None,
    out: Path | None = None,
) -> None:
    """Write conversations as JSON lines, one for each branch.

    Args:
        conversation: only the one with this id.
        store: the store; by default the file in your data directory.
        caller: only of the caller whose hash begins so.
        out: the file to write, readable by you alone; by default standard output.
    """
    with _opened(store) as opened:
        whose = _caller(opened, caller)
        if conversation is not None and all(s.conversation != conversation for s in opened.conversations(whose)):
            _unknown(conversation)
        found = lines(opened, whose, conversation)
        if out is None:
            for line in found:
                write(line)
            return
        try:
            with open(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.writelines(found)
        except OSError as error:
            raise ConfigError(f"{str(out)!r} cannot be written: {error.strerror}") from error


def purge(
    conversation: str | None = None,
    /,
    *,
    store: str | None = None,
    caller: str | None = None,
    older_than: float | None = None,
    yes: Flag = False,
) -> None:
    """Remove conversations with their messages, requests, pins and memories; all of them unless told which.

    Args:
        conversation: only the one with this id.
        store: the store; by default the file in your data directory.
        caller: only of the caller whose hash begins so.
        older_than: only those without a request in so many days.
        yes: do not ask.
    """
    if older_than is not None and not older_than >= 0:
        raise ConfigError(f"older-than must be a number of days, 0 or more, not {older_than!r}")
    before = None if older_than is None else time.time() - older_than * DAY
    with _opened(store) as opened:
        whose = _caller(opened, caller)
        found = [
            summary
            for summary in opened.conversations(whose)
            if conversation in (None, summary.conversation) and (before is None or summary.updated < before)
        ]
        if found and not yes:
            _ask(len(found))
        gone = opened.purge(caller=whose, conversation=conversation, before=before) if found else 0
    print(f"removed {_counted(gone)}", file=sys.stderr)


def _counted(number: int, what: str = "conversation") -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _ask(number: int) -> None:
    print(f"Remove {_counted(number)} with all that belongs to them? [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline() if sys.stdin is not None else ""
    if answer.strip().lower() not in ("y", "yes"):
        raise ConfigError("nothing was removed: answer y, or give --yes")


@contextmanager
def _opened(spec: str | None) -> Iterator[Store]:
    """The store, which must be there: a name spelt wrong is not to make an empty one."""
    path = file_of(spec)
    if path is not None and not path.exists():
        raise ConfigError(f"there is no store at {str(path)!r}: name it with --store, or let a proxy make it")
    with closing(open_store(spec)) as store:
        yield store


def _caller(store: Store, beginning: str | None) -> str | None:
    """The one caller whose hash begins so."""
    if beginning is None:
        return None
    found = {summary.caller for summary in store.conversations() if summary.caller.startswith(beginning)}
    if len(found) != 1:
        raise ConfigError(f"{len(found) or 'no'} callers in the store begin with {beginning!r}: give more of the hash")
    return found.pop()


def _the_one(store: Store, conversation: str, caller: str | None) -> Summary:
    found = [summary for summary in store.conversations(caller) if summary.conversation == conversation]
    if not found:
        _unknown(conversation)
    if len(found) > 1:
        callers = ", ".join(repr(summary.caller[:12]) for summary in found)
        raise ConfigError(f"several callers have a conversation {conversation!r}: give --caller, one of {callers}")
    return found[0]


def _unknown(conversation: str) -> NoReturn:
    raise ConfigError(f"the store has no conversation {conversation!r}: forgetless sessions list names them")


def _object(branch: Conversation, request: Exchange | None) -> dict[str, Any]:
    """A branch as `--json` prints it."""
    told = [_read(wire) for wire in branch.system]
    told += [{"role": n.role, "tokens": n.tokens} if n.wire is None else _read(n.wire) for n in branch.nodes]
    about: dict[str, Any] = {**members(branch.summary), "messages": told, "request": None, "ledger": []}
    if request is not None:
        left_out = {"caller", "conversation", "asked", "head", "system", "nodes", "base", "kept", "rows", "state"}
        about["request"] = {name: value for name, value in asdict(request).items() if name not in left_out}
        about["ledger"] = [asdict(Entry(*row)) for row in request.rows]
    return about


def _show_messages(console: Console, branch: Conversation, request: Exchange | None) -> None:
    from rich.table import Table

    listed = _listed(branch)
    outside = request is not None and any(-1 in messages for _, messages, *_ in request.rows)
    table = Table("message", "role", "tokens", "begins with")
    for number, (role, tokens, begins) in list(enumerate(listed, -outside))[-ROWS:]:
        table.add_row(str(number), role, tokens, begins)
    _more(console, len(listed), "messages")
    console.print(table)


def _show_wishes(console: Console, stays: list[pins.Wish]) -> None:
    """What stays at the user's wish; what no longer counts says so."""
    from rich.table import Table

    table = Table("message", "pinned", "standing instruction", "state")
    for wish in stays[-ROWS:]:
        told = wish.instructions or (("", ""),)
        for at, (text, state) in enumerate(told):
            first = (str(wish.message), "yes" if wish.pinned else "") if not at else ("", "")
            table.add_row(*first, _plain(text), "holds" if state == "instruction" else state)
    console.print(table)


def _show_ledger(console: Console, branch: Conversation, request: Exchange) -> None:
    from rich.table import Table

    entries = [Entry(*row) for row in request.rows]
    gone = sum(entry.form != "raw" for entry in entries)
    console.print(
        f"request {_plain(request.id)}, {request.outcome}, {_when(request.at)}: {request.tokens_before:,} tokens in, "
        f"{request.tokens_after:,} out, budget {request.budget:,}; {len(entries)} units, {gone} of them omitted or "
        f"compressed{f'; scores by the weights {_plain(request.scorer)}' if request.scorer else ''}"
    )
    listed = _listed(branch)
    start = min((index for entry in entries for index in entry.messages), default=0)
    # Without contents the store does not know how many system messages stood before the others.
    known = bool(branch.system) or all(node.wire is not None for node in branch.nodes)
    table = Table("unit", "messages", "role", "form", "reason", "score", "tokens", "begins with")
    for entry in entries[-ROWS:]:
        at = entry.messages[0] - min(start, 0) if entry.messages else len(listed)
        role, _, begins = listed[at] if known and at < len(listed) else ("", "", "")
        score = "" if entry.score is None else f"{entry.score:.3g}"
        tokens = f"{entry.tokens_before:,} → {entry.tokens_after:,}"
        reason = _plain(entry.reason)
        table.add_row(str(entry.unit), ranges(entry.messages), role, entry.form, reason, score, tokens, begins)
    _more(console, len(entries), "units")
    console.print(table)


def _more(console: Console, number: int, what: str) -> None:
    if number > ROWS:
        console.print(f"the newest {ROWS} of {number:,} {what}; --json has all")


def _listed(branch: Conversation) -> list[tuple[str, str, str]]:
    """Role, tokens and first words of each message, system messages first."""
    system = [("system", "", _begins(wire)) for wire in branch.system]
    return system + [(_plain(node.role), f"{node.tokens:,}", _begins(node.wire or b"null")) for node in branch.nodes]


def _begins(wire: bytes) -> str:
    message = _read(wire)
    if isinstance(message, dict):
        message = message.get("content") or message.get("tool_calls") or message.get("arguments")
    text = _plain(first_words(message))
    return text[:48] + ("…" if len(text) > 48 else "")


def _read(wire: bytes) -> Any:
    return standard.loads(wire)


def _plain(text: str) -> str:
    """Text on one line, without what a terminal would obey."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M")


def _indent() -> int | None:
    return 2 if sys.stdout is not None and sys.stdout.isatty() else None


def _console() -> Console:
    from rich.console import Console

    if sys.stdout is None:
        raise ConfigError("standard output is closed")
    return Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else 140)
