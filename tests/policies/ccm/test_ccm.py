"""The rewriter: task, memory and newest observation go in; a visible reply and a new memory come out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import strategies
from forgetless.errors import BudgetError, ConfigError
from forgetless.messages import Call, Message, Text, Thinking
from forgetless.policies.base import Context, Rewriter, floor
from forgetless.policies.ccm.policy import MASKED, Ccm, ccm
from forgetless.policies.ccm.templates import TEMPLATES
from forgetless.registry import load_dialect, load_policy, load_rewriter
from forgetless.splitting import split
from forgetless.tokens import Counter, for_model
from forgetless.units import Unit
from sent import KEYS, VALIDATORS

COUNTER = Counter(lambda text: len(text.split()))
MUCH = 10**6


def units_of(messages: Sequence[Any], dialect: str = "chat", pins: Sequence[int] = ()) -> list[Unit]:
    request = load_dialect(dialect).parse(list(messages))
    return split(request.messages, COUNTER, pins=pins)


def texts(context: Context) -> list[str]:
    return ["\n".join(p.text for p in m.parts if isinstance(p, Text)) for m in context.messages]


def step(name: str, result: str) -> list[dict[str, Any]]:
    call = {"id": name, "type": "function", "function": {"name": "look", "arguments": "{}"}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": name, "content": result},
    ]


RUN = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello."},
    {"role": "assistant", "content": "Hi."},
    {"role": "user", "content": "Fix the bug."},
    *step("a", "one"),
    *step("b", "two"),
    *step("c", "three"),
]


def test_the_prompt_is_task_memory_and_newest_observation() -> None:
    context = ccm(counter=COUNTER).prompt(units_of(RUN), "key=7", MUCH)
    system, task, call, result = context.messages
    assert system.parts == (Text("Be brief."),)
    ask, memory = texts(context)[1].split("\n\nFix the bug.\n\n")
    assert "<memory>" in ask
    assert memory.endswith("<memory>\nkey=7\n</memory>")
    assert task.role == "user"
    assert call.calls[0].id == result.results[0].id == "c"


def test_the_ledger_holds_every_unit_and_adds_up() -> None:
    units = units_of(RUN)
    context = ccm(counter=COUNTER).prompt(units, "key=7", MUCH)
    assert [(e.unit, e.form, e.reason) for e in context.ledger] == [
        (0, "raw", "system"),
        (1, "omitted", "memory"),
        (2, "omitted", "memory"),
        (3, "raw", "task"),
        (4, "omitted", "memory"),
        (5, "omitted", "memory"),
        (6, "raw", "open"),
    ]
    assert sum(e.tokens_after for e in context.ledger) == context.tokens
    assert context.tokens == sum(map(COUNTER.message, context.messages))
    assert [e.tokens_before for e in context.ledger] == [unit.tokens for unit in units]


def test_what_stands_before_the_memory_is_the_same_at_every_turn() -> None:
    rewriter = ccm(counter=COUNTER)
    starts = set()
    for turn, memory in ((6, "a"), (8, "b"), (10, "c d")):
        starts.add(texts(rewriter.prompt(units_of(RUN[:turn]), memory, MUCH))[1].split(RUN[3]["content"])[0])
    assert len(starts) == 1


def test_pins_stay() -> None:
    context = ccm(counter=COUNTER).prompt(units_of(RUN, pins=[4]), "key=7", MUCH)
    assert [e.unit for e in context.ledger if e.pinned] == [0, 3, 4, 6]


def test_what_the_memory_does_not_know_of_stays_raw_the_newest_first() -> None:
    rewriter, units = ccm(counter=COUNTER), units_of(RUN)
    context = rewriter.prompt(units, "key=7", MUCH, since=4)
    assert [e.unit for e in context.ledger if e.form == "raw"] == [0, 3, 4, 5, 6]
    least = rewriter.prompt(units, "key=7", MUCH).tokens
    context = rewriter.prompt(units, "key=7", least + units[5].tokens, since=4)
    assert [(e.unit, e.reason) for e in context.ledger if e.unit in (2, 4, 5)] == [
        (2, "memory"),
        (4, "over_budget"),
        (5, "recent"),
    ]


def test_a_history_that_no_memory_knows_of_is_chosen_from_as_by_lre() -> None:
    units = units_of([*RUN[:4], *(m for n in range(30) for m in step(str(n), f"order {n} is RMA-{n}77 " * 8))])
    rewriter = ccm(counter=COUNTER)
    assert [e.form for e in rewriter.prompt(units, "", MUCH, since=0).ledger] == ["raw"] * len(units)
    context = rewriter.prompt(units, "", 900, since=0)
    own = rewriter.prompt(units, "", MUCH).tokens - sum(units[i].tokens for i in floor(units))
    chosen = load_policy("lre", counter=COUNTER)(units, 900 - own)
    assert [e.form for e in context.ledger] == [e.form for e in chosen.ledger]
    assert "omitted" in [e.form for e in context.ledger]
    assert context.tokens <= 900


def test_a_floor_above_the_budget_is_one_error_with_the_numbers() -> None:
    rewriter, units = ccm(counter=COUNTER), units_of(RUN)
    needed = rewriter.prompt(units, "key=7", MUCH).tokens
    assert rewriter.prompt(units, "key=7", needed).tokens == needed
    with pytest.raises(BudgetError) as error:
        rewriter.prompt(units, "key=7", needed - 1)
    assert (error.value.floor, error.value.budget) == (needed, needed - 1)


def test_a_memory_over_its_limit_is_shown_with_a_request_for_a_shorter_one_where_there_is_room() -> None:
    rewriter, units = ccm(counter=for_model(), limit=60), units_of(RUN)
    memory = "note " * 100
    wide = rewriter.prompt(units, memory, MUCH)
    narrow = rewriter.prompt(units, memory, wide.tokens - 1)
    assert memory in "".join(texts(wide))
    assert "write a shorter one now" in "".join(texts(wide))
    assert memory not in "".join(texts(narrow))
    assert "tokens left out here" in "".join(texts(narrow))


@pytest.mark.parametrize("template", ["tags", "terminal"])
def test_where_observations_are_user_messages_the_first_one_is_the_task(template: str) -> None:
    turns = [{"role": role, "content": f"{role} {n}"} for n in range(4) for role in ("user", "assistant")][:-1]
    context = ccm(template, counter=COUNTER).prompt(units_of(turns), "key=7", MUCH)
    (only,) = texts(context)
    assert re.search(r"\n\nuser 0\n\nThe [^\n]+:\n\n[^\n]*\n?key=7\n[^\n]*\n+user 3$", only)
    assert [e.reason for e in context.ledger] == ["task", *["memory"] * 5, "last_user"]
    assert sum(e.tokens_after for e in context.ledger) == context.tokens


@pytest.mark.parametrize("dialect", ["chat", "responses"])
def test_what_came_as_one_text_goes_on_as_one(dialect: str) -> None:
    made = load_dialect(dialect)
    for template in TEMPLATES:
        context = ccm(template, counter=COUNTER).prompt(units_of(RUN[3:4]), "key=7", MUCH)
        request = made.parse({made.key: RUN[3:4]})
        assert isinstance(made.emit(request, context.messages)[made.key][0]["content"], str)


def test_anthropic_has_one_mark_and_it_stands_before_the_memory() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "one", **mark}], **mark}
    said = [
        {"role": "user", "content": [{"type": "text", "text": "Fix it.", **mark}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "look", "input": {}}]},
        {"role": "user", "content": [result]},
    ]
    rewriter = Ccm(TEMPLATES["chat"], counter=COUNTER, dialect="anthropic")
    dialect = load_dialect("anthropic")
    task, *rest = dialect.emit(dialect.parse(said), rewriter.prompt(units_of(said, "anthropic"), "k", MUCH).messages)
    assert [("cache_control" in block, block["text"] == "Fix it.") for block in task["content"]] == [
        (False, False),
        (True, True),
        (False, False),
    ]
    assert "cache_control" not in str(rest)


def test_a_task_that_ends_in_an_image_is_marked_there_and_what_has_marks_loses_them() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    image = {"type": "image", "source": {"type": "url", "url": "http://x/y.png"}}
    block = {"type": "search_result", "source": "x", "title": "y", "content": []}
    said = [{"role": "user", "content": [{**block, **mark}, image]}]
    rewriter, dialect = Ccm(TEMPLATES["chat"], counter=COUNTER, dialect="anthropic"), load_dialect("anthropic")
    (task,) = dialect.emit(dialect.parse(said), rewriter.prompt(units_of(said, "anthropic"), "", MUCH).messages)
    assert task["content"][1:] == [block, {**image, **mark}]


REPLY = Message("assistant", (Thinking("hm", {}), Text("<memory>\nkey=8\n</memory>\n\nDone."), Call("x", "look", "{}")))


def test_the_block_goes_and_all_else_stays() -> None:
    rewriter: Rewriter = ccm()
    reply, memory = rewriter.absorb(REPLY, "key=7")
    assert memory == "key=8"
    assert reply.parts == (REPLY.parts[0], Text("Done."), REPLY.parts[2])
    assert rewriter.absorb(reply, memory) == (reply, memory)


def said(text: str) -> Message:
    return Message("assistant", (Text(text),))


@pytest.mark.parametrize(
    ("text", "memory", "outcome"),
    [
        ("ls", "key=7", "missing"),
        ("<memory>new", "key=7", "broken"),
        ("<memory></memory>", "", "whole"),
        ("<memory>a</memory><memory>b</memory>", "b", "whole"),
        ("<memory_edit>\n- key\n+ key=8\n</memory_edit>", "key=8", "edit"),
        ("<memory_edit>- nothing so</memory_edit>", "key=7", "broken"),
        ("<memory>my sk-12ab</memory>", f"my {MASKED}", "whole"),
        ("<memory>" + "note " * 30 + "</memory>", ("note " * 30).strip(), "long"),
    ],
)
def test_what_becomes_of_a_memory(text: str, memory: str, outcome: str) -> None:
    rewriter = ccm(counter=COUNTER, limit=20, mask=[r"sk-\w+"])
    assert rewriter.read(said(text), "key=7")[1:] == (memory, outcome)


@pytest.mark.parametrize("more", [(), (Call("x", "look", "{}"),)])
def test_of_a_reply_that_was_cut_off_in_its_block_the_block_is_dropped(more: tuple[Call, ...]) -> None:
    reply = Message("assistant", (Text("ls\n<memory>\nkey=8"), *more))
    seen, memory, outcome = ccm().read(reply, "key=7", cut=True)
    assert (seen.parts[0], memory, outcome) == (Text("ls\n\nkey=8" if more else "ls\n"), "key=7", "broken")
    assert ccm().absorb(said("<memory>\nkey=8"), "key=7", cut=True) == (Message("assistant", ()), "key=7")


def test_a_memory_that_is_too_long_again_is_cut_with_a_marker() -> None:
    rewriter = ccm(limit=60)
    _, memory, outcome = rewriter.read(said(f"<memory>{'note ' * 100}</memory>ls"), "word " * 90)
    assert outcome == "cut"
    assert "tokens left out here" in memory
    assert for_model().text(memory) <= 60


def test_options_that_are_wrong_are_named() -> None:
    with pytest.raises(ConfigError, match="'xml'"):
        ccm("xml")
    with pytest.raises(ConfigError, match="limit"):
        ccm(limit=0)
    with pytest.raises(ConfigError, match="mask"):
        ccm(mask=["("])
    with pytest.raises(ConfigError, match="load_rewriter"):
        load_policy("ccm")
    assert load_rewriter("ccm", limit=9).limit == 9


@settings(max_examples=20)
@given(strategies.any_dialect(), st.text(max_size=40), st.integers(0, 9), st.floats(0.2, 1.2))
def test_what_a_provider_takes_it_takes_as_a_prompt(
    case: tuple[str, Any], memory: str, known: int, share: float
) -> None:
    name, messages = case
    dialect = load_dialect(name)
    request = dialect.parse(messages)
    units = split(request.messages, COUNTER, start=request.start, pins=request.pins)
    budget = int(share * sum(unit.tokens for unit in units)) + 150
    rewriter = Ccm(TEMPLATES["chat"], counter=COUNTER, dialect=name)
    try:
        context = rewriter.prompt(units, memory, budget, since=min(known, len(units)))
    except BudgetError:
        return
    assert context.tokens <= budget
    before = {fault.kind for fault in VALIDATORS[name]({KEYS[name]: messages})}
    made = dialect.emit(request, context.messages)
    assert {fault.kind for fault in VALIDATORS[name]({KEYS[name]: made})} <= before


@given(strategies.chat(), st.text(max_size=40), st.integers(20, 2_000), st.booleans())
def test_a_prompt_keeps_the_floor_within_its_budget_and_leaves_the_units_alone(
    messages: list[dict[str, Any]], memory: str, budget: int, unknown: bool
) -> None:
    units = split(load_dialect("chat").parse(messages).messages, for_model())
    before = list(units)
    rewriter = ccm()
    try:
        context = rewriter.prompt(units, memory, budget, since=len(units) // 2 if unknown else None)
    except BudgetError as error:
        assert error.floor > budget
        return
    assert units == before
    assert context.tokens <= budget
    assert context == rewriter.prompt(units, memory, budget, since=len(units) // 2 if unknown else None)
    assert [e.unit for e in context.ledger] == list(range(len(units)))
    assert all(context.ledger[index].form == "raw" for index in floor(units))
    assert sum(e.tokens_after for e in context.ledger) == context.tokens
    last = [m for m in context.messages if m.role == "tool"]
    calls = {call.id for m in context.messages for call in m.calls}
    assert all(result.id in calls for m in last for result in m.results)
