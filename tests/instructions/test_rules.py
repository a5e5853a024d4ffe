"""The recogniser `rules`: what says that it holds on counts, what is told or asked does not."""

from __future__ import annotations

import pytest

from forgetless.instructions.rules import Rules
from forgetless.registry import load_recogniser


@pytest.mark.parametrize(
    "text",
    [
        "From now on answer in French.",
        "Keep it under 50 words, all of your replies.",
        "Künftig bitte nur Stichpunkte.",
        "A partir de ahora contéstame solo en español.",
        "Désormais, réponds-moi uniquement en français.",
        "从现在起请一直用中文回答我。",
        "これからはすべて日本語で答えてください。",
    ],
)
def test_what_holds_on_is_found(text: str) -> None:
    assert Rules()(text) == [(0, len(text))]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Translate this into German.",
        'What does "from now on" mean?',
        'She said: "From now on answer in French." Continue the story.',
        "A partir de ahora el autobús para en la biblioteca.",
        "ok",
    ],
)
def test_what_does_not_is_not(text: str) -> None:
    assert Rules()(text) == []


def test_only_the_sentence_that_says_so() -> None:
    text = "Hello there. From now on answer in French. What is a fjord?"
    ((start, end),) = load_recogniser("rules")(text)
    assert text[start:end] == "From now on answer in French."
