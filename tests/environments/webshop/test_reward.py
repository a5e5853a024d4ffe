"""WebShop's reward: the formula by hand, and its bounds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import made_shop
from forgetless.environments.webshop.catalogue import Product, read_products
from forgetless.environments.webshop.goals import Goal, goals
from forgetless.environments.webshop.reward import alike, kind, reward


@pytest.fixture(scope="module")
def products(tmp_path_factory: pytest.TempPathFactory) -> list[Product]:
    return read_products(made_shop.small(Path(tmp_path_factory.mktemp("shop"))))


def test_what_was_wanted_is_worth_1(products: list[Product]) -> None:
    assert all(reward(goal.product, goal.options, goal) == 1 for goal in goals(products))


def test_what_is_missing_counts_by_its_share(products: list[Product]) -> None:
    lamp = products[1]
    goal = Goal(lamp, "", {"color": "sky blue", "size": "large"}, 30.0)
    assert reward(lamp, {}, goal) == 3 / 5
    assert reward(lamp, {"color": "sky blue", "size": "small"}, goal) == 4 / 5
    assert reward(lamp, goal.options, replace(goal, limit=10.0)) == 4 / 5
    dull = replace(lamp, attributes=(), features=(), description="")
    assert reward(dull, goal.options, goal) == 3 / 5
    told = replace(dull, description="It is BPA Free.")
    assert reward(told, goal.options, goal) == 4 / 5


def test_a_size_must_be_exact_and_a_colour_alike(products: list[Product]) -> None:
    goal = Goal(products[1], "", {"color": "blue", "size": "large"}, 30.0)
    met = reward(products[1], {"color": "sky blue", "size": "x-large"}, goal)
    assert met == pytest.approx(4 / 5)


def test_the_wrong_kind_of_thing_is_worth_less(products: list[Product]) -> None:
    lamp = products[1]
    near = replace(lamp, title="Brass Lamp", query="bulbs", categories=("Garden",))
    other = replace(lamp, title="Oak Table", query="tables", categories=("Garden",))
    assert kind(lamp, lamp) == 1
    assert kind(other, lamp) == 0
    wanted = replace(lamp, title="lamp alpha beta gamma delta epsilon zeta eta theta iota", query="x")
    assert kind(replace(near, categories=wanted.categories), wanted) == 1.0
    assert kind(near, wanted) == 0.5  # one word of ten, of another category
    assert kind(near, replace(wanted, title=f"{wanted.title} kappa lambda")) == 0.1


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("easy clean", "clean easy", True),
        ("sky blue", "blue", True),
        ("stainless steel", "stainles steel", True),
        ("red", "blue", False),
        ("non slip", "non stick", False),
        ("", "red", False),
    ],
)
def test_phrases_that_are_alike(one: str, other: str, same: bool) -> None:
    assert alike(one, other) is same
    assert alike(other, one) is same


@given(st.data())
def test_every_purchase_is_worth_between_0_and_1(products: list[Product], data: st.DataObject) -> None:
    bought = data.draw(st.sampled_from(products))
    chosen = {name: data.draw(st.sampled_from(values)) for name, values in bought.options.items()}
    assert 0 <= reward(bought, chosen, data.draw(st.sampled_from(goals(products)))) <= 1
