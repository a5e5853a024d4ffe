"""Edits of a memory: what they name is changed, and what they can't name changes nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetless.policies.ccm.edits import edited

MEMORY = "Goal: ship\n- tests fail\n- port 8080\nNext: fix"


@pytest.mark.parametrize(
    ("edit", "memory"),
    [
        ("- Next:\n+ Next: run", "Goal: ship\n- tests fail\n- port 8080\nNext: run"),
        ("- tests\n+ - tests pass\n+ - and lint", "Goal: ship\n- tests pass\n- and lint\n- port 8080\nNext: fix"),
        ("- - port 8080", "Goal: ship\n- tests fail\nNext: fix"),
        ("\n+ more\n", MEMORY + "\nmore"),
    ],
)
def test_lines_are_taken_away_and_added(edit: str, memory: str) -> None:
    assert edited(MEMORY, edit) == memory


@pytest.mark.parametrize("edit", ["- nowhere", "- ", "-", "words", "+ a\nwords", "", "- Next\n- Next"])
def test_an_edit_that_means_nothing_is_none(edit: str) -> None:
    assert edited(MEMORY, edit) is None


def test_a_beginning_that_two_lines_have_names_none_of_them() -> None:
    assert edited("port 1\nport 2", "- port") is None
    assert edited("port\nport 2", "- port") == "port 2"
    assert edited("", "+ first") == "first"


lines = st.lists(st.sampled_from(["a", "a b", "- c", "  d", "+ e"]), max_size=5)


@given(lines, lines)
def test_only_what_is_named_changes(before: list[str], added: list[str]) -> None:
    made = edited("\n".join(before), "\n".join(f"+ {line}" for line in added))
    if added:
        kept = before if "\n".join(before) else []
        assert made is not None
        assert made.split("\n") == kept + [line.rstrip() for line in added]
