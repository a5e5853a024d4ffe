"""A small shop in WebShop's two layouts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

COLOURS = ("Red", "Sky Blue", "Black/White")
SIZES = ("Small", "Large")


def entry(
    at: int, thing: str, *, price: Any = None, options: Any = None, features: Sequence[str] = ()
) -> dict[str, Any]:
    """A product as the raw files have it."""
    return {
        "asin": f"B{at:09}",
        "name": f"Maker{at} {thing.title()} Number{at}",
        "full_description": f"A {thing} for every day.",
        "pricing": "$20.00" if price is None else price,
        "small_description": list(features) or [f"{thing} of steel"],
        "customization_options": options or "",
        "product_category": f"Home › Things › {thing.title()}",
        "query": f"{thing}s",
    }


def options(**values: Sequence[str]) -> dict[str, Any]:
    return {name.title(): [{"value": value} for value in each] for name, each in values.items()}


def catalogue() -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Twelve products, of which the first eight are asked for, and what is asked."""
    things = ("kettle", "lamp", "chair", "towel", "mirror", "basket")
    products = [
        entry(
            at,
            things[at % 6],
            price=["$20.00", "$15.50 to $18.50", "", "$1,200.00"][at % 4],
            options=options(color=COLOURS[: 1 + at % 3], size=SIZES) if at % 2 else None,
            features=(f"quality {at}", "easy to clean", "bpa free" if at % 3 else "hand made"),
        )
        for at in range(12)
    ]
    asked: dict[str, Any] = {product["asin"]: {"attributes": ["easy clean"]} for product in products}
    for at, product in enumerate(products[:8]):
        wanted = ["easy clean", "bpa free" if at % 3 else "hand made"]
        text = f"Find me {wanted[0]}, {wanted[1]} {things[at % 6]}s"
        asked[product["asin"]] |= {"instruction": text, "instruction_attributes": wanted}
    return products, asked


def small(folder: Path) -> Path:
    """The shop in the layout of the 1,000-product set."""
    products, asked = catalogue()
    lines = []
    for product in products:
        contents = " ".join((product["name"], product["full_description"], *product["small_description"])).lower()
        money = [float(p.strip("$ ").replace(",", "")) for p in product["pricing"].split(" to ") if p]
        lines.append({"id": product["asin"], "contents": contents, "product": {**product, "pricing": money or [100.0]}})
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "products_1000.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "items_ins_v2_1000.json").write_text(json.dumps(asked))
    return folder


def full(folder: Path) -> Path:
    """The same shop in the layout of the full set."""
    products, asked = catalogue()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "items_shuffle.json").write_text(json.dumps(products))
    (folder / "items_ins_v2.json").write_text(json.dumps(asked))
    return folder
