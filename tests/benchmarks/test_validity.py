"""The validity benchmark: it finds nothing in what is sound, and each fault in what is broken."""

import json
from dataclasses import dataclass, field, replace

import pytest

from forgetless.benchmarks.histories import DIALECTS, History, budget_for, make
from forgetless.benchmarks.promises import FAULTS, Variant, emitted, examine, measure
from forgetless.benchmarks.tasks.validity import validity, variants
from forgetless.errors import BudgetError
from forgetless.messages import Text
from forgetless.policies.base import floor
from forgetless.policies.fifo import Fifo


def run(tmp_path, capsys, **options):
    validity(out=tmp_path, peers=False, **options)
    return capsys.readouterr().out, json.loads((tmp_path / "summary.json").read_text("utf-8"))


def test_a_small_run_is_without_a_fault(tmp_path, capsys):
    table, summary = run(tmp_path, capsys, histories=60)
    assert set(summary["policies"]) == {variant.name for variant in variants()}
    for name, figures in summary["policies"].items():
        assert figures["runs"] == 60
        assert figures["faulty_runs"] == 0, (tmp_path / "records.jsonl").read_text("utf-8")
        assert set(figures["faults"]) == set(FAULTS)
        assert name in table
    assert json.loads((tmp_path / "config.json").read_text("utf-8"))["seed"] == 0
    records = (tmp_path / "records.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["policy"] for line in records] == list(summary["policies"])


def test_a_small_run_with_instructions_is_without_a_fault(tmp_path, capsys):
    _, summary = run(tmp_path, capsys, histories=15, instructions=True)
    assert {figures["faulty_runs"] for figures in summary["policies"].values()} == {0}
    assert json.loads((tmp_path / "config.json").read_text("utf-8"))["instructions"] is True
    fifo = next(variant for variant in variants(instructions=True) if variant.name == "fifo")
    named = 0
    for seed in range(30):
        history = make(seed, "chat")
        measured = measure(history)
        budget = max(budget_for(history, measured.total, measured.floor), measured.floor)
        named += len(fifo.run("chat", history.body, budget, history.pins).instructions)
    assert named > 10


class Boasting:
    """Works as fifo does, and names an instruction that nobody has given."""

    lazy = True

    def __call__(self, units, budget, query=None):
        return replace(Fifo()(units, budget, query), instructions=("Never say never again.",))


def test_an_instruction_that_is_named_and_not_there_is_found():
    history = make(3, "chat")
    measured = measure(history)
    outcome = examine(history, measured.total, Variant("boasting", Boasting()), measured)
    assert {breach.fault for breach in outcome.breaches} == {"pins_lost"}


def test_json_is_the_summary(tmp_path, capsys):
    out, summary = run(tmp_path, capsys, histories=3, seed=7, json=True)
    assert json.loads(out) == summary


def test_two_processes_find_what_one_does(tmp_path, capsys, monkeypatch):
    _, one = run(tmp_path / "one", capsys, histories=30, seed=100)
    monkeypatch.setattr("forgetless.benchmarks.tasks.validity._CHUNK", 2)
    _, two = run(tmp_path / "two", capsys, histories=30, seed=100)
    assert one == two


@dataclass
class Fake:
    """A context with messages that no units stand behind."""

    messages: list
    ledger: tuple
    tokens: int
    instructions: tuple = ()
    reused_tokens: int = 0


@dataclass
class Broken:
    """Works as fifo does, and then breaks one promise."""

    fault: str
    calls: int = 0
    lazy: bool = field(default=True)

    def __call__(self, units, budget, query=None):
        self.calls += 1
        if self.fault == "crash":
            raise KeyError("lost")
        if self.fault == "wrong_budget_error":
            raise BudgetError(1, budget)
        if self.fault == "mutated":
            units[-1].messages[-1].wire["mark"] = True
        return getattr(self, self.fault, self.sound)(units, budget)

    def sound(self, units, budget):
        return Fifo()(units, budget)

    def changed(self, units, budget, messages):
        context = self.sound(units, budget)
        return Fake(list(messages), context.ledger, context.tokens)

    def refused(self, units, budget):
        return self.changed(units, budget, [m for m in self.sound(units, budget).messages if not m.results])

    def over_budget(self, units, budget):
        return replace(self.sound(units, 10**9), budget=budget)

    def altered(self, units, budget):
        first, *rest = self.sound(units, budget).messages
        parts = tuple(replace(p, text=p.text.upper() + "!") if isinstance(p, Text) else p for p in first.parts)
        return self.changed(units, budget, [replace(first, parts=parts), *rest])

    def order(self, units, budget):
        return self.changed(units, budget, reversed(self.sound(units, budget).messages))

    def pins_lost(self, units, budget):
        context = self.sound(units, budget)
        gone = {i for unit in units if unit.index in floor(units) for i, _, _ in unit.at}
        return self.changed(units, budget, [m for i, m in enumerate(context.messages) if i not in gone])

    def ledger(self, units, budget):
        context = self.sound(units, budget)
        return replace(context, ledger=context.ledger[:-1])

    def not_fixed_point(self, units, budget):
        return Fifo()(units, max(budget - 30 * self.calls, 1)) if self.calls > 2 else self.sound(units, budget)

    def not_identity(self, units, budget):
        return Fifo()(units, budget // 2)

    def nondeterministic(self, units, budget):
        return Fifo()(units, budget // 2 if self.calls % 2 else budget)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_finds_what_is_broken(fault, dialect):
    for seed in range(100):
        history = make(seed, dialect)
        measured = measure(history)
        budget = budget_for(history, measured.total, measured.floor)
        outcome = examine(history, budget, Variant("broken", Broken(fault)), measured)
        if fault in {breach.fault for breach in outcome.breaches}:
            return
    pytest.fail("found in no history")


def test_a_budget_is_of_its_history():
    history = make(3, "chat")
    assert budget_for(history, 1_000, 100) == budget_for(make(3, "chat"), 1_000, 100)
    budgets = [budget_for(make(seed, "chat"), 1_000, 100) for seed in range(200)]
    assert min(budgets) < 100
    assert max(budgets) > 1_000


def test_checks_what_others_made_of_a_history():
    system = {"role": "system", "content": "Be brief."}
    user = {"role": "user", "content": "Hello"}
    reply = {"role": "assistant", "content": "Hi"}
    history = History(0, "chat", [system, user, reply, user], (), False)
    measured = measure(history)

    def faults(*messages, budget=1_000):
        return {breach.fault for breach in emitted(history, list(messages), budget, measured)}

    assert faults(system, user, reply, user) == set()
    assert faults(system, user) == set()
    assert faults(system, reply, user) == set()
    assert faults(user) == {"pins_lost"}
    assert faults(system, reply) == {"pins_lost"}
    assert faults(system, {"role": "user", "content": "Hell"}) == {"altered", "pins_lost"}
    assert faults(user, system) == {"order"}
    assert faults(system, user, {"content": "Hi", "role": "assistant"}, user) == set()
    assert faults(system, user, reply, user, budget=5) == {"over_budget"}
    assert faults(system, user, {"role": "tool", "tool_call_id": "x", "content": ""}) == {
        "refused",
        "altered",
    }
    assert faults() == {"refused", "pins_lost"}
