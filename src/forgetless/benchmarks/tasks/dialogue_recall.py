"""How much of a question's evidence is still in the context, word for word: LoCoMo.

The conversation so far and the question as the last user message go through a policy under a budget for the
whole request. Recall is the share of the question's evidence turns whose messages stand in the context byte
for byte; what the ledger says plays no part. Adversarial questions, which the conversation does not answer,
are counted apart.

There are two schedules. By `per_question` the context is built for the question, as where a session chooses at every
turn. By `at_evictions` the conversation streams through a session, which evicts at its high water mark for the user's
newest message; the question comes after that, and finds what was left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from forgetless.benchmarks.hindsight import keep_first
from forgetless.benchmarks.metrics import by_policy, estimate, mean, recall
from forgetless.datasets.locomo import ADVERSARIAL, Conversation, Question
from forgetless.errors import BudgetError
from forgetless.intake import Compaction
from forgetless.messages import Message
from forgetless.policies.base import Context, Policy
from forgetless.registry import load_dialect
from forgetless.session import Session
from forgetless.splitting import split
from forgetless.tokens import Counter
from forgetless.units import Unit, text_of

__all__ = ["BUDGETS", "VERSION", "Cell", "at_evictions", "per_question", "summarise"]

VERSION = 2
BUDGETS = (512, 1_024, 2_048, 4_096, 8_192)

BLIND = frozenset({"decay", "fifo", "length", "lre", "masking", "recent", "salience"})
"""Policies that do not look at the question: of it, only its length matters to them."""


@dataclass(slots=True)
class Cell:
    """What one policy did under one budget (None: without one) with the questions of one conversation.

    Attributes:
        schedule: `per_question` or `at_evictions`.
        recalls: of the questions that the conversation answers.
        adversarial: recalls of those that it does not.
        tokens: of each context.
        failed: questions that the budget left no room for; they are in no list.
    """

    conversation: str
    policy: str
    budget: int | None
    schedule: str = "per_question"
    recalls: list[float] = field(default_factory=list)
    adversarial: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    failed: int = 0

    def record(self) -> dict[str, Any]:
        """The row for `records.jsonl`."""
        return {
            "part": "dialogue",
            "schedule": self.schedule,
            "conversation": self.conversation,
            "policy": self.policy,
            "budget": self.budget,
            "questions": len(self.recalls),
            "recall": mean(self.recalls),
            "adversarial_questions": len(self.adversarial),
            "adversarial_recall": mean(self.adversarial),
            "tokens": mean(self.tokens),
            "failed": self.failed,
        }


def per_question(
    conversation: Conversation, policies: Mapping[str, Policy | None], budgets: Sequence[int], counter: Counter
) -> Iterator[Cell]:
    """The cells of one conversation: without a budget, then for each policy and budget.

    Args:
        conversation: the conversation and its questions.
        policies: by name; None is `hindsight`'s selection.
        budgets: tokens of the whole request.
        counter: counts them.
    """
    history = _history(conversation, counter)
    asked = [(question, _ask(conversation, question, history, counter)) for question in conversation.questions]
    full = Cell(conversation.name, "full", None)
    for question, units in asked:
        _put(full, question, 1.0, sum(unit.tokens for unit in units))
    yield full
    for name, policy in policies.items():
        cells = [Cell(conversation.name, name, budget) for budget in budgets]
        ask = _Asked(policy, name.partition(",")[0] in BLIND) if policy else None
        for question, units in asked:
            for budget, cell in zip(budgets, cells, strict=True):
                try:
                    context = ask(units, budget) if ask else keep_first(units, question.evidence, budget)
                except BudgetError:
                    cell.failed += 1
                    continue
                kept = {text_of(part) for message in context.messages for part in message.parts}
                _put(cell, question, _recall(conversation, question, kept), context.tokens)
        yield from cells


def at_evictions(
    conversation: Conversation, policies: Mapping[str, Policy], budgets: Sequence[int], counter: Counter
) -> Iterator[Cell]:
    """The cells of one conversation that streamed through a session for each policy and budget before it was asked.

    The session is as it is by default: it evicts when a request is over the budget, down to its low water mark. A
    question that passed the mark would have it evict once more, for the question; that is not counted here.
    """
    for name, policy in policies.items():
        for budget in budgets:
            cell = Cell(conversation.name, name, budget, "at_evictions")
            session = Session(budget=budget, policy=policy, dialect="chat", counter=counter)
            messages = list(conversation.messages)
            for at, message in enumerate(messages, 1):
                if message["role"] == "user":
                    _prepare(session, messages[:at])
            left = _prepare(session, messages)
            said = [message["content"] for message in left.messages] if left else []
            kept = {content for content in said if isinstance(content, str)}  # vectors are no words
            for question in conversation.questions:
                if left:
                    _put(cell, question, _recall(conversation, question, kept), left.tokens)
                else:
                    cell.failed += 1
            yield cell


def _prepare(session: Session, messages: list[dict[str, Any]]) -> Compaction | None:
    """The request that the session makes of messages; None where the budget is too small for what must stay."""
    try:
        return session.prepare(messages)
    except BudgetError:
        return None


def _recall(conversation: Conversation, question: Question, kept: Collection[str]) -> float:
    return recall([conversation.messages[place]["content"] for place in question.evidence], kept)


class _Asked:
    """A policy that is asked one question after another over one conversation."""

    def __init__(self, policy: Policy, blind: bool) -> None:
        self.policy = policy
        self.blind = blind
        self.seen: dict[tuple[int, int], Context] = {}

    def __call__(self, units: Sequence[Unit], budget: int) -> Context:
        key = (budget, units[-1].tokens)
        if self.blind and key in self.seen:
            return self.seen[key]
        context = self.policy(units, budget)
        if self.blind:
            self.seen[key] = context
        return context


def _history(conversation: Conversation, counter: Counter) -> list[Unit]:
    """The units before a question; with something behind them, none of them is open."""
    messages = [*conversation.messages, {"role": "user", "content": ""}]
    return split(load_dialect("chat").parse(messages).messages, counter)[:-1]


def _ask(conversation: Conversation, question: Question, history: list[Unit], counter: Counter) -> list[Unit]:
    message: Message = load_dialect("chat").parse([{"role": "user", "content": question.text}]).messages[0]
    (unit,) = split([message], counter)
    return [*history, replace(unit, index=len(history), at=((len(conversation.messages), 0, 1),), keys=None)]


def _put(cell: Cell, question: Question, share: float, tokens: int) -> None:
    (cell.adversarial if question.category == ADVERSARIAL else cell.recalls).append(share)
    cell.tokens.append(tokens)


def summarise(cells: Sequence[Cell], seed: int) -> list[dict[str, Any]]:
    """One row for each policy and budget: mean recall over questions, with an interval over conversations."""

    def row(cells: list[Cell]) -> dict[str, Any]:
        asked = sum(len(cell.tokens) + cell.failed for cell in cells)
        return {
            **estimate("recall", {cell.conversation: cell.recalls for cell in cells}, seed),
            **estimate("adversarial_recall", {cell.conversation: cell.adversarial for cell in cells}, seed),
            "tokens": mean([tokens for cell in cells for tokens in cell.tokens]),
            "failed": round(sum(cell.failed for cell in cells) / asked, 4) if asked else 0.0,
        }

    return by_policy(cells, row)
