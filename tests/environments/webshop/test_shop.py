"""The shop's pages: every action that a page lists works, others say so, and buying ends the episode."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random

import pytest

import made_shop
from forgetless.environments.webshop.shop import Webshop
from forgetless.errors import ConfigError
from forgetless.registry import load_environment


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_shop.small(Path(tmp_path_factory.mktemp("shop")))


@pytest.fixture
def shop(data: Path) -> Webshop:
    return Webshop(data)


def buttons(page: str) -> list[str]:
    return re.findall(r"click\[.*?\](?=[,:\n]|$)", page)


def goal_of(shop: Webshop, thing: str) -> int:
    return next(n for n, goal in enumerate(shop.goals) if thing in goal.text and goal.options)


def test_an_episode_from_search_to_purchase(shop: Webshop) -> None:
    seed = goal_of(shop, "lamp")
    goal = shop.goals[seed]
    start = shop.start(seed)
    assert goal.text in start.task
    assert start.observation.endswith("Actions: search[WORDS]")
    assert goal.product.id in shop.step("search[lamp]").observation
    page = shop.step(f"I think click[{goal.product.id.lower()}] is right").observation
    assert "Option color: click[" in page
    for name, value in goal.options.items():
        page = shop.step(f"click[{value}]").observation
        assert f"Chosen {name}: {value}" in page
    done = shop.step("click[Buy Now]")
    assert (done.reward, done.done, done.valid) == (1.0, True, True)
    assert not shop.step("click[buy now]").valid


def test_details_lead_back_and_leaving_a_product_forgets_its_options(shop: Webshop) -> None:
    shop.start(goal_of(shop, "lamp"))
    results = shop.step("search[lamp]").observation
    first = shop.step(buttons(results)[0]).observation
    assert "easy to clean" in shop.step("click[features]").observation
    assert not shop.step("click[description]").valid
    assert shop.step("click[< prev]").observation == first
    assert "for every day" in shop.step("click[description]").observation
    assert shop.step("click[< prev]").observation == first
    assert "Chosen size: small" in shop.step("click[small]").observation
    assert shop.step("click[< prev]").observation == results
    assert shop.step(buttons(results)[0]).observation == first
    assert shop.step("click[back to search]").observation.endswith("search[WORDS]")


def test_pages_of_results(shop: Webshop) -> None:
    shop.start(0)
    first = shop.step("search[steel easy clean quality]").observation
    assert "page 1 of 2, 12 products" in first
    assert "< prev" not in first
    second = shop.step("click[next >]").observation
    assert len(re.findall(r"click\[B\d+\]: ", first)) == 10
    assert len(re.findall(r"click\[B\d+\]: ", second)) == 2
    assert "next >" not in second
    assert shop.step("click[< prev]").observation == first
    shop.step("click[back to search]")
    assert "page 1 of 1, 0 products" in shop.step("search[zeppelin]").observation


@pytest.mark.parametrize("action", ["", "buy it", "click[buy now]", "click[B000000001]", "search[]", "click[next >]"])
def test_what_a_page_does_not_offer_is_said_and_changes_nothing(shop: Webshop, action: str) -> None:
    before = shop.start(0).observation
    step = shop.step(action)
    assert (step.valid, step.done, step.reward) == (False, False, 0.0)
    assert step.observation.endswith(before)


def test_before_and_after_an_episode_nothing_can_be_done(shop: Webshop) -> None:
    assert not shop.step("search[lamp]").valid
    shop.start(0)
    shop.close()
    assert not shop.step("search[lamp]").valid


def test_a_value_of_two_options_is_named_with_its_option(tmp_path: Path) -> None:
    products, _ = made_shop.catalogue()
    products[1]["customization_options"] = made_shop.options(top=("red", "features"), trim=("red", "blue"))
    folder = made_shop.full(tmp_path)
    (folder / "items_shuffle.json").write_text(json.dumps(products))
    shop = Webshop(folder)
    seed = next(n for n, goal in enumerate(shop.goals) if goal.options == {"top": "features", "trim": "red"})
    shop.start(seed)
    shop.step("search[lamp]")
    page = shop.step(f"click[{products[1]['asin']}]").observation
    assert "Option top: click[top: red], click[top: features]" in page
    assert "Option trim: click[trim: red], click[blue]" in page
    shop.step("click[trim: red]")
    shop.step("click[top: features]")
    assert shop.step("click[buy now]").reward == 1.0


def test_every_listed_action_is_valid_on_random_walks_which_repeat(data: Path) -> None:
    def walk(seed: int) -> list[str]:
        shop, rng = Webshop(data), Random(seed)
        seen = [shop.start(seed).observation]
        for _ in range(40):
            offered = buttons(seen[-1])
            step = shop.step(rng.choice(offered) if offered else "search[easy clean lamp chair]")
            assert step.valid, (seen[-1], step.observation)
            seen.append(step.observation)
            if step.done:
                break
        return seen

    assert all(walk(seed) == walk(seed) for seed in range(20))


def test_a_seed_beyond_the_goals_starts_over(shop: Webshop) -> None:
    assert shop.start(len(shop.goals) + 2) == shop.start(2)


def test_without_data_it_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="webshop needs its data"):
        load_environment("webshop")
    with pytest.raises(ConfigError, match="holds no WebShop data"):
        load_environment("webshop", data=tmp_path)
