"""Fitting the recogniser: it learns what separates, marks count, folds are honest, and the bytes are the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import labelled_messages
from forgetless.errors import ConfigError
from forgetless.instructions.features import look
from forgetless.instructions.learned import Learned
from forgetless.training.recognizer import Example, cross_fit, examples, fit, ship, table, threshold


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> list[Example]:
    return examples([labelled_messages.write(tmp_path_factory.mktemp("data") / "made.jsonl")])


def test_it_learns_which_messages_and_which_sentences(data: list[Example]) -> None:
    find = Learned(ship(table(data), about="made"))
    for example in data:
        assert bool(find(example.text)) is example.label, example.text
    text = "I like glass a lot. From now on write prose only."
    assert [text[start:end] for start, end in find(text)] == ["From now on write prose only."]


def test_what_is_served_is_what_was_fitted(data: list[Example]) -> None:
    made = table(data)
    found, weights = fit(made), ship(made, about="made")
    find = Learned(weights)
    fitted = found.sentences(made)
    served = np.concatenate([find.sentences(look(example.text, find.known)) for example in data])
    assert served == pytest.approx(fitted, abs=0.1)  # weights are rounded


def test_the_same_data_give_the_same_bytes(data: list[Example]) -> None:
    assert ship(table(data), about="made").dump() == ship(table(data), about="made").dump()


def test_messages_that_are_left_out_have_no_say() -> None:
    """Labels drawn at random can be fitted, and can't be foretold."""
    rng = np.random.default_rng(0)
    words = ("always", "never", "French", "why", "you", "team", "list", "please", "story", "yesterday", "if", "now")
    data = [Example(" ".join(rng.choice(words, 4)), bool(rng.random() < 0.5)) for _ in range(300)]
    made = table(data)
    odds = cross_fit(made)
    assert 0.4 < ((odds > 0) == made.labels).mean() < 0.6
    assert ((fit(made).messages(made) > 0) == made.labels).mean() > 0.7


def test_at_the_threshold_both_errors_are_as_frequent() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(1_000) < 200
    odds = rng.normal(size=(2, 1_000)) + 2 * labels
    above = odds > threshold(odds, labels)
    assert (~above)[:, labels].mean() == pytest.approx(above[:, ~labels].mean(), abs=0.01)
    assert threshold(odds - 3, labels) == pytest.approx(threshold(odds, labels) - 3)


def test_a_part_of_a_table_is_the_table_of_the_part(data: list[Example]) -> None:
    part, alone = table(data).of([3, 4, 40]), table([data[3], data[4], data[40]])
    assert (part.labels == alone.labels).all()
    assert (part.sentences == alone.sentences).all()
    assert (part.bag == alone.bag).all()
    assert sorted(zip(part.rows, part.columns, strict=True)) == sorted(zip(alone.rows, alone.columns, strict=True))


def test_marks_tell_the_sentence_and_the_longest_stands_in_for_them() -> None:
    text = "Hello. Be brief, always, in all that you write."
    start = text.index("Be")
    assert table([Example(text, True, ((start, start + 8),))]).sentences.tolist() == [False, True]
    assert table([Example(text, True, ((0, 6),))]).sentences.tolist() == [True, False]
    assert table([Example(text, True)]).sentences.tolist() == [False, True]
    assert table([Example(" ", True)]).labels.tolist() == []


def test_too_little_is_refused(data: list[Example]) -> None:
    with pytest.raises(ConfigError, match="too little to learn from: 0 of 30 messages"):
        fit(table([example for example in data if not example.label]))


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        {"text": "x"},
        {"text": 1, "label": True},
        {"text": "x", "label": 1},
        {"text": "x", "label": True, "instruction": 3},
    ],
)
def test_faulty_lines_are_named(line: Any, tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text('{"text": "x", "label": false}\n\n' + (line if isinstance(line, str) else json.dumps(line)))
    with pytest.raises(ConfigError, match=r"'bad\.jsonl', line 3"):
        examples([file])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        examples([tmp_path / "none.jsonl"])


def test_files_of_mt_eval_and_ifeval_are_read_and_texts_once(tmp_path: Path) -> None:
    turns = [{"user": "Always rhyme.", "id": "instruction"}, {"user": "Why?", "id": "1"}, {"user": "Why?", "id": "2"}]
    (tmp_path / "talk.jsonl").write_text(json.dumps({"conv": turns}))
    (tmp_path / "prompts.jsonl").write_text(json.dumps({"prompt": "Write a haiku.", "key": 1}))
    found = examples([tmp_path / "talk.jsonl", tmp_path / "prompts.jsonl"])
    assert found == [Example("Always rhyme.", True), Example("Why?", False), Example("Write a haiku.", False)]
