"""Function calls in replies: how they are read, and when they are the gold ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetless.benchmarks.evaluators.calls import Calls, calls_in, matches

RECORD: dict[str, Any] = {
    "function": [
        {"name": "shop.buy", "parameters": {"properties": {"item": {}, "count": {}, "gift": {}}}},
    ],
    "reference_answer": [
        {"shop.buy": {"item": ["red pen", "pen, red"], "count": [2], "gift": [True, ""]}},
        {"shop.buy": {"item": ["ink"], "count": [1], "gift": [False]}},
    ],
}
FIRST, SECOND = "shop.buy(item='Red-Pen', count=2)", "shop.buy('ink', 1, gift=False)"


@pytest.mark.parametrize(
    ("reply", "right"),
    [
        (f"[{FIRST}, {SECOND}]", True),
        (f"Here:\n```python\n[{SECOND}, {FIRST}]\n```\nDone.", True),
        (f"{FIRST}\n{SECOND}", True),
        (f"I would call [{FIRST}, {SECOND}] now", True),
        (f"```\n[{FIRST}]\n```\nNo:\n```\n[{FIRST}, {SECOND}]\n```", True),
        (f"[{FIRST}]", False),
        (f"[{FIRST}, {FIRST}]", False),
        (f"[{FIRST}, {SECOND}, {SECOND}]", False),
        (f"[{FIRST}, shop.sell('ink', 1, gift=False)]", False),
        (f"[{FIRST}, shop.buy('ink', 1)]", False),
        (f"[{FIRST}, shop.buy('ink', 1, gift=False, wrap=True)]", False),
        (f"[{FIRST}, shop.buy('ink', True, gift=False)]", False),
        ("Which shop?", None),
    ],
)
def test_calls_are_the_gold_ones_in_any_order(reply: str, right: bool | None) -> None:
    assert Calls().score(reply, RECORD) is right


def test_values_that_are_names_or_nested() -> None:
    (found,) = calls_in("train(data=my_table, options={'depth': 3}, sizes=[1, 2.0])", {})
    assert found == ("train", {"data": "my_table", "options": {"depth": 3}, "sizes": [1, 2.0]})
    gold = {"train": {"data": ["my_table"], "options": [{"depth": [3], "seed": [1, ""]}], "sizes": [[1, 2]]}}
    assert matches([found], [gold])


VALUES = st.one_of(st.integers(), st.booleans(), st.text(max_size=9), st.lists(st.integers(), max_size=3))
ARGUMENTS = st.dictionaries(st.sampled_from("abcd"), VALUES, max_size=3)


@given(st.lists(st.tuples(st.sampled_from(["f", "g.h"]), ARGUMENTS), min_size=1, max_size=4), st.randoms())
def test_what_is_written_matches_itself_in_any_order(calls: list[tuple[str, dict[str, Any]]], random: Any) -> None:
    gold = [{name: {key: [value] for key, value in given.items()}} for name, given in calls]
    written = [f"{name}({', '.join(f'{key}={value!r}' for key, value in given.items())})" for name, given in calls]
    random.shuffle(written)
    found = calls_in(f"[{', '.join(written)}]", {})
    assert matches(found, gold)
    assert not matches(found[1:], gold)
