"""Weights: the file is small and exact, and one that does not match is refused with what to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forgetless.datasets.logs import units_of
from forgetless.errors import ConfigError
from forgetless.policies.lre.features import FEATURES, Features
from forgetless.policies.lre.scorer import AGENT, CONVERSATION, Lre, scorer, shipped
from forgetless.policies.lre.weights import Weight, Weights

WEIGHTS = Weights({"novel": Weight(1.5, 0.5, 2.0), "questions": Weight(0.1, 0.3, -1.0)}, -0.25, "best", {"units": 9})
TALK = units_of(
    [
        {"role": "user", "content": "My order number is 7429, delivered to Lisbon on 3 May."},
        {"role": "assistant", "content": "Thanks!"},
        {"role": "user", "content": "What now?"},
    ]
)


def test_a_file_comes_back_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "w.json"
    file.write_text(WEIGHTS.dump())
    assert Weights.load(file) == WEIGHTS
    assert Weights.load(file).dump() == WEIGHTS.dump()
    assert json.loads(WEIGHTS.dump())["checksum"] == WEIGHTS.version


def edited(change: Callable[[dict[str, Any]], object], *, sealed: bool = True) -> str:
    """The file after a change; `sealed` gives it the checksum of what is in it now."""
    from forgetless.sealed import checksum

    content = json.loads(WEIGHTS.dump())
    del content["checksum"]
    before = checksum(content)
    change(content)
    return json.dumps({**content, "checksum": checksum(content) if sealed else before})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (edited(lambda c: c.update(bias=0.5), sealed=False), "checksum"),
        (edited(lambda c: c["features"]["novel"].__setitem__(2, 9.0), sealed=False), "checksum"),
        (edited(lambda c: c.update(features_version=99)), "version 99"),
        (edited(lambda c: c["features"].update(charm=[0, 1, 1])), "charm"),
        (edited(lambda c: c["features"].clear()), "no feature"),
        (edited(lambda c: c["features"].update(holders=[0, 1, 1])), "units and of identifiers"),
        (edited(lambda c: c.update(bias=float("nan"))), "not finite"),
        (edited(lambda c: c["features"]["novel"].__setitem__(0, float("inf"))), "not finite"),
        (edited(lambda c: c["features"]["novel"].__setitem__(1, 0)), "scale"),
        (edited(lambda c: c["features"]["novel"].pop()), "TypeError"),
        (edited(lambda c: c.pop("label")), "label"),
        (edited(lambda c: c.update(format="other")), "no weights"),
        ("[]", "no weights"),
        ("{", "cannot read"),
    ],
)
def test_a_file_that_does_not_match_is_refused(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "w.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=told) as error:
        Weights.load(file)
    assert repr(str(file)) in str(error.value)
    assert "train" in str(error.value) or "cannot read" in str(error.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        scorer(tmp_path / "none.json")


@pytest.mark.parametrize(("name", "area"), [(AGENT, 0.6), (CONVERSATION, 0.9)])
def test_what_ships_loads_is_small_and_names_its_training(name: str, area: float) -> None:
    weights = shipped(name)
    assert len(weights.dump()) <= 2_048
    assert weights.training["auc"] > area
    assert "locomo" not in weights.training["data"].lower()


def test_a_score_is_the_logistic_of_the_standardised_features() -> None:
    rows = Features()(TALK)
    novel, questions = rows[:, FEATURES.index("novel")], rows[:, FEATURES.index("questions")]
    odds = -0.25 + 2.0 * (novel - 1.5) / 0.5 - 1.0 * (questions - 0.1) / 0.3
    assert np.allclose(Lre(WEIGHTS)(TALK), 1 / (1 + np.exp(-odds)))


def test_facts_score_above_thanks_and_questions() -> None:
    fact, thanks, question = scorer()(TALK)
    assert fact > thanks
    assert fact > question


def step(number: int, command: str, shown: str) -> list[dict[str, Any]]:
    call = {
        "id": f"c{number}",
        "type": "function",
        "function": {"name": "sh", "arguments": json.dumps({"do": command})},
    }
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": shown},
    ]


def test_a_history_that_is_mostly_steps_is_scored_by_the_agents_weights() -> None:
    steps = units_of(
        [{"role": "user", "content": "list"}, *step(1, "ls", "/srv/a.txt"), *step(2, "ls b", "/srv/b.txt")]
    )
    assert list(scorer()(steps)) == list(scorer(AGENT)(steps))
    assert list(scorer()(steps[:2])) == scorer(CONVERSATION)(steps[:2])
    assert scorer()(TALK) == scorer(CONVERSATION)(TALK)


def test_a_step_is_worth_what_it_carries() -> None:
    steps = units_of(
        [
            {"role": "user", "content": "deploy it"},
            *step(1, "ls", "job_9f3c /srv/app/settings.toml"),
            *step(2, "date", "it is late"),
            *step(3, "cat job_9f3c", "done"),
        ]
    )
    user, brought, empty, again = scorer(AGENT)(steps)
    assert user == 1.0  # by itself: it carries nothing
    assert brought > again > empty == 0.0


def test_both_kinds_name_their_version() -> None:
    assert scorer(AGENT).version == shipped(AGENT).version
    assert shipped(AGENT).version in scorer().version
    assert shipped(CONVERSATION).version in scorer().version


def test_words_name_what_counts_most_first() -> None:
    assert WEIGHTS.words() == ["novel +2.00", "questions -1.00"]
