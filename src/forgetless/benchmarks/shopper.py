"""A scripted buyer for WebShop, which acts on the pages that stand in its context alone.

It searches, goes down the first page of results from the likeliest product on, looks at each and at its features, and
buys the first that has all it was asked for, or after `MOST` products the best that it still remembers. It knows where
it is by the product that it saw last.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from forgetless.text import words

__all__ = ["buy", "remember"]

MOST = 8
"""Products that are looked at before the best of them is bought."""

BACK = "click[< prev]"

ENOUGH = 0.95
"""The worth of a product that is bought at once."""

_PAGE = re.compile(
    r"^((?:The shop's front page|Results for |Product |Description of |Features of ).*?)(?:^Actions: |\Z)", re.M | re.S
)
_REQUEST = re.compile(r"Buy the product that meets this request best[^\n]*:\n([^\n]+)")
_LIMIT = re.compile(r", and price lower than ([\d.]+) dollars")
_WANTED = re.compile(r"(?:^| with |, and )([a-z ]+): (.+?)(?=, and [a-z ]+: |$)")
_FOUND = re.compile(r"^click\[(\w+)\]: (.*), \$([\d,.]+)(?: to \$[\d,.]+)?$", re.M)
_PRODUCT = re.compile(r"^Product (\w+): (.*)\nPrice: \$([\d,.]+)")
_FEATURES = re.compile(r"^Features of (\w+)")
_OPTION = re.compile(r"^Option ([^:\n]+): (.*)$", re.M)
_CHOSEN = re.compile(r"^Chosen ([^:\n]+): (.*)$", re.M)
_BUTTON = re.compile(r"click\[(.*?)\](?=, click\[|$)", re.M)
_PLAN = re.compile(r"^Plan: buy (\w+)$", re.M)
_NOTE = re.compile(r"^Noted (\w+): (?:meets (\d+)|features); says ?(.*)$", re.M)


@dataclass(frozen=True, slots=True)
class _Wish:
    """What is to be bought."""

    words: frozenset[str]
    options: Mapping[str, str]
    limit: float
    query: str


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of a product: how much of the wish its page meets, and which words of it page and features say."""

    met: int | None = None
    page: frozenset[str] = frozenset()
    features: frozenset[str] | None = None


def buy(texts: Sequence[str]) -> str:
    """The next action, from the texts of a request, oldest first."""
    pages = _pages(texts)
    wish = _wish(texts)
    if not pages or wish is None:
        return "click[back to search]"
    now = pages[-1]
    if now.startswith("The shop"):
        return f"search[{wish.query}]"
    if now.startswith("Results"):
        return f"click[{_choose(now, wish, _known(texts))[0]}]"
    if now.startswith("Product"):
        return _look(texts, pages, wish)
    return BACK


def remember(texts: Sequence[str]) -> list[str]:
    """What these texts say of products, a line for the page and one for the features of each, and which to buy."""
    lines = []
    for name, known in _known(texts).items():
        if known.met is not None:
            lines.append(f"Noted {name}: meets {known.met}; says {' '.join(sorted(known.page))}")
        if known.features is not None:
            lines.append(f"Noted {name}: features; says {' '.join(sorted(known.features))}")
    pages, wish = _pages(texts), _wish(texts)
    plan = _PLAN.findall("\n".join(texts))
    if pages and wish and pages[-1].startswith("Results"):
        name, bought = _choose(pages[-1], wish, _known(texts))
        plan = [name] if bought else []
    return lines + [f"Plan: buy {name}" for name in plan[-1:]]


def _pages(texts: Sequence[str]) -> list[str]:
    """The pages in these texts, each without the buttons at its end; one that was shortened is what is left of it."""
    return [page for text in texts for page in _PAGE.findall(text)]


def _wish(texts: Sequence[str]) -> _Wish | None:
    found = _REQUEST.search("\n".join(texts))
    if found is None:
        return None
    limit = _LIMIT.search(found[1])
    said = _LIMIT.sub("", found[1]).removeprefix("Find me ")
    options = dict(_WANTED.findall(said))
    plain = _WANTED.split(said, maxsplit=1)[0]
    return _Wish(
        _words(plain) - {"with", "for", "and", "of"},
        options,
        float(limit[1]) if limit else inf,
        " ".join([plain, *options.values()]),
    )


def _worth(known: _Known, wish: _Wish) -> float | None:
    """The share of the wish that a product meets; None while its page or its features are not known."""
    if known.met is None or known.features is None:
        return None
    return (known.met + len(known.page | known.features) / max(1, len(wish.words))) / (2 + len(wish.options))


def _known(texts: Sequence[str]) -> dict[str, _Known]:
    """What is known of products, from notes and from pages; the one that was seen last comes last."""
    wish = _wish(texts)
    found: dict[str, _Known] = {}
    for name, met, said in _NOTE.findall("\n".join(texts)):
        own = frozenset(said.split())
        known = found.pop(name, _Known())
        found[name] = replace(known, met=int(met), page=own) if met else replace(known, features=own)
    if wish is None:
        return found
    for page in _pages(texts):
        product, features = _PRODUCT.match(page), _FEATURES.match(page)
        if product:
            own, met = wish.words & _words(product[2]), _met(page, _price(product[3]), wish)
            found[product[1]] = replace(found.pop(product[1], _Known()), met=met, page=own)
        elif features:
            own = wish.words & _words(page)
            found[features[1]] = replace(found.pop(features[1], _Known()), features=own)
    return found


def _met(page: str, price: float, wish: _Wish) -> int:
    """How much of the wish a product's page meets: its price, and the options that it offers."""
    return (price <= wish.limit) + sum(_button(page, name, value) is not None for name, value in wish.options.items())


def _choose(page: str, wish: _Wish, known: Mapping[str, _Known]) -> tuple[str, bool]:
    """On a page of results: the product to go to, and whether to buy it."""
    here = {
        name: len(wish.words & _words(title)) for name, title, low in _FOUND.findall(page) if _price(low) <= wish.limit
    }
    ranked = sorted(here, key=lambda name: -here[name])[:MOST]
    worth = {name: value for name in ranked if (value := _worth(known.get(name, _Known()), wish)) is not None}
    last = next((name for name in reversed([*known]) if name in ranked), None)
    ahead = ranked[ranked.index(last) + 1 :] if last else ranked
    new = [name for name in ahead if name not in worth]
    if new:
        return new[0], False
    if worth:
        return max(worth, key=worth.__getitem__), True
    return (ranked or [name for name, *_ in _FOUND.findall(page)] or ["back to search"])[0], False


def _look(texts: Sequence[str], pages: Sequence[str], wish: _Wish) -> str:
    """On a product's page: look at its features, then buy it or go on."""
    page = pages[-1]
    product = _PRODUCT.match(page)
    name = product[1] if product else ""
    worth = _worth(_known(texts).get(name, _Known()), wish)
    chosen = dict(_CHOSEN.findall(page))
    if worth is None:
        return "click[features]"
    back = len(pages) > 1 and pages[-2].startswith("Results")  # to what was looked at before: to buy it
    if worth < ENOUGH and not chosen and not back and name not in _PLAN.findall("\n".join(texts)):
        return BACK
    for option, value in wish.options.items():
        button = _button(page, option, value)
        if button is not None and option not in chosen:
            return f"click[{button}]"
    return "click[buy now]"


def _button(page: str, option: str, value: str) -> str | None:
    """The button of an option's value, where the page has it."""
    for name, line in _OPTION.findall(page):
        if name == option:
            return next((b for b in _BUTTON.findall(line) if b in (value, f"{option}: {value}")), None)
    return None


def _words(text: str) -> frozenset[str]:
    """Its words, the plural as the singular."""
    return frozenset(word.removesuffix("s") for word in words(text))


def _price(text: str) -> float:
    return float(text.replace(",", ""))
