"""WebShop's products: as the 1,000-product set has them, or from the raw files of the full set."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from forgetless.errors import ConfigError

__all__ = ["SMALL", "Product", "read_products"]

SMALL = ("products_1000.jsonl", "items_ins_v2_1000.json")
FULL = ("items_shuffle.json", "items_ins_v2.json")

PRICE = 100.0
"""Of a product without one."""

_MONEY = re.compile(r"\d[\d,]*(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class Product:
    """A product.

    Attributes:
        id: Amazon's number, in upper case.
        title: its name.
        description: a text, often empty.
        features: bullet points.
        prices: one price, or the lowest and the highest.
        options: values by the option's name, both in lower case; the data have some twice.
        attributes: short phrases that hold for it, such as `tea tree`.
        categories: from broad to narrow.
        query: the search by which it was found.
        contents: what the search engine reads.
        instruction: what a buyer asks for; "" where there is none.
        wanted: the attributes that the instruction names.
    """

    id: str
    title: str
    description: str
    features: tuple[str, ...]
    prices: tuple[float, ...]
    options: Mapping[str, tuple[str, ...]]
    attributes: tuple[str, ...]
    categories: tuple[str, ...]
    query: str
    contents: str
    instruction: str
    wanted: tuple[str, ...]

    @property
    def tag(self) -> str:
        """The price as a page shows it."""
        return " to ".join(f"${price:,.2f}" for price in self.prices)

    @property
    def price(self) -> float:
        """The price that counts: one between the two, the same in every run."""
        return self.prices[0] if len(self.prices) == 1 else Random(self.id).uniform(*self.prices)


def read_products(folder: Path) -> list[Product]:
    """The products of a folder: the 1,000-product set where it is there, else the full one.

    Raises:
        ConfigError: neither is there, or a file is in another layout.
    """
    names = next((names for names in (SMALL, FULL) if all((folder / name).is_file() for name in names)), None)
    if names is None:
        raise ConfigError(
            f"{str(folder)!r} holds no WebShop data: give a folder with {' and '.join(SMALL)}, or with "
            f"{' and '.join(FULL)} of the full set"
        )
    found: dict[str, Product] = {}
    try:
        asked = json.loads((folder / names[1]).read_text(encoding="utf-8"))
        for entry in _entries(folder / names[0]):
            product = _product(entry, asked)
            found.setdefault(product.id, product)
    except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
        raise ConfigError(f"{str(folder)!r} is not in WebShop's layout ({type(error).__name__}: {error})") from None
    return list(found.values())


def _entries(file: Path) -> Iterator[Mapping[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        if file.suffix != ".jsonl":
            yield from json.load(lines)
            return
        for line in lines:
            value = json.loads(line)
            yield {**value["product"], "contents": value["contents"]}


def _product(value: Mapping[str, Any], asked: Mapping[str, Any]) -> Product:
    about = asked.get(value["asin"]) or {}
    title, description = str(value["name"]), str(value.get("full_description") or "")
    bullets = value.get("small_description") or []
    features = tuple(map(str, bullets)) if isinstance(bullets, list) else (str(bullets),)
    return Product(
        id=str(value["asin"]).upper(),
        title=title,
        description=description,
        features=features,
        prices=_prices(value.get("pricing")),
        options=_options(value.get("customization_options") or {}),
        attributes=tuple(about.get("attributes") or ()),
        categories=tuple(part.strip() for part in str(value["product_category"]).split("›")),
        query=str(value["query"]).lower().strip(),
        contents=str(value.get("contents") or " ".join((title, description, *features))),
        instruction=str(about.get("instruction") or "").strip().rstrip("."),
        wanted=tuple(about.get("instruction_attributes") or ()),
    )


def _prices(given: Any) -> tuple[float, ...]:
    """One price or two, from numbers or from text such as `$19.99 to $27.99`."""
    numbers = given if isinstance(given, list) else [n.replace(",", "") for n in _MONEY.findall(str(given or ""))]
    return tuple(float(number) for number in numbers[:2]) or (PRICE,)


def _options(given: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    values = {
        str(name).lower(): tuple(str(one["value"]).strip().replace("/", " | ").lower() for one in choices or ())
        for name, choices in given.items()
    }
    return {name: each for name, each in values.items() if each}
