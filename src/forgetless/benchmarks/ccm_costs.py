"""What recorded runs would have cost an agent that rewrites its memory: task, memory and newest observation each turn.

No model is called: the recorded actions and observations follow, and the memory is of a given size, written whole at
each turn and read at the next, so this says what CCM costs and not what its agent would achieve. A client marks the
static part alone for the cache, since nothing behind it comes again. Where the run length matters, the break-even is
that of a run with the mean static part, action and observation of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, pairwise, repeat
from statistics import fmean
from typing import Any, TypeAlias

from forgetless.benchmarks.prices import PRICES, Price, Request, cost
from forgetless.benchmarks.scale import Scale, total
from forgetless.intake import Terms, take
from forgetless.policies.base import Context
from forgetless.registry import load_rewriter
from forgetless.tokens import Counter

__all__ = [
    "EDIT",
    "LENGTHS",
    "LONGEST",
    "MEMORIES",
    "Shape",
    "break_even",
    "break_evens",
    "by_length",
    "rewritten",
    "told",
]

MEMORIES = (0, 561, 1_403)
"""Tokens of the memory."""

LENGTHS: tuple[tuple[int, int | None], ...] = ((1, 5), (6, 9), (10, 19), (20, None))
"""Groups of runs, by their model calls."""

LONGEST = 2_000
"""Turns; a break-even beyond that is none."""

EDIT = 200
"""Tokens of a change to the memory, where the agent does not write it whole."""

History: TypeAlias = Sequence[Mapping[str, Any]]


def told(counter: Counter) -> int:
    """Tokens of what CCM tells a terminal agent of its memory: a part of each prompt, before the task."""
    intake = take([{"role": "user", "content": "task"}], Terms(LONGEST, "chat", counter))
    context: Context = load_rewriter("ccm", template="terminal", counter=counter).prompt(intake.units, "", LONGEST)
    return context.tokens - intake.tokens


def rewritten(messages: History, calls: Sequence[int], memory: int, scale: Scale, told: int = 0) -> list[Request]:
    """The requests of a run whose agent keeps a memory; at the first call there is none to send.

    Args:
        messages: the whole run.
        calls: places of the replies.
        memory: its tokens.
        scale: weighs messages.
        told: what the agent is told of its memory.
    """
    static = told + total(scale.weigh(messages[: calls[0]]))
    requests: list[Request] = []
    for before, place in zip([None, *calls], calls, strict=False):
        sent = 0 if before is None else memory + total(scale.weigh(messages[before + 1 : place]))
        written = memory + total(scale.weigh([messages[place]]))
        requests.append(Request(static + sent, 0 if before is None else static, written, sent))
    return requests


@dataclass(frozen=True, slots=True)
class Shape:
    """A run that goes on and on.

    Attributes:
        static: tokens of the task and all else that stands before the first reply.
        action: of a reply, without a memory.
        observation: of what follows it.
        told: what an agent is told of its memory, where it keeps one.
    """

    static: int
    action: int
    observation: int
    told: int = 0

    @classmethod
    def of(cls, runs: Iterable[tuple[History, Sequence[int]]], scale: Scale, told: int = 0) -> Shape:
        """The means of recorded runs, each a list of messages and the places of its replies."""
        statics, actions, observations = [], [], []
        for messages, calls in runs:
            statics.append(total(scale.weigh(messages[: calls[0]])))
            actions += [total(scale.weigh([messages[place]])) for place in calls]
            observations += [total(scale.weigh(messages[one + 1 : other])) for one, other in pairwise(calls)]
        static, action, observation = (
            round(fmean(found)) if found else 0 for found in (statics, actions, observations)
        )
        return cls(static, action, observation, told)

    def full(self) -> Iterator[Request]:
        """The requests of an agent with its whole history, without end."""
        before = 0
        for turn in count():
            tokens = self.static + turn * (self.action + self.observation)
            yield Request(tokens, before, self.action)
            before = tokens

    def ccm(self, memory: int, emitted: int) -> Iterator[Request]:
        """The same with a memory, of which so many tokens are written in each turn; the first writes it whole."""
        static, sent = self.static + self.told, memory + self.observation
        yield Request(static, 0, self.action + memory)
        yield from repeat(Request(static + sent, static, self.action + emitted, sent))


def break_even(shape: Shape, memory: int, emitted: int, price: Price, *, caching: bool) -> int | None:
    """The least turns from which on a run is not dearer with a memory; None where there are none up to `LONGEST`."""
    ahead, turns = 0.0, 1
    for turn, full, ccm in zip(range(1, LONGEST + 1), shape.full(), shape.ccm(memory, emitted), strict=False):
        ahead += cost([full], price, caching=caching) - cost([ccm], price, caching=caching)
        if ahead < -1e-12:
            turns = turn + 1
    return turns if turns <= LONGEST else None


def break_evens(shape: Shape, memories: Sequence[int]) -> list[dict[str, Any]]:
    """A row for each memory, written whole or changed, and each price."""
    return [
        {
            "memory": memory,
            "emitted": emitted,
            "model": price.model,
            "cached": break_even(shape, memory, emitted, price, caching=True),
            "uncached": break_even(shape, memory, emitted, price, caching=False),
        }
        for memory in memories
        for emitted in dict.fromkeys((memory, min(memory, EDIT)))
        for price in PRICES
    ]


def by_length(
    full: Sequence[Sequence[Request]], with_memory: Mapping[int, Sequence[Sequence[Request]]], price: Price, told: int
) -> list[dict[str, Any]]:
    """A row for each memory and group of runs, the last group being all of them.

    Args:
        full: the requests of each run with its whole history.
        with_memory: those of the same runs, by the memory's tokens.
        price: of the model.
        told: what the agent is told of its memory, in each of these; `input_to_full_bare` is without it.
    """
    rows: list[dict[str, Any]] = []
    for memory, runs in with_memory.items():
        for least, most in (*LENGTHS, (1, None)):
            pairs = [pair for pair in zip(full, runs, strict=True) if least <= len(pair[0]) <= (most or len(pair[0]))]
            if pairs:
                rows.append({"memory": memory, "least": least, "most": most, **_beside(pairs, price, told)})
    return rows


def _beside(pairs: Sequence[tuple[Sequence[Request], Sequence[Request]]], price: Price, told: int) -> dict[str, Any]:
    """Tokens sent and dollars paid, all runs together, as shares of those with the whole history."""

    def share(figure: Callable[[Sequence[Request]], float]) -> float:
        return round(sum(figure(other) for _, other in pairs) / sum(figure(whole) for whole, _ in pairs), 4)

    sent, calls = (sum(r.tokens for whole, _ in pairs for r in whole), sum(len(whole) for whole, _ in pairs))

    return {
        "runs": len(pairs),
        "calls": round(fmean(len(whole) for whole, _ in pairs), 1),
        "input_to_full": (shared := share(lambda run: sum(request.tokens for request in run))),
        "input_to_full_bare": round(shared - told * calls / sent, 4),
        "cached_to_full": share(partial(cost, price=price, caching=True)),
        "uncached_to_full": share(partial(cost, price=price, caching=False)),
    }
