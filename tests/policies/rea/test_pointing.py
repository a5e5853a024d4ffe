"""What a question points back to: the turn before it, or the list that it is about, however old."""

from __future__ import annotations

from typing import Any

import pytest

from forgetless import compact
from forgetless.intake import Terms, take
from forgetless.policies.rea.pointing import pointed
from forgetless.policies.rea.similarity import Words

HOTELS = "Sure:\n1. Grand Bristol, 210 euros\n2. Seaview, 120 euros\n3. Old Mill, 95 euros"
FILMS = "- Metropolis\n- Nosferatu\n- Sunrise\n- The Kid"


def units(*said: str) -> Any:
    messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(said)]
    return take(messages, Terms(10**6, "chat")).units


def meant(question: str) -> set[int]:
    told = units(
        "Name hotels in Oslo",
        HOTELS,
        "Which silent films should I see?",
        FILMS,
        "How is the weather?",
        "It rains.",
        question,
    )
    return set(pointed(told, told[-1], Words()))


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("Tell me more about the second one of the hotels", {1}),
        ("What does the third hotel in Oslo cost?", {1}),
        ("Is the second film long?", {3}),
        ("the fourth one, please", {3}),
        ("And the first?", {3}),
        ("I would like to know what the second one of the silent films that you named is all about", {3}),
        ("I was told the first time that it would not rain in Bergen all week, so what shall I do now?", set()),
        ("What about number 3 of the hotels?", {1}),
        ("Was kostet das zweite Hotel in Oslo?", {1}),
        ("¿Y la segunda de Oslo?", {1}),
        ("第二个", {3}),
        ("2番目は?", {3}),
        ("List them in the order they appear", {5}),
        ("Say that again", {5}),
        ("接着说那个", {5}),
        ("the ninth one", {5}),
        ("What is the capital of Peru?", set()),
        ("Give me a recipe for bread with rye, caraway and sour dough", set()),
    ],
)
def test_which_reply_is_meant(question: str, found: set[int]) -> None:
    assert meant(question) == found


def test_nothing_is_meant_where_nothing_was_said() -> None:
    (alone,) = units("the second one")
    assert pointed([alone], alone, Words()) == frozenset()


def test_an_old_list_stays_raw_and_gives_way_last() -> None:
    said = ["Name hotels in Oslo", HOTELS]
    for turn in range(8):
        said += [
            f"What about day {turn}?",
            f"On day {turn} we " + "walked along the road and saw nothing but sheep. " * 5,
        ]
    messages = [
        {"role": ("user", "assistant")[n % 2], "content": text}
        for n, text in enumerate([*said, "How far is the second hotel from the station?"])
    ]
    total = compact(messages, budget=10**6, policy="full").tokens
    for budget in (10**6, total // 2, total // 3):
        done = compact(messages, budget=budget, policy="rea")
        assert (done.ledger[1].form, done.ledger[1].reason) == ("raw", "similar")
    assert compact(messages, budget=10**6, policy="rea", replies="paper").ledger[1].form == "omitted"
