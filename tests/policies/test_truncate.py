"""Truncation: within the limit, both ends kept, never inside a character, and only where it may cut."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from forgetless import compact
from forgetless.policies.base import floor
from forgetless.policies.truncate import MIN_TOKENS, cut, truncate
from forgetless.registry import load_dialect
from forgetless.splitting import split
from forgetless.tokens import Counter, for_model

QUARTER = Counter(lambda text: -(-len(text) // 4))
FAMILY = "👩‍👩‍👧‍👦"

pieces = st.lists(
    st.sampled_from(
        ["word ", "supercalifragilistic", FAMILY, "é", "é", "漢字", "🇩🇪", "👍🏽", "\r\n", "x" * 300, "\ud83d"]
    ),
    min_size=1,
    max_size=400,
)


@given(pieces.map("".join), st.integers(12, 400))
def test_a_cut_text_is_within_its_limit_and_keeps_both_ends(text: str, limit: int) -> None:
    short = cut(text, limit, QUARTER)
    assert QUARTER.text(short) <= limit
    if short != text:
        head, _, rest = short.partition("[... ")
        tail = rest.partition(" ...]")[2]
        assert text.startswith(head.removesuffix("\n"))
        assert text.endswith(tail.removeprefix("\n"))
    else:
        assert QUARTER.text(text) <= limit


@given(
    st.lists(st.sampled_from([FAMILY, "é", "🇩🇪", "👍🏽", "कि"]), min_size=200, max_size=400),
    st.integers(20, 60),
)
def test_no_cut_falls_inside_a_character(characters: list[str], limit: int) -> None:
    text = "".join(characters)
    short = cut(text, limit, QUARTER)
    head, _, rest = short.partition("\n[... ")
    tail = rest.partition(" ...]\n")[2]
    starts = [0]
    for character in characters:
        starts.append(starts[-1] + len(character))
    # Flags pair up from the left, so a boundary between two whole flags is a boundary too.
    assert len(head) in starts
    assert len(text) - len(tail) in starts
    assert not unicodedata.combining(tail[0])


def test_cuts_fall_between_words() -> None:
    text = " ".join(f"identifier-{n}-of-many" for n in range(400))
    head, _, rest = cut(text, 100, QUARTER).partition("\n[... ")
    words = set(text.split())
    assert set(head.split()) <= words
    assert set(rest.partition("...]\n")[2].split()) <= words


def test_the_longest_texts_give_way_first_and_calls_never() -> None:
    call = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": i,
                "type": "function",
                "function": {"name": "f", "arguments": '{"q": "' + "y" * 400 + '"}'},
            }
            for i in "ab"
        ],
    }
    messages = [
        {"role": "system", "content": "s" * 400},
        {"role": "user", "content": "short question"},
        call,
        {"role": "tool", "tool_call_id": "a", "content": "long " * 2000},
        {"role": "tool", "tool_call_id": "b", "content": "brief " * 30},
    ]
    done = compact(messages, budget=1000, counter=QUARTER, truncate=True)
    assert done.tokens <= 1000
    assert done.messages[:3] == messages[:3]
    assert done.messages[4] == messages[4]
    assert "tokens left out here" in done.messages[3]["content"]
    assert [e.reason for e in done.ledger if e.form == "compressed"] == ["truncated"]


def test_nothing_is_cut_when_the_floor_fits() -> None:
    messages = [
        {"role": "user", "content": "a " * 500},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    units = split(load_dialect("chat").parse(messages).messages, for_model())
    assert truncate(units, floor(units), 10, for_model()) == {}


def test_a_text_is_never_cut_below_the_minimum() -> None:
    messages = [{"role": "user", "content": "word " * 2000}]
    units = split(load_dialect("chat").parse(messages).messages, QUARTER)
    shorter = truncate(units, floor(units), 1, QUARTER)
    assert 0 < shorter[0].tokens - 4 <= MIN_TOKENS
