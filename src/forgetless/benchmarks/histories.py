"""Seeded random histories: valid for their provider by construction, and as odd as real ones get.

Sizes are skewed to small, 1 to about 80 messages. What varies is said at each dialect's writer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from types import MappingProxyType
from typing import Any

from forgetless.benchmarks.writers.anthropic import Anthropic
from forgetless.benchmarks.writers.base import Event, Json, Writer
from forgetless.benchmarks.writers.chat import Chat
from forgetless.benchmarks.writers.responses import Responses

__all__ = ["DIALECTS", "History", "budget_for", "make"]

_WRITERS: Mapping[str, Callable[[Random], Writer]] = MappingProxyType(
    {"chat": Chat, "responses": Responses, "anthropic": Anthropic}
)
DIALECTS = tuple(_WRITERS)

_SIZES: Mapping[Event, int] = MappingProxyType({"user": 1, "assistant": 1, "step": 3, "system": 1})


@dataclass(frozen=True, slots=True)
class History:
    """A conversation as a client would send it.

    Attributes:
        seed: what it was made from; with the dialect it gives the same history again.
        dialect: its wire format.
        body: a whole request body, or a bare list of messages.
        pins: indices of messages that the client wants kept.
        pending: whether it ends between calls and their results.
    """

    seed: int
    dialect: str
    body: Any
    pins: tuple[int, ...]
    pending: bool

    @property
    def messages(self) -> list[Json]:
        """The message list of the body; an item for an input that is a string."""
        key = "input" if self.dialect == "responses" else "messages"
        found = self.body if isinstance(self.body, list) else self.body[key]
        return [{"role": "user", "content": found}] if isinstance(found, str) else found


def make(seed: int, dialect: str) -> History:
    """The history of a seed."""
    rng = Random(f"{dialect}:{seed}")
    writer = _WRITERS[dialect](rng)
    events = _plan(rng)
    pending = writer.compose(events)
    body = writer.body()
    many = len(writer.messages)
    pins = rng.sample(range(many), min(many, rng.randint(1, 2))) if rng.random() < 0.3 else []
    return History(seed, dialect, body, tuple(sorted(pins)), pending)


def budget_for(history: History, total: int, floor: int) -> int:
    """A budget to try: 0.02 to 1.2 of the `total` tokens, 16 to 4,096, or where it is tight and yet enough.

    Args:
        history: what it is for; the same history gives the same budget.
        total: tokens of all.
        floor: tokens of what must stay.
    """
    rng = Random(f"budget:{history.dialect}:{history.seed}")
    way = rng.random()
    if way < 0.35:
        return max(1, int(total * rng.uniform(0.02, 1.2)))
    if way < 0.5:
        return int(2 ** rng.uniform(4, 12))
    return max(1, rng.randint(min(floor, total), total))


def _plan(rng: Random) -> list[Event]:
    """What happens, in order; a user comes first."""
    shape = rng.choices(("one", "agent", "talk", "mixed"), (5, 30, 35, 30))[0]
    most = 1 + int(53 * rng.random() ** 2.5)
    events: list[Event] = ["user"]
    while shape != "one" and sum(map(_SIZES.__getitem__, events)) < most:
        if shape == "agent":
            events.append("step")
        elif shape == "talk":
            steps: list[Event] = ["step"] * rng.choice((0, 0, 0, 1, 2))
            events += [*steps, "assistant", "user"]
        else:
            events.append(rng.choice(("user", "user", "assistant", "step", "step", "system")))
    return events
