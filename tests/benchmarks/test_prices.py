"""The cost of runs against formulas worked out by hand: append-only growth, and a memory rewritten each turn.

`STATIC`, `ACTION`, `SCREEN` and `MEMORY` are the toy run: a static prompt, and in each turn an action, what came back,
and a memory that is sent and written anew.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetless.benchmarks.prices import PRICES, Price, Request, cost

STATIC, ACTION, SCREEN, MEMORY = 1_300, 300, 350, 800

BY_NAME = {price.model: price for price in PRICES}
SONNET, OPUS, KIMI, GLM = (BY_NAME[name] for name in ("claude-sonnet-4.6", "claude-opus-4.6", "kimi-k3", "glm-5"))


def append_only(turns: int, static: int = STATIC, action: int = ACTION, screen: int = SCREEN) -> list[Request]:
    """Each request is the one before it and what has come since."""
    sizes = [static + turn * (action + screen) for turn in range(turns)]
    return [Request(now, before, action) for before, now in zip([0, *sizes], sizes, strict=False)]


def rewritten(turns: int, kept: int) -> list[Request]:
    """Static prompt, memory and newest screen, of which the first `kept` tokens are those of the request before."""
    size, reply = STATIC + MEMORY + SCREEN, ACTION + MEMORY
    return [Request(size, kept if turn else 0, reply) for turn in range(turns)]


@pytest.mark.parametrize(
    ("price", "turns", "caching", "dollars"),
    [
        (SONNET, 30, True, 0.301),
        (SONNET, 50, True, 0.598),
        (OPUS, 30, True, 0.560),  # the first turns are below its minimum
        (KIMI, 50, True, 0.573),
        (GLM, 30, False, 0.351),
        (GLM, 50, False, 0.909),
    ],
)
def test_append_only_costs_what_was_worked_out_apart(price: Price, turns: int, caching: bool, dollars: float) -> None:
    assert cost(append_only(turns), price, caching=caching) == pytest.approx(dollars, abs=6e-4)


@pytest.mark.parametrize(
    ("price", "turns", "kept", "caching", "dollars"),
    [
        (SONNET, 30, 0, True, 0.771),  # all of it marked: written each turn, never read
        (SONNET, 50, 0, True, 1.284),
        (OPUS, 30, 0, True, 1.192),  # too short to be cached: no surcharge either
        (OPUS, 30, STATIC, True, 1.192),
        (KIMI, 50, 0, True, 1.192),
        (KIMI, 50, STATIC, True, 1.021),
        (GLM, 30, 0, False, 0.179),
        (GLM, 50, STATIC, False, 0.298),
    ],
)
def test_a_memory_costs_what_was_worked_out_apart(
    price: Price, turns: int, kept: int, caching: bool, dollars: float
) -> None:
    assert cost(rewritten(turns, kept), price, caching=caching) == pytest.approx(dollars, abs=6e-4)


SIZES = st.integers(1, 5_000)


@given(st.integers(1, 40), SIZES, SIZES, SIZES, st.sampled_from([p for p in PRICES if p.step == 1]))
def test_append_only_is_the_closed_form(turns: int, static: int, action: int, screen: int, price: Price) -> None:
    static = max(static, price.minimum)
    grown, k = action + screen, price.output / price.input
    read = (turns - 1) * static + grown * (turns - 1) * (turns - 2) / 2
    new = static + (turns - 1) * grown
    closed = price.input * (price.read * read + price.write * new + k * turns * action) / 1e6
    assert cost(append_only(turns, static, action, screen), price, caching=True) == pytest.approx(closed)


@given(st.lists(st.tuples(SIZES, SIZES, SIZES), max_size=20), st.sampled_from(PRICES))
def test_without_caching_only_sizes_matter(rows: Sequence[tuple[int, int, int]], price: Price) -> None:
    requests = [Request(tokens + prefix, prefix, output) for tokens, prefix, output in rows]
    plain = sum(price.input * request.tokens + price.output * request.output for request in requests) / 1e6
    assert cost(requests, price, caching=False) == pytest.approx(plain)


@pytest.mark.parametrize(
    ("prefix", "read"), [(1_023, 0), (1_024, 1_024), (1_151, 1_024), (1_152, 1_152), (2_000, 1_920)]
)
def test_a_minimum_and_whole_steps(prefix: int, read: int) -> None:
    price = Price("m", 1.0, 0.0, read=0.25, write=1.0, minimum=1_024, step=128)
    dollars = cost([Request(2_000, prefix, 0)], price, caching=True)
    assert dollars * 1e6 == pytest.approx(0.25 * read + (2_000 - read))


def test_what_is_long_enough_is_written_and_the_rest_is_plain() -> None:
    price = Price("m", 1.0, 2.0, read=0.1, write=1.25, minimum=100)
    assert cost([Request(99, 0, 10)], price, caching=True) * 1e6 == pytest.approx(99 + 20)
    assert cost([Request(100, 0, 10)], price, caching=True) * 1e6 == pytest.approx(125 + 20)
    assert cost([Request(300, 100, 0)], price, caching=True) * 1e6 == pytest.approx(10 + 250)
    assert cost([], price, caching=True) == 0


def test_prices_are_named_once_and_make_sense() -> None:
    assert len(BY_NAME) == len(PRICES)
    for price in PRICES:
        assert 0 < price.read < 1 <= price.write
        assert 0 < price.input < price.output
        assert price.minimum % price.step == 0
