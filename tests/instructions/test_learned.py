"""The recogniser `learned`: what it finds, that its weights are checked, and that it is quick and steady."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from time import process_time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forgetless.errors import ConfigError
from forgetless.instructions.features import PLACES
from forgetless.instructions.learned import Learned, RecogniserWeights
from forgetless.instructions.lexicon import FORMS
from forgetless.registry import load_recogniser

FIND = Learned()


@pytest.mark.parametrize(
    "text",
    [
        "From now on answer in French.",
        "Bitte antworte ab jetzt immer in Stichpunkten.",
        "A partir de ahora respóndeme siempre en inglés.",
        "Désormais, réponds toujours en deux phrases.",
        "以后每次回答都用中文。",
        "今後の返事はすべて英語でお願いします。",
    ],
)
def test_a_plain_instruction_is_found(text: str) -> None:
    assert FIND(text) == [(0, len(text))]


@pytest.mark.parametrize(
    "text",
    ["", "  \n", "What is the capital of Peru?", "Translate this into Spanish: good morning.", "为什么天是蓝的？"],
)
def test_a_plain_question_or_task_is_not(text: str) -> None:
    assert FIND(text) == []


def test_of_a_mixed_message_the_sentence() -> None:
    text = "What is a fjord? From now on answer in French. Thanks!"
    assert [text[start:end] for start, end in FIND(text)] == ["From now on answer in French."]


def test_it_is_the_one_that_ships() -> None:
    assert load_recogniser("learned").weights == FIND.weights
    assert len(files("forgetless.instructions").joinpath("weights.json").read_bytes()) <= 300_000


@given(st.text(max_size=200))
def test_spans_are_sentences_in_order(text: str) -> None:
    spans = FIND(text)
    assert spans == sorted(spans)
    assert all(0 <= start < end <= len(text) and text[start:end].strip() for start, end in spans)
    assert bool(spans) == (FIND.odds(text) > FIND.weights.threshold)


def test_a_message_has_the_odds_of_its_sentences_together() -> None:
    text = "Never apologise. Answer in French, always."
    from forgetless.instructions.features import look

    each = FIND.sentences(look(text, FIND.known))
    assert FIND.odds(text) == pytest.approx(np.log(np.exp(each).sum()))


SAID = st.sampled_from(
    [
        "From now on",
        "answer",
        "always",
        "never",
        "in French",
        "please",
        "forget",
        "the rule",
        "what",
        "is",
        "why?",
        "he said:",
        "says: «",
        "»",
        '"',
        "'",
        "don't",
        "l'eau",
        "以后",
        "每次",
        "回答",
        "。",
        "今後の返事は",
        "お願いします",
        "ab jetzt",
        "immer",
        "siempre",
        "désormais",
        ". ",
        "! ",
        "?",
        "\n",
        ": ",
        "( ",
        "code()",
        "# ",
        "{",
        "}",
        "``` ",
        "x",
        "thanks",
        "the next",
        "three",
        "replies",
        "you are",
        "a pirate",
        "garden",
        "harbour",
        "2",
        ",",
        "…",
    ]
)


NUMBER = {name: at for at, name in enumerate(FIND.known.names)} | dict.fromkeys("^$", len(FIND.known.names))
PAIRS = np.zeros((len(FIND.known.names),) * 2)
for names, weight in FIND.weights.pairs.items():
    PAIRS[tuple(NUMBER[name] for name in names.split())] = weight
STEPS = {
    NUMBER[one] * (len(FIND.known.names) + 1) + NUMBER[other]: weight
    for (one, other), weight in ((names.split(), weight) for names, weight in FIND.weights.steps.items())
}


def plainly(text: str) -> tuple[list[tuple[int, int]], np.ndarray]:
    """What the recogniser finds, and the odds of sentences, by the formula over whole arrays."""
    from forgetless.instructions.features import look

    seen, weights, names = look(text, FIND.known), FIND.weights, FIND.known.names
    here = seen.places[0]
    odds = np.full(len(seen.spans), weights.bias)
    for place, values in zip(PLACES, seen.places, strict=True):
        odds += values @ np.array([weights.places[place].get(name, 0.0) for name in names])
    odds += ((here @ PAIRS) * here).sum(axis=1)
    odds += [sum(STEPS.get(step, 0.0) for step in taken) for taken in seen.steps]
    odds = np.where(here[:, : -len(FORMS)].any(axis=1), odds, -np.inf)
    if not len(odds) or np.logaddexp.reduce(odds) <= weights.threshold:
        return [], odds
    least = min(weights.threshold, odds.max())
    return [span for span, odd in zip(seen.spans, odds, strict=True) if odd >= least], odds


@settings(max_examples=60)
@given(st.lists(SAID, max_size=40).map(" ".join) | st.text(max_size=80))
def test_the_quick_way_finds_what_the_formula_does(text: str) -> None:
    from forgetless.instructions.features import look

    found, odds = plainly(text)
    assert FIND.sentences(look(text, FIND.known)) == pytest.approx(odds, abs=1e-9)
    assert FIND(text) == found


def test_a_file_comes_back(tmp_path: Path) -> None:
    (tmp_path / "w.json").write_text(FIND.weights.dump(), encoding="utf-8")
    again = RecogniserWeights.load(tmp_path / "w.json")
    assert again == FIND.weights
    assert again.version == FIND.weights.version


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bias": 9.0}, "checksum"),
        ({"format": "other"}, "no weights for the recogniser"),
        ({"features_version": 0}, "version 0 of the features"),
    ],
)
def test_a_file_that_does_not_match_is_refused(change: dict[str, object], message: str) -> None:
    content = {**json.loads(FIND.weights.dump()), **change}
    with pytest.raises(ConfigError, match=message):
        RecogniserWeights.loads(json.dumps(content))


def test_no_file_and_no_json_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        RecogniserWeights.load(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="cannot read"):
        RecogniserWeights.loads("{")


def test_weights_of_another_lexicon_are_refused() -> None:
    places = {place: {} for place in PLACES} | {"here": {"no such concept": 1.0}}
    with pytest.raises(ConfigError, match="do not fit the lexicon"):
        Learned(replace(FIND.weights, places=places))
    with pytest.raises(ConfigError, match="not finite"):
        Learned(replace(FIND.weights, bias=float("nan")))


def test_a_long_message_takes_linear_time() -> None:
    def seconds(times: int) -> float:
        text = "I went to the market and bought some apples for my sister. " * times
        best = float("inf")
        for _ in range(3):
            start = process_time()
            FIND(text)
            best = min(best, process_time() - start)
        return best

    assert seconds(400) < 20 * seconds(100)
