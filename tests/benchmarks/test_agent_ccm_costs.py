"""What a rewritten memory costs: requests worked out by hand, prices against the formulas, and the break-even."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forgetless.benchmarks.ccm_costs import LONGEST, Shape, break_even, break_evens, by_length, rewritten, told
from forgetless.benchmarks.prices import PRICES, Price, Request, cost
from forgetless.benchmarks.scale import Scale, common, total
from forgetless.tokens import Counter, for_model

WORDS = Counter(lambda text: len(text.split()))
BY_NAME = {price.model: price for price in PRICES}
SONNET, OPUS, KIMI, GLM = (BY_NAME[name] for name in ("claude-sonnet-4.6", "claude-opus-4.6", "kimi-k3", "glm-5"))
TOY = Shape(static=1_300, action=300, observation=350)


def say(role: str, words: int) -> dict[str, Any]:
    """A message of so many tokens and 4."""
    return {"role": role, "content": "w " * words}


RUN = [say("system", 2), say("user", 6), say("assistant", 3), say("user", 5), say("user", 1), say("assistant", 2)]


def test_requests_as_worked_out_by_hand() -> None:
    assert rewritten(RUN, [2, 5], 10, Scale(WORDS), told=7) == [
        Request(6 + 10 + 7, 0, 7 + 10, 0),
        Request(6 + 10 + 7 + 10 + 9 + 5, 23, 6 + 10, 24),
    ]
    assert rewritten(RUN, [2, 5], 0, Scale(WORDS)) == [Request(16, 0, 7, 0), Request(30, 16, 6, 14)]


def test_the_shape_is_the_mean_of_the_runs() -> None:
    one = (RUN, [2, 5])
    other = ([say("user", 16), say("assistant", 4)], [1])
    assert Shape.of([one, other], Scale(WORDS), 5) == Shape(18, 7, 14, 5)
    assert Shape.of([other], Scale(WORDS)) == Shape(20, 8, 0)


@pytest.mark.parametrize(
    ("price", "turns", "emitted", "caching", "dollars"),
    [
        (SONNET, 30, 800, True, 0.615),  # these were worked out apart, from the formulas
        (SONNET, 30, 200, True, 0.345),
        (SONNET, 50, 800, True, 1.021),
        (SONNET, 50, 200, True, 0.571),
        (OPUS, 30, 800, True, 1.192),  # its static part is too short for a cache
        (OPUS, 30, 200, True, 0.742),
        (KIMI, 50, 800, True, 1.021),
        (GLM, 30, 800, False, 0.179),
        (GLM, 50, 200, False, 0.202),
    ],
)
def test_a_memory_costs_what_was_worked_out_apart(
    price: Price, turns: int, emitted: int, caching: bool, dollars: float
) -> None:
    sent = 800 + TOY.observation
    run = [Request(TOY.static + sent, TOY.static if turn else 0, TOY.action + emitted, sent) for turn in range(turns)]
    assert cost(run, price, caching=caching) == pytest.approx(dollars, abs=6e-4)


def test_what_is_not_marked_is_neither_read_nor_written() -> None:
    paid = cost([Request(3_000, 0, 0, 1_000), Request(3_000, 2_000, 0, 1_000)], SONNET, caching=True)
    assert paid == pytest.approx((1.25 * 2_000 + 1_000 + 0.1 * 2_000 + 1_000) * 3e-6)
    short = cost([Request(3_000, 0, 0, 2_000), Request(3_000, 1_000, 0, 2_000)], SONNET, caching=True)
    assert short == pytest.approx(6_000 * 3e-6)  # 1,000 marked tokens are below its minimum


@given(
    st.builds(Shape, st.integers(1, 3_000), st.integers(1, 900), st.integers(0, 900), st.integers(0, 200)),
    st.integers(0, 1_500),
    st.sampled_from(PRICES),
    st.booleans(),
)
@settings(max_examples=25)
def test_from_the_break_even_on_a_memory_is_not_dearer(shape: Shape, memory: int, price: Price, caching: bool) -> None:
    turns = break_even(shape, memory, memory, price, caching=caching)

    def dearer(length: int) -> float:
        full, ccm = (list(islice(run, length)) for run in (shape.full(), shape.ccm(memory, memory)))
        return cost(ccm, price, caching=caching) - cost(full, price, caching=caching)

    if turns is None:
        assert dearer(LONGEST) > 0
        return
    assert all(dearer(length) <= 1e-9 for length in (turns, turns + 1, turns + 20, LONGEST))
    assert turns == 1 or dearer(turns - 1) > 0


def test_every_memory_and_price_has_a_break_even_in_whole_and_by_edits() -> None:
    rows = break_evens(TOY, [0, 800])
    assert [(row["memory"], row["emitted"]) for row in rows[:: len(PRICES)]] == [(0, 0), (800, 800), (800, 200)]
    assert [row["model"] for row in rows[: len(PRICES)]] == [price.model for price in PRICES]
    sonnet = {row["emitted"]: row for row in rows if row["model"] == SONNET.model}
    assert sonnet[200]["cached"] < sonnet[800]["cached"]
    assert sonnet[800]["uncached"] < sonnet[800]["cached"]


def test_shares_are_of_all_runs_of_a_group_together() -> None:
    short, long = [Request(100, 0, 10)] * 2, [Request(1_000, 0, 10)] * 12
    kept = {0: [[Request(50, 0, 10)] * 2, [Request(250, 0, 10)] * 12]}
    rows = {(row["least"], row["most"]): row for row in by_length([short, long], kept, GLM, told=10)}
    assert set(rows) == {(1, 5), (10, 19), (1, None)}
    assert (rows[1, 5]["input_to_full"], rows[1, 5]["input_to_full_bare"]) == (0.5, 0.4)
    whole = rows[1, None]
    assert (whole["runs"], whole["calls"]) == (2, 7.0)
    assert whole["input_to_full"] == round((100 + 3_000) / (200 + 12_000), 4)
    assert whole["uncached_to_full"] == round((3_100 + 14 * 10 * 3.2) / (12_200 + 14 * 10 * 3.2), 4)


def test_what_an_agent_is_told_is_counted_from_the_policy_itself() -> None:
    assert 50 < told(for_model()) < 400


def test_blocks_of_a_message_are_pieces_and_all_add_up() -> None:
    scale = Scale(WORDS)
    texts = [{"type": "text", "text": text} for text in ("a b c", "d e", "f")]
    pieces = scale.weigh([{"role": "user", "content": texts}, say("assistant", 2)])
    assert [tokens for _, tokens in pieces] == [4 + 3, 2, 1, 4 + 2]
    changed = [*texts[:2], {"type": "text", "text": "other"}]
    assert common(pieces, scale.weigh([{"role": "user", "content": changed}])) == 9
    assert common(pieces, pieces) == total(pieces) == 16
    assert common(pieces, []) == 0
