"""WebShop's products and goals: both layouts, prices, the split, and errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import made_shop
from forgetless.environments.webshop.catalogue import read_products
from forgetless.environments.webshop.goals import goals
from forgetless.environments.webshop.search import Index
from forgetless.errors import ConfigError


def test_both_layouts_give_the_same_products(tmp_path: Path) -> None:
    small, full = read_products(made_shop.small(tmp_path / "s")), read_products(made_shop.full(tmp_path / "f"))
    assert [p.contents.lower() for p in full] == [p.contents for p in small]
    assert [(p.id, p.title, p.prices, p.options, p.wanted) for p in full] == [
        (p.id, p.title, p.prices, p.options, p.wanted) for p in small
    ]


def test_a_product(tmp_path: Path) -> None:
    plain, ranged, free, dear, *_ = read_products(made_shop.small(tmp_path))
    assert (plain.price, plain.tag, plain.options) == (20.0, "$20.00", {})
    assert ranged.tag == "$15.50 to $18.50"
    assert 15.5 <= ranged.price == ranged.price <= 18.5
    assert free.price == 100.0
    assert dear.tag == "$1,200.00"
    assert ranged.options == {"color": ("red", "sky blue"), "size": ("small", "large")}
    assert ranged.categories == ("Home", "Things", "Lamp")


def test_a_goal_for_each_combination_of_options(tmp_path: Path) -> None:
    products = read_products(made_shop.small(tmp_path))
    found = goals(products, 0)
    many = {product.id: sum(goal.product is product for goal in found) for product in products[:8]}
    assert list(many.values()) == [1, 4, 1, 2, 1, 6, 1, 4]
    text = {goal.text for goal in found if goal.product is products[1]}
    (limit,) = {goal.limit for goal in found if goal.product is products[1]}
    below = f", and price lower than {limit:.2f} dollars"
    assert f"Find me easy clean, bpa free lamps with color: sky blue, and size: large{below}" in text
    assert products[1].price < limit <= 60
    assert not any("lower" in goal.text for goal in found if goal.product is products[3])  # none above 1,200 dollars


@pytest.mark.parametrize("test", [0, 3, 7, 100])
def test_no_product_is_wanted_in_both_parts_and_the_order_is_fixed(tmp_path: Path, test: int) -> None:
    products = read_products(made_shop.small(tmp_path))
    found = goals(products, test)
    first = {goal.product.id for goal in found[:test]}
    assert not first & {goal.product.id for goal in found[test:]}
    assert [goal.text for goal in found] == [goal.text for goal in goals(products, test)]
    assert sorted(goal.text for goal in found) == sorted(goal.text for goal in goals(products, 0))


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        (None, "", "holds no WebShop data"),
        ("products_1000.jsonl", "{", "layout"),
        ("products_1000.jsonl", '{"product": {}, "contents": ""}', "layout.*'asin'"),
        ("items_ins_v2_1000.json", "[]", "layout"),
    ],
)
def test_errors_name_the_folder(tmp_path: Path, name: str | None, text: str, says: str) -> None:
    folder = tmp_path / "shop"
    if name:
        (made_shop.small(folder) / name).write_text(text)
    with pytest.raises(ConfigError, match=f"shop.*{says}"):
        read_products(folder)


@given(st.lists(st.lists(st.sampled_from(["red", "blue", "lamp", "chair", "the"]), max_size=6), max_size=8))
def test_a_search_finds_all_that_share_a_word_and_nothing_else(texts: list[list[str]]) -> None:
    found = Index([" ".join(text) for text in texts])("red lamp", 50)
    assert sorted(found) == [at for at, text in enumerate(texts) if {"red", "lamp"} & set(text)]


def test_the_better_match_comes_first_and_equals_keep_their_order() -> None:
    index = Index(["a lamp", "a red lamp", "a red lamp", "a chair and a table and a red lamp"])
    assert index("red lamp", 3) == [1, 2, 3]
    assert Index([])("red", 3) == []


def test_json_with_a_product_twice_keeps_the_first(tmp_path: Path) -> None:
    folder = made_shop.full(tmp_path)
    products, _ = made_shop.catalogue()
    twice = [*products, {**products[0], "name": "Another"}]
    (folder / "items_shuffle.json").write_text(json.dumps(twice))
    assert len(read_products(folder)) == 12
    assert read_products(folder)[0].title == products[0]["name"]
