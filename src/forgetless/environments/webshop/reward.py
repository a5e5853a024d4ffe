"""What a purchase is worth: how much of the goal it meets, times how far it is the kind of thing that was wanted.

(attributes met + options met + price met) / (attributes + options + 1), times the type factor. Two things differ from
WebShop's own code, which needs a spaCy model and a fuzzy matcher: the nouns of a title are its words less a short list
of others, and two phrases are alike where one has all words of the other or their letters agree to 85 %.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import SequenceMatcher

from forgetless.environments.webshop.catalogue import Product
from forgetless.environments.webshop.goals import Goal
from forgetless.text import words

__all__ = ["alike", "kind", "reward"]

ALIKE = 0.85

EXACT = "size"
"""The option that must have the very value."""

_OTHERS = frozenset(
    words(
        "and any are both but by can each for from fits has have her his its more most new not one our out over per "
        "set so than that the their them then these they this those to two up very was what when which will with you "
        "your great best good easy free high large long natural perfect small soft super"
    )
)


def reward(bought: Product, options: Mapping[str, str], goal: Goal) -> float:
    """The reward in [0, 1]; 1 for a purchase that meets all of the goal.

    Args:
        bought: the product.
        options: the values that were chosen for it.
        goal: what was wanted.
    """
    wanted = goal.product.wanted
    met = sum(_has(bought, attribute) for attribute in wanted)
    met += sum(_chosen(options, name, value) for name, value in goal.options.items())
    met += bought.price <= goal.limit
    return kind(bought, goal.product) * met / (len(wanted) + len(goal.options) + 1)


def kind(bought: Product, wanted: Product) -> float:
    """How far a product is the kind of thing that another is: 1, 0.5, 0.1 or 0."""
    nouns = _nouns(wanted.title)
    title = len(nouns & _nouns(bought.title)) / len(nouns) if nouns else 0.2
    if title == 0:
        return 0.0
    if title < 0.1:
        return 0.1
    shared = len(set(bought.categories) & set(wanted.categories))
    return 1.0 if bought.query == wanted.query or shared >= 2 or title > 0.2 else 0.5


def alike(one: str, other: str) -> bool:
    """Whether two phrases say the same, but for words too many and small differences in spelling."""
    first, second = set(words(one)), set(words(other))
    if not first or not second:
        return one == other
    if first <= second or second <= first:
        return True
    both = sorted(first & second)
    texts = [" ".join(both), *(" ".join(both + sorted(own - set(both))) for own in (first, second))]
    pairs = [(texts[1], texts[2])] + ([(texts[0], texts[1]), (texts[0], texts[2])] if both else [])
    return any(SequenceMatcher(None, a, b, autojunk=False).ratio() > ALIKE for a, b in pairs)


def _nouns(title: str) -> set[str]:
    return {word for word in words(title) if word.isalpha() and len(word) > 2} - _OTHERS


def _has(product: Product, attribute: str) -> bool:
    if any(alike(own, attribute) for own in product.attributes):
        return True
    texts = (product.title, " ".join(product.features), product.description)
    return any(attribute in text.lower() for text in texts)


def _chosen(options: Mapping[str, str], name: str, value: str) -> bool:
    if name == EXACT:
        return options.get(name) == value
    return any(alike(own, value) for own in options.values())
