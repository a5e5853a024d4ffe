"""The promises of `compact`, checked on one compaction from outside: on wire JSON, ledger and counts."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from forgetless.benchmarks.histories import History
from forgetless.benchmarks.validators import anthropic, chat, responses
from forgetless.benchmarks.validators.base import Validator
from forgetless.benchmarks.wire import Wire, listed
from forgetless.compaction import compact
from forgetless.dialects.base import Request
from forgetless.errors import BudgetError
from forgetless.instructions.base import Recogniser
from forgetless.intake import Compaction, Terms, take
from forgetless.policies.base import Policy
from forgetless.registry import load_dialect, load_policy
from forgetless.tokens import PER_MESSAGE, Counter
from forgetless.units import text_of

__all__ = ["FAULTS", "Breach", "Measured", "Outcome", "Variant", "emitted", "examine", "measure"]

FAULTS: Mapping[str, str] = MappingProxyType(
    {
        "refused": "the provider would refuse it, though it would have accepted the input",
        "over_budget": "more tokens than the budget, counted anew or by its own account",
        "altered": "a kept message or part is not byte for byte one of the input, and not called compressed",
        "order": "kept messages are out of order",
        "pins_lost": "a pin, an instruction that it names, a system or developer message, the last user message or a "
        "pending call is gone",
        "ledger": "the ledger is no partition of the input, or its figures do not add up",
        "not_fixed_point": "a lazy policy changes its own output",
        "not_identity": "a lazy policy changes what fits",
        "mutated": "the input is not what it was",
        "nondeterministic": "the same call gave something else",
        "wrong_budget_error": "BudgetError although what must stay fits",
        "crash": "any other exception",
    }
)

GIVEN = ("instruction", "replaced", "withdrawn", "expired")
"""What the ledger says of units with standing instructions."""

SLACK = 1.25
"""How far other libraries may be over the budget by our count, and media are free to them."""

VALIDATORS: Mapping[str, Validator] = MappingProxyType(
    {"anthropic": anthropic.validate, "chat": chat.validate, "responses": responses.validate}
)


@dataclass(frozen=True, slots=True)
class Breach:
    """A broken promise: one of `FAULTS`, and what exactly was seen."""

    fault: str
    detail: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one compaction."""

    breaches: tuple[Breach, ...] = ()
    budget_error: bool = False


@dataclass(frozen=True)
class Variant:
    """A policy as it is run: by name or ready made, with options, with or without truncation and instructions."""

    name: str
    policy: str | Policy
    options: Mapping[str, Any] = field(default_factory=dict)
    truncate: bool = False
    instructions: Recogniser | None = None

    @property
    def lazy(self) -> bool:
        """Whether the policy promises to leave alone what fits."""
        return bool(load_policy(self.policy, **self.options).lazy)

    @property
    def keeps_all(self) -> bool:
        """Whether everything must stay, so that any excess is a `BudgetError`."""
        return self.policy == "full"

    def run(self, dialect: str, body: Any, budget: int, pins: Collection[int]) -> Compaction:
        """Compact `body`."""
        return compact(
            body,
            dialect=dialect,
            budget=budget,
            policy=self.policy,
            pins=pins,
            truncate=self.truncate,
            instructions=self.instructions,
            remind=False,  # what is said again changes the question, which has to stay byte for byte
            **self.options,
        )


@dataclass(frozen=True, slots=True)
class Measured:
    """A history read once: parsed, as wire messages, and its cost.

    Attributes:
        request: as the product reads it.
        wire: as it stands.
        counter: what the product counts with.
        total: tokens of all.
        fixed: tokens of what is no message.
        floor: tokens of what must stay, told from the wire and not from units: rather too many than too few.
    """

    request: Request
    wire: Wire
    counter: Counter
    total: int
    fixed: int
    floor: int


def measure(history: History) -> Measured:
    """Read and count a history."""
    intake = take(history.body, Terms(1, history.dialect))
    request, counter, fixed = intake.parsed, intake.counter, intake.fixed
    wire = Wire(history.dialect, history.messages)
    stays = wire.floor(history.pins)
    floor = fixed
    for index, message in enumerate(request.messages, request.start):
        if index < 0 or index in stays:
            floor += counter.message(message)
            floor += PER_MESSAGE * max(0, len(message.parts) - 1) * bool(message.results)
    return Measured(request, wire, counter, intake.tokens, fixed, floor)


def examine(history: History, budget: int, variant: Variant, measured: Measured) -> Outcome:
    """Compact a history and check all promises."""
    before = json.dumps(history.body)
    try:
        result = variant.run(history.dialect, history.body, budget, history.pins)
        breaches = [
            *emitted(history, result.request, budget, measured, result),
            *_account(history, result, budget, measured),
            *_instructed(history, result),
            *_again(history, result, budget, variant, before),
        ]
    except BudgetError as error:
        least = measured.total if variant.keeps_all else measured.floor
        wrong = Breach("wrong_budget_error", f"floor {least} fits {budget}: {error}")
        return Outcome((wrong,) if least <= budget else (), budget_error=True)
    except Exception as error:  # noqa: BLE001 - a failed record is data
        return Outcome((Breach("crash", f"{type(error).__name__}: {error}"),))
    if json.dumps(history.body) != before:
        breaches.append(Breach("mutated", "the body"))
    return Outcome(tuple(breaches))


def emitted(
    history: History, out: Any, budget: int, measured: Measured, result: Compaction | None = None
) -> Iterator[Breach]:
    """Check what would be sent.

    Args:
        history: what it was made from.
        out: a body or a list of messages.
        budget: most tokens of it.
        measured: the cost of the history.
        result: the compaction that it came of; None where another library made it, which is then judged by
            what a model would read, and asked neither for pins nor for our counts.
    """
    validate = VALIDATORS[history.dialect]
    for fault in validate(out, pending_ok=history.pending, origin=history.body):
        yield Breach("refused", f"{fault.kind} at {fault.where} {fault.detail}".rstrip())
    parsed: Request = load_dialect(history.dialect).parse(out)
    counter = measured.counter
    if result is None:  # libraries that count by rules of their own
        counter, budget = replace(counter, media=dict.fromkeys(counter.media, 0)), int(budget * SLACK)
    tokens = sum(map(counter.message, parsed.messages)) + sum(map(counter.json, parsed.fixed))
    if tokens > budget:
        yield Breach("over_budget", f"{tokens} counted, {budget} allowed")
    wire, messages = measured.wire, listed(out)
    if result is None:
        wire = Wire(history.dialect, history.messages, loose=True)
        yield from (Breach("order", d) for d in wire.misplaced(messages))
        yield from (Breach("pins_lost", d) for d in wire.lost(messages, (), ()))
        yield from (Breach("altered", d) for d in wire.strange(messages))
    else:
        short = {i for e in result.ledger if e.reason == "truncated" for i in e.messages}
        whole, compressed = _forms(result)
        # What was compressed may read as another message did.
        as_it_was = [m for i, m in zip(_kept(result), messages, strict=False) if i not in compressed]
        yield from (Breach("order", d) for d in wire.misplaced(as_it_was))
        changed = wire.altered(messages, _kept(result), whole, compressed)
        yield from (Breach("pins_lost", d) for d in wire.lost(messages, history.pins, short))
        yield from (Breach("altered", d) for d in [*changed, *_head(history.body, out)])


def _kept(result: Compaction) -> list[int]:
    stay = (entry for entry in result.ledger if entry.form in ("raw", "compressed"))
    return sorted({index for entry in stay for index in entry.messages if index >= 0})


def _forms(result: Compaction) -> tuple[set[int], set[int]]:
    """Messages that stay whole and as they are, and those that the ledger calls compressed."""
    forms: dict[int, set[str]] = {}
    for entry in result.ledger:
        for index in entry.messages:
            forms.setdefault(index, set()).add(entry.form)
    whole = {index for index, seen in forms.items() if seen == {"raw"}}
    return whole, {index for index, seen in forms.items() if "compressed" in seen}


def _head(before: Any, after: Any) -> Iterator[str]:
    """Fields of the body beside the messages."""
    if isinstance(before, Mapping):
        for key in [k for k in {**before, **after} if k not in ("messages", "input")]:
            if json.dumps(before.get(key)) != json.dumps(after.get(key)):
                yield f"{key!r} of the body"
    elif isinstance(after, Mapping):
        yield "a list became a body"


def _account(history: History, result: Compaction, budget: int, measured: Measured) -> Iterator[Breach]:
    """Check the ledger and the figures."""
    ledger = result.ledger
    if result.tokens > budget:
        yield Breach("over_budget", f"{result.tokens} by its own account, {budget} allowed")
    if [entry.unit for entry in ledger] != list(range(len(ledger))):
        yield Breach("ledger", "not each unit once and in order")
    covered = {index for entry in ledger for index in entry.messages}
    expected = set(range(measured.request.start, len(history.messages)))
    if covered != expected:
        yield Breach("ledger", f"messages {sorted(covered ^ expected)} missing or made up")
    if sum(e.tokens_before for e in ledger) + measured.fixed != result.tokens_before:
        yield Breach("ledger", "tokens_before do not add up")
    if sum(e.tokens_after for e in ledger) + measured.fixed != result.tokens:
        yield Breach("ledger", "tokens_after do not add up")
    for entry in ledger:
        fits = {
            "raw": entry.tokens_after == entry.tokens_before,
            "omitted": entry.tokens_after == 0 and not entry.pinned,
            # A summary may be longer than the message in whose place it stands, but not than all that it stands for.
            "compressed": entry.tokens_after < entry.tokens_before or entry.reason == "summary",
        }
        if not fits.get(entry.form):
            yield Breach("ledger", f"{entry}")
    # What is left out for a summary may have held an instruction, which the ledger then tells instead.
    told = [entry for entry in ledger if entry.reason == "summary" or (entry.form != "raw" and entry.reason in GIVEN)]
    longer = sum(entry.tokens_after for entry in told) >= sum(entry.tokens_before for entry in told)
    if longer and any(entry.reason == "summary" for entry in told):
        yield Breach("ledger", "a summary is as long as what it stands for")
    if len(_kept(result)) != len(listed(result.request)):
        yield Breach("ledger", f"{len(_kept(result))} messages kept, {len(listed(result.request))} sent")


def _instructed(history: History, result: Compaction) -> Iterator[Breach]:
    """Check that every instruction that it names stands in what would be sent."""
    sent = load_dialect(history.dialect).parse(result.request).messages
    texts = [text_of(part) for message in sent for part in message.parts if message.role == "user"]
    for words in result.instructions:
        if not any(words in text for text in texts):
            yield Breach("pins_lost", f"the instruction {words!r}")


def _again(history: History, result: Compaction, budget: int, variant: Variant, before: str) -> Iterator[Breach]:
    """Check what only more calls can tell."""
    dialect, sent = history.dialect, json.dumps(result.request)
    if json.dumps(variant.run(dialect, history.body, budget, history.pins).request) != sent:
        yield Breach("nondeterministic", "a second call")
    if not variant.lazy:
        return
    kept = _kept(result)
    pins = [kept.index(pin) for pin in history.pins if pin in kept]
    if json.dumps(variant.run(dialect, result.request, budget, pins).request) != sent:
        yield Breach("not_fixed_point", f"{result.tokens} of {budget} tokens")
    if json.dumps(variant.run(dialect, history.body, result.tokens_before, history.pins).request) != before:
        yield Breach("not_identity", f"budget {result.tokens_before}, as much as it costs")
