"""The recogniser `llm`: the paper's question and rule, the calibrated one, and which sentences count."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, log
from typing import Any

import pytest

from forgetless.errors import ModelError
from forgetless.instructions.llm import Llm
from forgetless.models.scripted import Scripted


def asked(body: Mapping[str, Any]) -> str:
    return str(body["messages"][0]["content"])


@pytest.mark.parametrize(
    ("reply", "counts"),
    [
        ("YES", True),
        (" YES.", True),
        ("NO", False),
        ("YES or NO", False),
        ("yes", False),
        ("YES, NOT", False),
        ("", False),
    ],
)
def test_yes_and_no_as_the_paper_reads_them(reply: str, counts: bool) -> None:
    assert bool(Llm(Scripted([reply]))("Answer in French.")) is counts


def test_the_question_is_the_papers_and_greedy() -> None:
    model = Scripted(["NO"])
    Llm(model)("Be brief.")
    (body,) = model.requests
    assert body["temperature"] == 0
    assert asked(body).startswith('You are a classifier. Determine whether the following user input is a "global')
    assert asked(body).endswith("\n\nInput: Be brief. Answer:")


def test_of_a_message_that_counts_the_sentences_that_do() -> None:
    model = Scripted(lambda body: "YES" if "French" in asked(body).rpartition("Input: ")[2] else "NO")
    text = "What is a fjord? Answer in French."
    assert [text[start:end] for start, end in Llm(model)(text)] == ["Answer in French."]
    assert len(model.requests) == 3


def test_all_of_it_where_no_sentence_does() -> None:
    assert Llm(Scripted(["YES", "NO", "NO"]))(" One. Two. ") == [(1, 10)]


def test_nothing_is_asked_about_nothing() -> None:
    assert Llm(Scripted([]))(" \n ") == []


class Telling(Scripted):
    """Gives the same probabilities with every reply."""

    def __init__(self, chances: Mapping[str, float]) -> None:
        super().__init__(lambda _: "NO")
        self.top = [{"token": token, "logprob": log(chance)} for token, chance in chances.items()]

    def __call__(self, body: Mapping[str, Any]) -> dict[str, Any]:
        reply = super().__call__(body)
        reply["choices"][0]["logprobs"] = {"content": [{"token": "NO", "logprob": 0.0, "top_logprobs": self.top}]}
        return reply


def test_the_first_words_chances_against_a_threshold() -> None:
    model = Telling({"YES": 0.2, " Y": 0.1, "NO": 0.6, "Maybe": 0.1})
    assert Llm(model).odds("x") == pytest.approx(log(0.5))
    assert Llm(model, threshold=-1.0)("x") == [(0, 1)]
    assert Llm(model, threshold=0.0)("x") == []


@pytest.mark.parametrize(("chances", "odds"), [({"YES": 1.0}, inf), ({"NO": 1.0}, -inf), ({"Well": 1.0}, -inf)])
def test_one_sided_chances(chances: dict[str, float], odds: float) -> None:
    assert Llm(Telling(chances)).odds("x") == odds


def test_a_model_that_tells_no_chances_is_named() -> None:
    with pytest.raises(ModelError, match="'scripted' tells no probabilities"):
        Llm(Scripted(["YES"]), threshold=0.0)("x")
