"""What is offered depends on the decisions alone and fits; what is answered is word for word, within its room."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetless.intake import Intake, Terms, take
from forgetless.policies.base import Entry
from forgetless.proxy.recall import LEAST, LIST_CHARS, Offer, answer, asked, offer
from forgetless.registry import load_policy
from strategies import any_dialect, chat

KEYS = {"chat": "messages", "responses": "input", "anthropic": "messages"}


def taken(messages: list[Any], dialect: str = "chat", **more: Any) -> Intake:
    return take({"model": "m", KEYS[dialect]: messages, **more}, Terms(10**9, dialect))


def ledger(made: Intake, gone: set[int], short: frozenset[int] = frozenset()) -> list[Entry]:
    forms = ["omitted" if u.index in gone else "compressed" if u.index in short else "raw" for u in made.units]
    return [
        Entry(u.index, (u.at[0][0],), form, False, None, "masked", u.tokens, 0)  # type: ignore[arg-type]
        for u, form in zip(made.units, forms, strict=True)
    ]


def notes(many: int) -> list[dict[str, Any]]:
    said = [
        (
            {"role": "user", "content": f"Note {n}: shelf {n} is for topic-{n * 7} and all that belongs to it"},
            {"role": "assistant", "content": f"Noted {n}."},
        )
        for n in range(many)
    ]
    return [message for pair in said for message in pair]


def about(made: Offer | None) -> str:
    assert made is not None
    return str(made.tool["function"]["description"])


def offered(made: Intake, gone: set[int], budget: int = 100_000) -> Offer:
    found = offer(made, ledger(made, gone), budget)
    assert found is not None
    return found


def test_the_list_names_each_unit_and_gets_barer_as_there_are_more() -> None:
    made = taken([*notes(400), {"role": "user", "content": "Well?"}])
    few = about(offer(made, ledger(made, {0, 1, 4}, frozenset({6})), 100_000))
    assert few.rpartition("\n\n")[2].splitlines() == [
        "0 user: Note 0: shelf 0 is for topic-0 and all that belongs to",
        "1 assistant: Noted 0.",
        "4 user: Note 2: shelf 2 is for topic-14 and all that belongs to",
        "6 user (shortened): Note 3: shelf 3 is for topic-21 and all that belongs to",
    ]
    assert "0-" in about(offered(made, set(range(600))))
    for gone in (set(range(600)), set(range(0, 600, 2)), set(range(0, 800, 3)), {5}):
        for budget in (100_000, 4_000):
            found = offered(made, gone, budget)
            assert found.tokens <= min(600, budget // 16)
            assert len(about(found)) <= LIST_CHARS + 400
            assert found.units == tuple(sorted(gone))
            listed = about(found).rpartition("\n\n")[2]
            numbers = {int(n) for n in listed.replace("-", " ").replace(":", " ").split() if n.isdigit()}
            assert min(gone) in numbers or "to be had by `query`" in listed


@given(any_dialect(), st.data())
def test_what_is_said_later_changes_nothing_in_the_offer(said: tuple[str, list[Any]], data: st.DataObject) -> None:
    dialect, messages = said
    short = taken(messages, dialect)
    gone = data.draw(st.sets(st.sampled_from(range(len(short.units))), min_size=1))
    later = [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "More?"}]
    before = offer(short, ledger(short, gone), 100_000)
    long = taken([*messages, *later], dialect)
    if [unit.text for unit in long.units[: len(short.units)]] != [unit.text for unit in short.units]:
        return  # what comes later went into the last unit
    after = offer(long, ledger(long, gone), 100_000)
    assert before == after
    assert before is not None
    assert offer(long, ledger(long, gone), 100_000, 0, before) is before
    assert offer(long, ledger(long, gone), 100_000, 1, before) is not before
    assert offer(long, ledger(long, set()), 100_000, 0, before) is None
    assert offer(taken(messages[:1], dialect), [], 100_000, 0, before) is None, "a history may get shorter"


def test_when_it_is_not_offered() -> None:
    messages = notes(4)
    clash = [{"type": "function", "function": {"name": "recall", "parameters": {}}}]
    for more in ({"tools": clash}, {"n": 2}, {"functions": [{"name": "f"}]}, {"tools": "?"}):
        made = taken(messages, **more)
        assert offer(made, ledger(made, {0}), 100_000) is None
    made = taken(messages)
    assert offer(made, ledger(made, set()), 100_000) is None
    assert offer(made, ledger(made, {0}), 1_000) is None, "the tool would take too much of the budget"
    thinned = [Entry(0, (0,), "compressed", False, None, "thinking_removed", 9, 5)]
    assert offer(made, thinned, 100_000) is None
    clash_there = [{"name": "recall", "input_schema": {}}]
    assert offer(made := taken(messages, "anthropic", tools=clash_there), ledger(made, {0}), 100_000) is None
    assert offer(made := taken(messages, "responses", background=True), ledger(made, {0}), 100_000) is None
    assert offer(made := take({"input": "all in one"}, Terms(9, "responses")), ledger(made, {0}), 100_000) is None


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ('{"ids": [4, 2, 4]}', [4, 2]),
        ({"ids": [2]}, [2]),
        ('{"ids": 2}', [2]),
        ('{"ids": "2-4, 6"}', [2, 4, 6]),
        ('{"ids": ["2", "4 - 6"]}', [2, 4, 6]),
        ('{"ids": [3, 99, true, null]}', []),
        ('{"query": "the one for 14"}', [4, 6, 2]),
        ('{"query": "14"}', [4]),
        ('{"ids": [2], "query": "14"}', [2, 4]),
        ('{"query": "zebra"}', []),
        ('{"ids": "1-999999999"}', [2, 4, 6]),
        ('{"ids": [', []),
        ("[1]", []),
        ("", []),
    ],
)
def test_ids_as_models_write_them(arguments: Any, found: list[int]) -> None:
    made = taken(notes(5))
    got, note = asked(offered(made, {2, 4, 6}), made.units, arguments)
    assert got == found
    assert bool(note) >= (not found)


def test_notes_say_what_is_wrong() -> None:
    made = taken(notes(5))
    found = offered(made, {2})
    counter = made.counter
    assert "3, 99" in answer(found, made.units, '{"ids": [3, 99]}', counter, 500).text
    assert "no room" not in answer(found, made.units, '{"ids": [2]}', counter, 500).text.lower()
    assert "Nothing" in answer(found, made.units, '{"query": "zebra"}', counter, 500).text
    assert "`query`" in answer(found, made.units, "{}", counter, 500).text


@given(chat(pending=False), st.data())
def test_an_answer_is_word_for_word_and_within_its_room(messages: list[Any], data: st.DataObject) -> None:
    made = taken(messages)
    ids = data.draw(st.lists(st.sampled_from(range(len(made.units))), min_size=1, unique=True))
    room = data.draw(st.integers(LEAST, 2_000))
    found = offered(made, set(ids))
    got = answer(found, made.units, json.dumps({"ids": ids}), made.counter, room)
    assert made.counter.text(got.text) <= room
    assert list(got.units) == ids[: len(got.units)]
    for index in got.units[:-1]:
        assert all(word_for_word(got.text, message) for message in made.units[index].messages)
    everything = answer(found, made.units, json.dumps({"ids": ids}), made.counter, 10**9)
    assert list(everything.units) == ids
    assert all(word_for_word(everything.text, m) for index in ids for m in made.units[index].messages)
    assert "left out here" not in everything.text


def word_for_word(text: str, message: Any) -> bool:
    texts = [part.text for part in message.parts if hasattr(part, "text")]
    texts += [inner.text for result in message.results for inner in result.content if hasattr(inner, "text")]
    texts += [call.arguments for call in message.calls]
    return all(one in text for one in texts)


def test_what_has_no_room_is_named_and_a_cut_shows() -> None:
    long = {"role": "user", "content": "start " + "middle " * 2_000 + "end"}
    made = taken([*notes(3), long, *notes(3)])
    got = answer(offered(made, {1, 6, 8}), made.units, {"ids": [1, 6, 8]}, made.counter, 400)
    assert got.units == (1, 6)
    assert "Noted 0." in got.text
    assert "tokens left out here" in got.text
    assert got.text.endswith("No room now for 8.")


@pytest.mark.parametrize("policy", ["masking", "fifo"])
def test_all_that_a_policy_left_out_can_be_had_back(policy: str) -> None:
    history: list[Any] = [{"role": "user", "content": "Look."}]
    for n in range(30):
        use = {"id": f"c{n}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        history.append({"role": "assistant", "content": None, "tool_calls": [use]})
        history.append({"role": "tool", "tool_call_id": f"c{n}", "content": f"seen-{n} " * 80})
    made = taken(history)
    context = load_policy(policy)(made.units, 4_000)
    found = offer(made, context.ledger, 10_000)
    assert found is not None
    for index in found.units:
        got = answer(found, made.units, {"ids": [index]}, made.counter, 2_000)
        assert history[made.units[index].at[-1][0]]["content"] in got.text
