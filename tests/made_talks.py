"""Made-up conversations in which facts are needed later and small talk is not."""

from __future__ import annotations

from random import Random
from typing import Any

from forgetless.datasets.logs import Asked, Log, units_of

NAMES = ["Ines", "Tomas", "Marta", "Pavel", "Aiko", "Sven", "Lena", "Omar", "Ruth", "Igor", "Nadia", "Felix"]
THINGS = ["violin", "kayak", "lantern", "tractor", "compass", "easel", "anvil", "loom", "trumpet", "telescope"]
PLACES = ["Porto", "Lisbon", "Bergen", "Kyoto", "Tartu", "Ghent", "Split", "Oulu", "Graz", "Cork"]
CHAT = ["That sounds great!", "Oh, I see.", "How are you doing?", "Thanks, that is so kind of you!", "And then?"]


def conversation(seed: int, facts: int = 12) -> dict[str, Any]:
    """Turns, and for each fact its turn, a question and its answer."""
    rng = Random(seed)
    turns: list[str] = []
    asked: list[tuple[int, str, str]] = []
    for number in range(facts):
        name, thing, place = rng.choice(NAMES), rng.choice(THINGS), rng.choice(PLACES)
        code = rng.randint(1_000, 9_999)
        asked.append((len(turns), f"Which {thing} did {name} buy?", f"number {code} in {place}"))
        turns.append(f"Yesterday {name} bought the {thing} number {code} in {place}, on day {number}.")
        turns += [rng.choice(CHAT) for _ in range(rng.randint(1, 4))]
    return {"turns": turns, "asked": asked}


def log(seed: int, facts: int = 12) -> Log:
    made = conversation(seed, facts)
    messages = [{"role": "user" if i % 2 == 0 else "assistant", "content": t} for i, t in enumerate(made["turns"])]
    return Log(f"talk{seed}", units_of(messages), tuple(Asked(q, a, (at,)) for at, q, a in made["asked"]))


def locomo(seed: int) -> dict[str, Any]:
    """The same as a LoCoMo sample."""
    made = conversation(seed)
    turns = [
        {"speaker": ("Ann", "Bob")[i % 2], "dia_id": f"D1:{i + 1}", "text": text}
        for i, text in enumerate(made["turns"])
    ]
    return {
        "sample_id": f"conv-{seed}",
        "conversation": {"session_1": turns, "session_1_date_time": "1:56 pm on 8 May, 2023"},
        "qa": [{"question": q, "answer": a, "evidence": [f"D1:{at + 1}"], "category": 4} for at, q, a in made["asked"]],
    }
