"""The scripted buyer: it buys what was asked for, acts on its context alone, and its notes stand for the pages."""

from __future__ import annotations

from pathlib import Path

import pytest

import made_shop
from forgetless.benchmarks.shopper import buy, remember
from forgetless.benchmarks.solvers import scripted
from forgetless.environments.webshop.shop import Webshop
from forgetless.tokens import for_model


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Webshop:
    return Webshop(made_shop.small(Path(tmp_path_factory.mktemp("shop"))))


def play(shop: Webshop, seed: int, *, notes: bool = False) -> tuple[float, list[str]]:
    """The reward and the actions: with all pages in the context, or with notes and the newest page."""
    start = shop.start(seed)
    texts, actions = [start.task, start.observation], []
    for _ in range(60):
        actions.append(buy(texts))
        step = shop.step(actions[-1])
        assert step.valid, step.observation
        if step.done:
            return step.reward, actions
        texts = [start.task, *remember(texts), step.observation] if notes else [*texts, step.observation]
    return 0.0, actions


def test_it_buys_what_was_asked_for(shop: Webshop) -> None:
    assert all(play(shop, seed)[0] == 1.0 for seed in range(len(shop.goals)))


def test_notes_stand_for_the_pages(shop: Webshop) -> None:
    for seed in range(len(shop.goals)):
        assert play(shop, seed, notes=True) == play(shop, seed)


def test_of_products_that_it_remembers_it_buys_the_best(shop: Webshop) -> None:
    page = "Product {0}: {0}\nPrice: $9.00\nOption size: click[small]\nActions: click[< prev], click[buy now]"
    told = "Features of {0}\n{1}\nActions: click[< prev]"
    results = "Results for 'x': page 1 of 1, 3 products\n{}\nActions: click[back to search]"
    listed = results.format("\n".join(f"click[{name}]: thing {name}, $9.00" for name in "XYZ"))
    task = "Buy the product that meets this request best:\nFind me red, warm things with size: large"
    seen = [
        text for name, said in (("X", "red"), ("Y", "red warm"), ("Z", "")) for text in (page, told.format(name, said))
    ]
    seen = [text.format(name) for text, name in zip(seen, "XXYYZZ", strict=True)]
    assert buy([task, *seen, listed]) == "click[Y]"
    assert buy([task, *seen, listed, page.format("Y")]) == "click[buy now]"
    assert buy([task, *seen[:2], *seen[4:], listed]) == "click[X]"  # Y was left out
    assert buy([task, *seen[:2], listed]) == "click[Y]"  # goes on behind the last one
    assert buy([task, *seen[:3]]) == "click[features]"
    assert buy([task, *seen[:4], seen[2]]) == "click[< prev]"


def test_a_page_that_was_shortened_does_not_run_into_the_next(shop: Webshop) -> None:
    start = shop.start(0)
    results = shop.step(buy([start.task, start.observation])).observation
    whole = buy([start.task, start.observation, results])
    assert buy([start.task, "Results for 'x': page 1 of 1\n[…]", "Product B1: […]", results]) == whole


def test_without_the_task_it_goes_nowhere(shop: Webshop) -> None:
    assert buy(["Hello."]) == buy([shop.start(0).observation]) == "click[back to search]"


def test_the_scripted_agent_of_webshop_is_this_one(shop: Webshop) -> None:
    start = shop.start(0)
    model = scripted("webshop", for_model(None))
    reply = model({"messages": [{"role": "user", "content": f"{start.task}\n{start.observation}"}]})
    assert reply["choices"][0]["message"]["content"] == buy([start.task, start.observation])
