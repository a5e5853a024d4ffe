"""A conversation as it grows: each request taken apart by what is new in it.

Clients send the whole history with every request. What came before is compared, not parsed, counted and split
again: messages that have stood unchanged for a while are settled, and only the end is looked at anew.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from forgetless.dialects.base import Body, Dialect, Request, detect
from forgetless.intake import Intake, Terms, listed, pinned, take
from forgetless.messages import Message
from forgetless.registry import load_dialect
from forgetless.splitting import Reopened, Splitter
from forgetless.tokens import Counter
from forgetless.units import Unit

__all__ = ["History"]

LOOSE = 16
"""Messages at the end that are never settled: there clients move cache marks about and edit what they said."""

LONGEST = 48
"""Messages behind what is settled, above which more is settled."""


class History:
    """The requests of one conversation.

    Attributes:
        generation: goes up whenever a request is no continuation of what is settled, and nothing of it holds.
        last: the last request taken apart.
    """

    def __init__(self, terms: Terms) -> None:
        """Begin with requests still to come."""
        self.terms = terms
        self.generation = 0
        self.last: Intake | None = None
        self._wires: list[Any] = []  # the last list of messages; copies, for callers may change theirs
        self._fixed: Any = ()
        self._settled: Splitter | None = None
        self._units: list[Unit] = []
        self._tokens = 0  # of `_units`
        self._end = 0  # index of the first message that is not settled
        self._marked: frozenset[int] = frozenset()  # messages that were pinned in the last request
        self._pins: frozenset[int] = frozenset()  # those of them that are settled
        self._counts: _Counts | None = None

    def take(self, request: Body, pins: Collection[int] = ()) -> Intake:
        """Take the next request apart.

        Raises:
            RequestError: the request is not of its dialect.
            ConfigError: no usable budget, or a pin on no message.
        """
        wires: list[Any] = []
        same = 0
        if self.last is not None:
            found = listed(request, self.last.dialect.key) or []
            wires = found if isinstance(found, list) else list(found)
            same = self.same(wires)
        taken = None
        if same and self._told(request, wires[same:]):
            try:
                taken = self._go_on(request, same, pins)
            except Reopened:
                taken = None
        if taken is None:
            taken, same = self._begin(request, pins), 0
            wires = list(taken.wires or ())
        self._wires[same:] = map(_copy, wires[same:])
        self.last = taken
        return taken

    def same(self, wires: list[Any]) -> int:
        """How many messages at the start are those of the last request."""
        low, high = 0, min(len(wires), len(self._wires))
        if (self._wires if high == len(self._wires) else self._wires[:high]) == wires[:high]:
            return high
        while low < high:
            middle = (low + high + 1) // 2
            if self._wires[low:middle] == wires[low:middle]:
                low = middle
            else:
                high = middle - 1
        return low

    def _told(self, request: Body, new: list[Any]) -> bool:
        """Whether a request whose messages end in `new` is still of the dialect that the last one was."""
        assert self.last is not None
        if self.terms.dialect != "auto":
            return True
        rest: Body = {**request, self.last.dialect.key: new} if isinstance(request, Mapping) else new
        return detect(rest) in ("chat", self.last.dialect.name)

    def _begin(self, request: Body, pins: Collection[int]) -> Intake:
        taken = take(request, self.terms, pins)
        self.generation += 1
        self._settled, self._units, self._tokens, self._counts = None, [], 0, None
        self._end, self._marked, self._pins = taken.parsed.start, pinned(taken.parsed, pins), frozenset()
        self._fixed = _copy(taken.parsed.fixed)
        return taken

    def _go_on(self, request: Body, same: int, pins: Collection[int]) -> Intake | None:
        """Take a request apart that goes on from the last one; None where it has to be done from the start."""
        last = self.last
        assert last is not None
        dialect: Dialect = load_dialect(last.dialect.name)
        before, head = last.parsed.messages, -last.parsed.start
        known = before if head == 0 and same == len(before) else before[head : head + same]
        parsed = dialect.parse(request, known)
        counter, room = self.terms.count(parsed), self.terms.room(parsed)
        marked = pinned(parsed, pins)
        if not self._continues(last, parsed, counter):
            return None
        if same + head == len(before) == len(parsed.messages) and (marked, parsed.fixed) == (self._marked, self._fixed):
            return replace(last, parsed=parsed, budget=room)  # it was looked at, and is now prepared
        if same - self._end > LONGEST:
            self._settle(last, same - LOOSE)
        if same < self._end or {pin for pin in marked if pin < self._end} != self._pins:
            return None
        tail = self._settled.fork() if self._settled is not None else Splitter(counter)
        tail.count = self._counts = _Counts(counter, self._counts)
        for index, message in enumerate(parsed.messages[self._end - parsed.start :], self._end):
            tail.feed(index, message)
        if self._units and not tail.acted:
            return None  # whether the newest step is open would have to be seen from what is settled
        new = tail.units(marked)
        fixed = last.fixed
        if parsed.fixed != self._fixed:
            fixed, self._fixed = sum(map(counter.json, parsed.fixed)), _copy(parsed.fixed)
        tokens = fixed + self._tokens + sum(unit.tokens for unit in new)
        self._marked = marked
        return Intake(dialect, parsed, counter, [*self._units, *new], fixed, room, tokens, len(self._units))

    def _continues(self, last: Intake, now: Request, counter: Counter) -> bool:
        """Whether what was counted and parsed of the last request still holds."""
        if now.start != last.parsed.start or (counter is not last.counter and counter != last.counter):
            return False
        return not now.start or _equal(now.messages[0], last.parsed.messages[0])

    def _settle(self, last: Intake, most: int) -> None:
        """Settle units that lie wholly before a message at or before `most`, where another unit begins."""
        new = last.units[len(self._units) :]
        cut, reach = 0, self._end
        for place, unit in enumerate(new):
            index, start, _ = unit.at[0]
            if index > most:
                break
            if start == 0 and index >= reach:
                cut = place
            if unit.open:
                break
            reach = max(reach, unit.at[-1][0] + 1)
        if not cut:
            return
        closed = new[:cut]
        self._settled = self._settled or Splitter(last.counter)
        self._settled.absorb(closed)
        self._units.extend(closed)
        self._tokens += sum(unit.tokens for unit in closed)
        self._end = new[cut].at[0][0]
        self._pins = frozenset(pin for pin in self._marked if pin < self._end)


class _Counts:
    """Counts messages; those that were counted for the last request are not counted again."""

    def __init__(self, counter: Counter, last: _Counts | None) -> None:
        self._counter = counter
        self._known = last._now if last is not None else {}
        self._now: dict[int, tuple[Message, int]] = {}  # by identity; the message is held, so that it stays itself

    def __call__(self, message: Message) -> int:
        key = id(message)
        found = self._known.get(key)
        if found is None or found[0] is not message:
            found = message, self._counter.message(message)
        self._now[key] = found
        return found[1]


def _equal(one: Message, other: Message) -> bool:
    """Whether two messages are the same down to their wire."""
    wires = [[getattr(part, "wire", None) for part in message.parts] for message in (one, other)]
    return one == other and one.wire == other.wire and wires[0] == wires[1]


def _copy(value: Any) -> Any:
    """A copy that shares texts and numbers only."""
    kind = type(value)
    if kind is dict:
        return {key: inner if type(inner) is str else _copy(inner) for key, inner in value.items()}
    if kind is list:
        return list(map(_copy, value))
    if kind is str or value is None or kind is int:  # nearly all that is left; the tests below are slow
        return value
    if isinstance(value, Mapping):
        return {key: _copy(inner) for key, inner in value.items()}
    return tuple(map(_copy, value)) if isinstance(value, tuple) else value
