"""CCM's rewriter: task, memory and newest observation in, one memory block and one action out (CCM, section 3).

What the model is asked for stands before the task, and both before the memory, so that a provider's cache reads them.
The memory is the model's own: it is never edited, but for values that match a mask. One that is too long may stay for
a turn, in which its model is asked for a shorter one, and is cut after that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, TypeAlias

from forgetless.errors import BudgetError, ConfigError
from forgetless.messages import Message, Text
from forgetless.policies.base import Context, assemble, fits, floor, last_user, opener
from forgetless.policies.ccm.blocks import Block, Taker
from forgetless.policies.ccm.edits import edited
from forgetless.policies.ccm.task import beside, joined
from forgetless.policies.ccm.templates import TEMPLATES, Template
from forgetless.policies.truncate import cut
from forgetless.registry import LASTING, load_policy
from forgetless.tokens import Counter, for_model
from forgetless.units import Unit

__all__ = ["LIMIT", "Absorbed", "Ccm", "Outcome", "ccm"]

LIMIT = 1_500
"""Most tokens of a memory. Those of the paper's agents came to 561 to 1,403 at most (CCM, section 3.2)."""

MASKED = "[masked]"

Outcome: TypeAlias = Literal["whole", "edit", "long", "cut", "missing", "broken"]
"""What became of a memory: written anew, edited, too long for the first time (the next prompt asks for a shorter
one), too long again and cut; or kept as it was because there was no block, or none that could be read."""

NEW: frozenset[Outcome] = frozenset({"whole", "edit", "long", "cut"})
"""Outcomes that bring a new memory."""


class Absorbed(NamedTuple):
    """What a reply came to.

    Attributes:
        reply: as its reader may see it.
        memory: as it is now.
        outcome: what became of it.
    """

    reply: Message
    memory: str
    outcome: Outcome


@dataclass(frozen=True)
class Ccm:
    """Rewrites memory and prompt at every turn.

    Attributes:
        template: the form of the replies.
        edits: whether the model may change lines of its memory in place of writing it anew.
        limit: most tokens of the memory.
        mask: what is never kept in a memory.
        counter: counts the memory and what the model is told.
        dialect: of the requests: for `anthropic` what does not change is a block of its own, marked for the cache, and
            nothing behind it is; else what came as one text goes on as one, for not all servers take lists.
    """

    template: Template
    edits: bool = False
    limit: int = LIMIT
    mask: tuple[re.Pattern[str], ...] = ()
    counter: Counter = field(default_factory=for_model)
    dialect: str = ""

    def prompt(self, units: Sequence[Unit], memory: str, budget: int, *, since: int | None = None) -> Context:
        """The context for the next call.

        Args:
            units: the whole conversation.
            memory: as the model wrote it last; empty at the start.
            budget: most tokens of the messages.
            since: index of the first unit that the memory does not know of, where that is more than the newest
                observation: what was said from there on stays raw, as far as it fits. With 0 and no memory it is chosen
                from the whole history, by the policy `lre`.

        Raises:
            BudgetError: what must stay, with the memory, does not fit.
        """
        pinned = self.stays(units)
        stays = sum(units[index].tokens for index in pinned)
        task = self._task(units)
        made = None if task is None else self._made(units[task], memory, budget - stays)
        own = 0 if made is None else made.tokens - units[made.index].tokens
        if stays + own > budget:
            raise BudgetError(stays + own, budget)
        raw = self._raw(units, pinned, budget - own, since)
        dropped = {unit.index: "memory" for unit in units[: len(units) if since is None else since]}
        context = assemble(units, {**pinned, **raw}, budget, pinned=pinned, dropped=dropped)
        return context if made is None else self._with(context, made)

    def absorb(self, reply: Message, memory: str, *, cut: bool = False) -> tuple[Message, str]:
        """Split a model's reply into what its reader sees and the new memory.

        Args:
            reply: the reply.
            memory: the memory before it.
            cut: whether the reply was cut off, by its token limit for one: a block that it ends in is then dropped.
        """
        return self.read(reply, memory, cut=cut)[:2]

    def read(self, reply: Message, memory: str, *, cut: bool = False) -> Absorbed:
        """As `absorb`, with what became of the memory."""
        takers: list[Taker] = []

        def visible(part: Text) -> Text:
            takers.append(taker := self.template.taker())
            return replace(part, text=taker.feed(part.text) + taker.end(cut and part is reply.parts[-1]))

        parts = [visible(part) if type(part) is Text else part for part in reply.parts]
        if any(taker.blocks or taker.broken for taker in takers):
            parts = [part for part in parts if type(part) is not Text or part.text.strip()]
        return Absorbed(replace(reply, parts=tuple(parts)), *self.update(takers, memory))

    def update(self, takers: Sequence[Taker], memory: str) -> tuple[str, Outcome]:
        """The memory after a reply out of whose texts blocks were taken, and what became of it."""
        blocks = [block for taker in takers for block in taker.blocks]
        new, outcome = memory, "missing"
        for block in blocks:
            made = _applied(block, new)
            if made is None:
                return memory, "broken"
            new, outcome = made, block.kind
        if not blocks:
            return memory, "broken" if any(taker.broken for taker in takers) else "missing"
        for pattern in self.mask:
            new = pattern.sub(MASKED, new)
        if self.counter.text(new) <= self.limit:
            return new, outcome  # type: ignore[return-value]
        if self.counter.text(memory) <= self.limit:
            return new, "long"
        return cut(new, self.limit, self.counter), "cut"

    def stays(self, units: Sequence[Unit]) -> dict[int, str]:
        """What must stay, as unit index -> reason: the floor, and the task."""
        task = self._task(units)
        return floor(units) | ({task: "task"} if task is not None and not units[task].pinned else {})

    def own(self, units: Sequence[Unit], memory: str) -> int:
        """Tokens that a prompt has for what the model is told and for its memory, at least."""
        task = self._task(units)
        return 0 if task is None else self._made(units[task], memory, 0).tokens - units[task].tokens

    def _task(self, units: Sequence[Unit]) -> int | None:
        """The user unit that set the task; None where no user has spoken."""
        newest = last_user(units)
        if newest is None or self.template.task == "newest":
            return None if newest is None else newest.index
        return next(unit.index for unit in units if unit.kind == "user")

    def _made(self, task: Unit, memory: str, room: int) -> Unit:
        """The task with what the model is told: what to do before it, and behind it the memory where there is one."""
        ask = self.template.ask.replace("{limit}", f"{self.limit:,}") + (self.template.ask_edit if self.edits else "")
        if not memory:
            return beside(task, [ask], self.counter, self.dialect)
        tokens = self.counter.text(memory)
        shown = self.template.shown.replace("{memory}", memory)
        if tokens > self.limit:
            note = f"\n\nIt has {tokens:,} tokens, and may have {self.limit:,}: write a shorter one now."
            made = beside(task, [ask, shown + note], self.counter, self.dialect)
            if made.tokens - task.tokens <= room:
                return made
            shown = self.template.shown.replace("{memory}", cut(memory, self.limit, self.counter))
        return beside(task, [ask, shown], self.counter, self.dialect)

    def _raw(self, units: Sequence[Unit], pinned: Mapping[int, str], room: int, since: int | None) -> dict[int, str]:
        """What else stays of that which the memory does not know of."""
        if since is None:
            return {}
        if since == 0 and not fits(units, room):
            held = [replace(unit, pinned=True) if unit.index in pinned else unit for unit in units]
            chosen = load_policy(LASTING, counter=self.counter)(held, room)
            return {entry.unit: entry.reason for entry in chosen.ledger if entry.form == "raw"}
        left = room - sum(units[index].tokens for index in pinned)
        kept: dict[int, str] = {}
        for unit in reversed(units[since:]):
            if unit.index in pinned:
                continue
            if unit.tokens > left:
                break
            left -= unit.tokens
            kept[unit.index] = "recent"
        while kept and (first := opener(units, {**pinned, **kept})) is not None:
            if first.tokens <= left:
                kept[first.index] = "opener"
                break
            oldest = min(kept)  # what it answers does not fit
            left += units[oldest].tokens
            del kept[oldest]
        return kept

    def _with(self, context: Context, task: Unit) -> Context:
        """A context with the task as the model is to see it."""
        units = joined(context.units, task, self.template.task == "first", self.dialect)
        ledger = tuple(
            replace(entry, tokens_after=task.tokens) if entry.unit == task.index else entry for entry in context.ledger
        )
        return replace(context, units=units, ledger=ledger, tokens=sum(unit.tokens for unit in units))


def _applied(block: Block, memory: str) -> str | None:
    if block.kind == "edit":
        return edited(memory, block.text)
    return block.text.strip("\r\n").rstrip()


def ccm(
    template: str = "chat",
    edits: bool = False,
    limit: int = LIMIT,
    mask: Sequence[str] = (),
    counter: Counter | None = None,
) -> Ccm:
    """The rewriter `ccm`.

    Args:
        template: `chat` for agents with tool calls, `tags` for actions as text, `terminal` for JSON as in Terminus-2.
        edits: let the model change lines of its memory in place of writing it anew: fewer tokens a turn, more faults.
        limit: most tokens of the memory.
        mask: regular expressions of values that no memory may keep, such as passwords.
        counter: counts the memory.

    Raises:
        ConfigError: an option is wrong.
    """
    if template not in TEMPLATES:
        raise ConfigError(f"template must be {', '.join(TEMPLATES)}, not {template!r}")
    if not isinstance(edits, bool):
        raise ConfigError(f"edits must be true or false, not {edits!r}")
    if counter is not None and not isinstance(counter, Counter):
        raise ConfigError(f"counter must be a Counter, not {counter!r}")
    if not isinstance(limit, int) or limit < 1:
        raise ConfigError(f"limit must be a whole number of tokens above 0, not {limit!r}")
    try:
        patterns = tuple(re.compile(one) for one in ([mask] if isinstance(mask, str) else mask))
    except (re.error, TypeError) as error:
        raise ConfigError(f"mask must be regular expressions, and {mask!r} is none: {error}") from None
    return Ccm(TEMPLATES[template], edits, limit, patterns, counter or for_model())
