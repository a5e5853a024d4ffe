"""The shop as text: pages with the actions that each offers (WebShop; the form in which language models play it)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from forgetless.environments.base import Start, Step
from forgetless.environments.webshop.catalogue import Product, read_products
from forgetless.environments.webshop.goals import Goal, goals
from forgetless.environments.webshop.reward import reward
from forgetless.environments.webshop.search import Index
from forgetless.errors import ConfigError

__all__ = ["Webshop"]

FOUND = 50
"""Products that a search gives at most."""

SHOWN = 10
"""Of them on a page."""

SEARCH, NEXT, PREVIOUS, BUY = "back to search", "next >", "< prev", "buy now"
DETAILS = ("description", "features")
FIXED = frozenset((SEARCH, NEXT, PREVIOUS, BUY, *DETAILS))

TASK = """\
You are shopping online. Buy the product that meets this request best, with the options that it asks for:
{text}
Each page lists its actions. An action is `search[WORDS]` or `click[BUTTON]`, where BUTTON is one of those listed; \
`click[{buy}]` buys the product of the page with the options clicked so far, and ends the episode."""

_ACTION = re.compile(r"\b(search|click)\s*\[(.*)\]", re.IGNORECASE | re.DOTALL)


class Webshop:
    """Plays one episode at a time. A seed is the number of a goal: 0 to 499 are for testing, later ones for training.

    Attributes:
        name: with its version.
    """

    name = "webshop@1"

    def __init__(self, data: str | Path | None = None) -> None:
        """Open the shop.

        Args:
            data: the folder with the products and instructions.

        Raises:
            ConfigError: it is missing, or not in WebShop's layout.
        """
        if data is None:
            raise ConfigError("webshop needs its data: give the folder with products and instructions (--data)")
        self._products, self._index, self.goals = _opened(Path(data))
        self._by_id = {product.id: product for product in self._products}
        self._goal: Goal | None = None
        self._leave()

    def start(self, seed: int) -> Start:
        """Begin the episode of a goal."""
        goal = self.goals[seed % len(self.goals)]
        self._goal = goal
        self._leave()
        return Start(TASK.format(text=goal.text, buy=BUY), self._page())

    def step(self, action: str) -> Step:
        """Search, or click a button of the page."""
        asked = _ACTION.search(action)
        if self._goal is None:
            return self._unknown("No episode is under way.")
        if asked is None:
            return self._unknown("That is no action.")
        verb, said = asked[1].lower(), asked[2].strip()
        if verb == "search":
            return self._search(said)
        return self._click(said)

    def close(self) -> None:
        """Nothing to leave behind."""
        self._goal = None

    def _leave(self) -> None:
        """Go to the page with the search bar."""
        self._words = ""
        self._found: list[Product] = []
        self._at = 0  # page of the results
        self._product: Product | None = None
        self._detail = ""
        self._chosen: dict[str, str] = {}

    def _search(self, said: str) -> Step:
        if self._words:
            return self._unknown("There is no search bar on this page.")
        if not said:
            return self._unknown("A search needs words.")
        self._words = said
        self._found = [self._products[at] for at in self._index(said, FOUND)]
        return Step(self._page())

    def _click(self, said: str) -> Step:
        button = said.lower()
        if button not in (known.lower() for known in self._buttons()):
            return self._unknown(f"There is no button {said!r} on this page.")
        if button == BUY:
            return self._buy()
        if button == SEARCH:
            self._leave()
        elif button in (NEXT, PREVIOUS):
            self._turn(1 if button == NEXT else -1)
        elif self._product is None:
            self._product = self._by_id[said.upper()]
        elif button in DETAILS:
            self._detail = button
        else:
            name, value = self._values()[button]
            self._chosen[name] = value
        return Step(self._page())

    def _turn(self, by: int) -> None:
        """Turn a page of the results, or leave the newest page of a product."""
        if self._product is None:
            self._at += by
        elif self._detail:
            self._detail = ""
        else:
            self._product = None
            self._chosen = {}

    def _buy(self) -> Step:
        assert self._goal is not None
        assert self._product is not None
        worth = reward(self._product, self._chosen, self._goal)
        self._goal = None
        return Step(f"You have bought it. Thank you for shopping with us! Your score: {worth:.2f}", worth, done=True)

    def _unknown(self, why: str) -> Step:
        return Step(f"{why}\n\n{self._page()}", valid=False)

    def _values(self) -> dict[str, tuple[str, str]]:
        """Button -> option and value; a value of two options, or like another button, is named with its option."""
        assert self._product is not None
        pairs = list(dict.fromkeys((n, value) for n, values in self._product.options.items() for value in values))
        values = [value for _, value in pairs]
        return {
            (value if values.count(value) == 1 and value not in FIXED else f"{name}: {value}"): (name, value)
            for name, value in pairs
        }

    def _buttons(self) -> list[str]:
        if not self._words:
            return []
        if self._detail:
            return [SEARCH, PREVIOUS]
        if self._product is not None:
            return [SEARCH, PREVIOUS, *DETAILS, *self._values(), BUY]
        turns = [PREVIOUS] * (self._at > 0) + [NEXT] * (len(self._found) > (self._at + 1) * SHOWN)
        return [SEARCH, *turns, *(product.id for product in self._shown())]

    def _shown(self) -> Sequence[Product]:
        return self._found[self._at * SHOWN : (self._at + 1) * SHOWN]

    def _page(self) -> str:
        """The page; buttons of products and options stand beside what they are, the others in the last line."""
        actions = [f"click[{button}]" for button in self._buttons() if button in FIXED] or ["search[WORDS]"]
        return "\n".join([*self._lines(), f"Actions: {', '.join(actions)}"])

    def _lines(self) -> Iterator[str]:
        if not self._words:
            yield "The shop's front page, with a search bar."
        elif self._product is None:
            pages = max(1, -(-len(self._found) // SHOWN))
            yield f"Results for {self._words!r}: page {self._at + 1} of {pages}, {len(self._found)} products"
            for product in self._shown():
                yield f"click[{product.id}]: {product.title}, {product.tag}"
        elif self._detail:
            yield f"{self._detail.capitalize()} of {self._product.id}"
            texts = [self._product.description] if self._detail == DETAILS[0] else self._product.features
            yield from [text.strip() for text in texts if text.strip()] or ["(none)"]
        else:
            yield f"Product {self._product.id}: {self._product.title}"
            yield f"Price: {self._product.tag}"
            for name in self._product.options:
                buttons = (button for button, (option, _) in self._values().items() if option == name)
                yield f"Option {name}: {', '.join(f'click[{button}]' for button in buttons)}"
            for name, value in self._chosen.items():
                yield f"Chosen {name}: {value}"


@lru_cache(1)
def _opened(folder: Path) -> tuple[list[Product], Index, list[Goal]]:
    products = read_products(folder)
    wanted = goals(products)
    if not wanted:
        raise ConfigError(f"no product of {str(folder)!r} has an instruction")
    return products, Index([product.contents for product in products]), wanted
