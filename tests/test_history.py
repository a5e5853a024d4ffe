"""Histories: a request taken apart by what is new in it is what it is when taken apart from the start."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from cases import _filler, _system, quarter
from forgetless import Session, history
from forgetless.errors import BudgetError, RequestError
from forgetless.history import History
from forgetless.intake import Terms, take
from strategies import any_dialect, words


@contextmanager
def settling(loose: int, longest: int) -> Iterator[None]:
    """Settle sooner than in earnest, so that short histories have something that is settled."""
    with patch.object(history, "LOOSE", loose), patch.object(history, "LONGEST", longest):
        yield


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, list[Any]]:
    """A dialect and the requests of one client: it appends, edits, goes back, moves a cache mark, changes its tools."""
    dialect, messages = draw(any_dialect())
    key = "input" if dialect == "responses" else "messages"
    bodies: list[Any] = []
    end = 1
    for _ in range(draw(st.integers(2, 12))):
        end = max(1, min(len(messages), end + draw(st.integers(-2, 4))))
        now = deepcopy(messages[:end])
        if draw(st.integers(0, 5)) == 0:
            at = draw(st.integers(0, len(messages) - 1))
            messages[at] = {"role": "user", "content": draw(words)}
        if draw(st.booleans()) and isinstance(now[-1].get("content"), list):
            now[-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
        if draw(st.integers(0, 3)) == 0:
            bodies.append(now)
        else:
            tools = [{"name": "look", "input_schema": {}}] if draw(st.integers(0, 4)) else []
            body: dict[str, Any] = {"model": "m", key: now, "tools": tools}
            if dialect == "anthropic" and draw(st.integers(0, 4)):
                body["system"] = "Be brief."
            bodies.append(body)
    return dialect, bodies


@settings(max_examples=150)
@given(requests(), st.integers(0, 3), st.integers(0, 6), st.sets(st.integers(0, 3), max_size=2))
def test_taken_apart_as_it_grows_is_taken_apart_from_the_start(
    made: tuple[str, list[Any]], loose: int, longest: int, pins: set[int]
) -> None:
    dialect, bodies = made
    terms = Terms(10**6, dialect)
    grown = History(terms)
    with settling(loose, longest):
        for body in bodies:
            held = {pin for pin in pins if pin < len(take(body, terms).wires or ())}
            fresh, now = take(body, terms, held), grown.take(body, held)
            assert now.units == fresh.units
            assert [unit.key for unit in now.units] == [unit.key for unit in fresh.units]
            assert now.parsed.messages == fresh.parsed.messages
            assert (now.fixed, now.tokens, now.budget) == (fresh.fixed, fresh.tokens, fresh.budget)
            assert [u.pinned for u in now.units] == [u.pinned for u in fresh.units]
            whole = [(u.at[0][0], m) for u in now.units for m in u.messages[:1]]
            assert now.dialect.emit(now.parsed, now.parsed.messages) == body, whole


@settings(max_examples=100)
@given(requests(), st.floats(0.3, 1.1), st.sampled_from(["fifo", "masking", "bm25", "recent"]), st.booleans())
def test_a_session_that_settles_sends_what_one_that_starts_over_sends(
    made: tuple[str, list[Any]], share: float, policy: str, truncate: bool
) -> None:
    dialect, bodies = made
    total = max(take(body, Terms(10**6, dialect)).tokens for body in bodies)
    options: dict[str, Any] = {"policy": policy, "dialect": dialect, "truncate": truncate}
    one, other = (Session(budget=max(1, int(total * share)), **options) for _ in range(2))
    for body in bodies:
        with settling(1, 2):
            first = _outcome(one, body)
        with patch.object(History, "same", lambda self, wires: 0):
            second = _outcome(other, body)
        assert first == second


def _outcome(session: Session, body: Any) -> Any:
    before = json.dumps(body)
    try:
        return session.prepare(body), session.evictions
    except (BudgetError, RequestError) as error:
        return type(error), str(error)
    finally:
        assert json.dumps(body) == before


def test_what_a_caller_changes_in_place_is_seen() -> None:
    messages: list[dict[str, Any]] = [_system("You keep a diary."), *_filler("diary", 60)]
    session = Session(budget=10**6, counter=quarter)
    session.prepare(messages[:100])
    session.prepare(messages)
    messages[3]["content"] = "changed in place"
    done = session.prepare(messages)
    assert done.messages == messages
    assert done.reused_tokens == sum(4 + quarter(m["content"]) for m in messages[:3])


def test_what_is_settled_is_not_looked_at_again() -> None:
    messages = [_system("You keep a diary."), *_filler("diary", 200)]
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return quarter(text)

    session = Session(budget=10**6, counter=count)
    session.prepare(messages[:301])
    session.prepare(messages[:303])
    for end in range(305, 400, 2):
        counted.clear()
        done = session.prepare(messages[:end])
        assert len(counted) <= history.LONGEST + history.LOOSE + 2
        assert done.tokens == sum(4 + quarter(m["content"]) for m in messages[:end])
        assert len(done.ledger) == end


def test_a_late_answer_to_what_is_settled_is_put_where_it_belongs() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    result = {"role": "tool", "tool_call_id": "c", "content": "seen"}
    messages = [*_filler("before", 2), {"role": "assistant", "content": None, "tool_calls": [call]}, result]
    messages += _filler("after", 8)
    grown, terms = History(Terms(10**6)), Terms(10**6)
    with settling(0, 2):
        for end in (8, 14, 18):
            grown.take(messages[:end])
        generation = grown.generation
        assert grown.take([*messages, result]).units == take([*messages, result], terms).units
    assert grown.generation == generation + 1
