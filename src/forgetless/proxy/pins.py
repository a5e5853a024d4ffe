"""What a caller wants kept of a conversation, or no longer: pins, and instructions that are to count no more.

In a store the key of a message stands for a pin on it, and the key with `DROPPED` behind it for the wish that nothing
in it counts as an instruction, however often it is recognised.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from forgetless.errors import ConfigError, RequestError
from forgetless.instructions.base import Recogniser
from forgetless.instructions.dropping import Dropping
from forgetless.instructions.memory import standing
from forgetless.messages import Message, Text
from forgetless.registry import load_dialect
from forgetless.splitting import split
from forgetless.stores.base import Conversation, Store
from forgetless.tokens import for_model

__all__ = ["HEADERS", "Change", "Wish", "change", "dropped", "keep", "merged", "named", "pin", "unpin", "wishes"]

DROPPED = b"-"

Change: TypeAlias = Callable[[set[bytes], bytes], None]
"""`pin` or `unpin`: changes what is pinned by the key of a message."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A message that stays at its user's wish, or whose wish is to count no more.

    Attributes:
        message: its number in the requests of the conversation.
        key: of the message.
        role: as its dialect has it.
        pinned: whether it is pinned.
        instructions: standing instructions in it, each with what holds of it: `instruction`, what has ended it
            (`replaced`, `withdrawn`, `expired`), or `dropped`.
    """

    message: int
    key: bytes
    role: str
    pinned: bool
    instructions: tuple[tuple[str, str], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """All of it but the key as plain JSON values."""
        told = [{"text": text, "state": state} for text, state in self.instructions]
        return {"message": self.message, "role": self.role, "pinned": self.pinned, "instructions": told}


def pin(pins: set[bytes], key: bytes) -> None:
    """Pin a message; instructions in it count again."""
    pins.add(key)
    pins.discard(key + DROPPED)


def unpin(pins: set[bytes], key: bytes) -> None:
    """Take the pin off a message; instructions in it count no more."""
    pins.discard(key)
    pins.add(key + DROPPED)


HEADERS: Mapping[str, Change] = {"x-forgetless-pin": pin, "x-forgetless-unpin": unpin}
"""What a request's headers may ask for, with the numbers of its messages."""


def named(pins: set[bytes], headers: Mapping[str, str], keys: Sequence[bytes], first: int) -> None:
    """Do what the headers of a request ask for.

    Args:
        pins: are changed.
        headers: of the request.
        keys: of its messages.
        first: number of the first of these.

    Raises:
        ConfigError: one does not name messages of the request.
    """
    for header, how in HEADERS.items():
        if told := headers.get(header, ""):
            try:
                numbers = {int(part) for part in told.split(",")}
            except ValueError:
                raise ConfigError(f"{header} must be indices of messages, not {told!r}") from None
            if wrong := [number for number in numbers if not first <= number < first + len(keys)]:
                raise ConfigError(f"there is no message {wrong[0]} to pin that would not stay anyway")
            for number in numbers:
                how(pins, keys[number - first])


def dropped(pins: set[bytes], keys: Sequence[bytes], messages: Sequence[Message]) -> frozenset[str]:
    """The texts in which nothing is to count as an instruction."""
    marked = {key[: -len(DROPPED)] for key in pins if key.endswith(DROPPED) and len(key) > 16}
    if not marked:
        return frozenset()
    said = (message for key, message in zip(keys, messages, strict=True) if key in marked)
    return frozenset(part.text for message in said for part in message.parts if type(part) is Text)


def merged(pins: set[bytes], kept: set[bytes], stored: frozenset[bytes]) -> set[bytes]:
    """What is pinned when a store has changed meanwhile: what it has, with what was changed here since it was asked.

    Args:
        pins: here.
        kept: what the store was last known to have.
        stored: what it has now.
    """
    return (set(stored) | (pins - kept)) - (kept - pins)


def keep(store: Store, caller: str, conversation: str, pins: set[bytes], kept: set[bytes]) -> None:
    """Write what has changed to a store; `kept`, what it has, follows.

    Raises:
        StoreError: the store is away; what was not written is so the next time.
    """
    for added in pins - kept:  # first, so that a crash between the two loses no wish
        store.pin(caller, conversation, added)
        kept.add(added)
    for gone in kept - pins:
        store.pin(caller, conversation, gone, on=False)
        kept.discard(gone)


def change(store: Store, caller: str, conversation: str, number: int, how: Change) -> bytes:
    """Pin or unpin a message of the newest branch of a stored conversation.

    Returns:
        The key of the message.

    Raises:
        ConfigError: there is no such message.
        StoreError: the store is away.
    """
    branch = next(store.branches(caller, conversation), None)
    keys = _keys(store, branch) if branch is not None else {}
    if number not in keys:
        last = f"they are {min(keys)} to {max(keys)}" if keys else "it has none"
        raise ConfigError(f"there is no message {number} to pin in {conversation!r} that would not stay anyway: {last}")
    key = keys[number]
    kept = set(store.pins(caller, conversation))
    pins = set(kept)
    how(pins, key)
    keep(store, caller, conversation, pins, kept)
    return key


def wishes(store: Store, branch: Conversation, find: Recogniser | None) -> list[Wish]:
    """The messages of a branch that are pinned or hold standing instructions, in order.

    Without contents nobody can tell instructions.

    Args:
        store: where it is kept.
        branch: of a conversation.
        find: recognises instructions.

    Raises:
        StoreError: the store is away.
    """
    pins = set(store.pins(branch.summary.caller, branch.summary.conversation))
    keys = _keys(store, branch)
    told = _instructions(branch, pins, find) if find is not None else {}
    found = (
        Wish(number, node.key, node.role, node.key in pins, tuple(told.get(at, ())))
        for at, (number, node) in enumerate(zip(keys, branch.nodes, strict=True))
    )
    return [wish for wish in found if wish.pinned or wish.instructions]


def _keys(store: Store, branch: Conversation) -> dict[int, bytes]:
    """The keys of a branch's messages by their numbers in its requests, where system messages come first."""
    newest = store.request(branch.summary.caller, branch.exchanges[-1].id) if branch.exchanges else None
    first = 0
    for _, messages, _, _, _, reason, *_ in newest.rows if newest is not None else ():
        if reason != "system":
            break
        first += messages[0] >= 0  # -1 stands outside the list
    return {first + at: node.key for at, node in enumerate(branch.nodes)}


def _instructions(branch: Conversation, pins: set[bytes], find: Recogniser) -> dict[int, list[tuple[str, str]]]:
    """The instructions of each node by its place, with their state."""
    wires = [node.wire for node in branch.nodes]
    if not wires or None in wires:
        return {}
    try:
        messages = load_dialect(branch.summary.dialect).parse([json.loads(wire) for wire in wires if wire]).messages
    except RequestError:
        return {}
    counting = Dropping(find)
    counting.dropped = dropped(pins, [node.key for node in branch.nodes], messages)
    units = split(messages, for_model())
    found: dict[int, list[tuple[str, str]]] = {}
    for one in standing(units, counting):
        found.setdefault(units[one.unit].at[0][0], []).append((one.text, one.state))
    for place, message in enumerate(messages):
        for part in message.parts if message.role == "user" else ():
            if type(part) is Text and part.text in counting.dropped:
                spans = find(part.text)
                found.setdefault(place, []).extend((part.text[start:end], "dropped") for start, end in spans)
    return {place: told for place, told in found.items() if told}
