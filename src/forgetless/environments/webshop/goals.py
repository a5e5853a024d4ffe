"""What buyers want: an instruction with each combination of its product's options, shuffled and split by product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product as combinations
from random import Random

from forgetless.environments.webshop.catalogue import Product

__all__ = ["TEST", "Goal", "goals"]

SEED = 233
"""Of the order; WebShop's own number."""

TEST = 500
"""Goals in front that are for testing; no product of theirs is wanted by a later one."""

STEP, LAST = 10, 990
"""Price limits are multiples of the one, up to the other."""

NEAR = 4
"""The limit is one of so many next above the price."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What is to be bought.

    Attributes:
        product: one that fits in all.
        text: the instruction.
        options: the values that are wanted, by option.
        limit: the most that it may cost; infinity for any price.
    """

    product: Product
    text: str
    options: Mapping[str, str]
    limit: float


def goals(products: Sequence[Product], test: int = TEST) -> list[Goal]:
    """All goals: those for testing first.

    Args:
        products: the catalogue; those without an instruction are wanted by nobody.
        test: most goals for testing; products whose goals would be too many for the rest of it are for training.
    """
    rng = Random(SEED)
    wanted = [_of(product) for product in products if product.instruction]
    rng.shuffle(wanted)
    testing: list[Goal] = []
    training: list[Goal] = []
    for own in wanted:
        (testing if len(testing) + len(own) <= test else training).extend(own)
    rng.shuffle(testing)
    rng.shuffle(training)
    return [*testing, *training]


def _of(product: Product) -> list[Goal]:
    limit = _limit(product)
    below = "" if limit == float("inf") else f", and price lower than {limit:.2f} dollars"
    names = sorted(product.options)
    found = []
    for values in combinations(*(product.options[name] for name in names)):
        options = dict(zip(names, values, strict=True))
        chosen = ", and ".join(f"{name}: {value}" for name, value in options.items())
        text = f"{product.instruction}{' with ' if chosen else ''}{chosen}{below}"
        found.append(Goal(product, text, options, limit))
    return found


def _limit(product: Product) -> float:
    """The higher of two price limits that are drawn from the next ones above the price."""
    above = [float(limit) for limit in range(STEP, LAST + 1, STEP) if limit > product.price][:NEAR]
    return max(Random(f"limit {product.id}").sample(above, 2)) if len(above) > 1 else float("inf")
