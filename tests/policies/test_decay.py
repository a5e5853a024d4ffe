"""Decay: the formulas, what counts as a use, and that without re-use all of them rank as recency does."""

from __future__ import annotations

from math import exp, log
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetless import ConfigError, compact, load_policy
from forgetless.datasets.logs import units_of
from forgetless.policies.decay import Decay, uses

KINDS = ("exponential", "act-r", "memorybank")


def said(*texts: str) -> list[Any]:
    return list(units_of([{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]))


TALK = said("The key is in /srv/box.", "Fine.", "Where is /srv/box now?", "I moved it to /srv/shed.", "Good.")


def test_a_unit_is_used_by_those_that_take_up_its_identifiers() -> None:
    assert uses(TALK) == [[0, 2], [1], [2], [3], [4]]


def test_the_formulas() -> None:
    assert Decay("exponential", 2.0).strengths(TALK) == pytest.approx([exp(-t / 2) for t in (4, 3, 2, 1, 0)])
    base_level = [log(score) for score in Decay("act-r").strengths(TALK)]
    assert base_level == pytest.approx([log(5**-0.5 + 3**-0.5), *(log(t**-0.5) for t in (4, 3, 2, 1))])
    # Used twice: twice the strength, and the time since the last use.
    assert Decay("memorybank", 2.0).strengths(TALK) == pytest.approx(
        [exp(-2 / 4), exp(-3 / 2), exp(-2 / 2), exp(-1 / 2), 1.0]
    )


@given(st.integers(0, 60), st.sampled_from(KINDS))
def test_without_re_use_all_rank_as_recency_does(many: int, kind: Any) -> None:
    scores = Decay(kind).strengths(said(*(["nothing to take up"] * many)))
    assert scores == sorted(scores)
    assert len(set(scores)) == many


@pytest.mark.parametrize("kind", KINDS)
def test_a_short_unit_does_not_push_out_a_long_one_for_its_length(kind: str) -> None:
    messages = [{"role": "user", "content": "Begin."}]
    messages += [{"role": "assistant", "content": "word " * many} for many in (5, 5, 5, 5, 20)]
    messages += [{"role": "user", "content": "End."}]
    costs = [4 + len(message["content"]) for message in messages]
    done = compact(messages, budget=costs[0] + costs[5] + costs[6], policy="decay", counter=len, kind=kind)
    assert [entry.unit for entry in done.ledger if entry.form == "raw"] == [0, 5, 6]


def test_old_units_of_long_histories_fade_to_nothing_and_not_below() -> None:
    for kind in KINDS:
        assert min(Decay(kind, 0.01)(said(*(["so"] * 3_000)))) >= 0


def test_wrong_options_are_named() -> None:
    with pytest.raises(ConfigError, match="'act_r'"):
        load_policy("decay", kind="act_r")
    for scale in (0, -1.0, float("inf"), float("nan"), "long"):
        with pytest.raises(ConfigError, match="scale"):
            load_policy("decay", scale=scale)
