"""LLMLingua-2: the words above the percentile stay as they were, structure is untouched, the rate fits the budget."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import checkpoints
from forgetless import BudgetError, ConfigError, compact, load_policy
from forgetless.benchmarks.stand_ins import classify
from forgetless.models.token_classifier import Word
from forgetless.policies.llmlingua2 import _compressed
from strategies import any_dialect, chat


def read(words: list[Word], text: str) -> list[str]:
    return [text[word.start : word.end] for word in words]


def test_the_percentile_is_the_authors() -> None:
    """numpy.percentile at 101 less the rate, each word weighing as many as it has tokens; what is above it stays."""
    text = "a b c d e f g h i j"
    words = [Word(2 * at, 2 * at + 1, 1, at / 10) for at in range(10)]
    assert _compressed(text, words, 30) == "h i j"
    assert _compressed(text, words, 50) == "f g h i j"
    heavy = [*words[:9], words[9]._replace(tokens=20)]
    assert _compressed(text, heavy, 50) == "j", "half of the tokens are its own, and none is above its own percentile"
    assert _compressed("", [], 30) == ""


@given(st.text("ab \n.x", max_size=60), st.integers(1, 99))
def test_what_stays_are_words_of_the_text_in_order_with_no_two_joined(text: str, percent: int) -> None:
    (words,) = classify([text])
    made = _compressed(text, words, percent)
    if not words:
        assert made == text
        return
    assert made.split() != []
    rest = iter(text.split())
    assert all(word in rest for word in made.split())


@given(st.text("ab \n.x", max_size=60))
def test_a_higher_rate_keeps_all_that_a_lower_one_keeps(text: str) -> None:
    (words,) = classify([text])
    kept = [_compressed(text, words, percent).split() for percent in range(1, 100, 7)]
    for less, more in pairwise(kept):
        rest = iter(more)
        assert all(word in rest for word in less)


def policy(messages: Any, share: float, **options: Any) -> Any:
    total = compact(messages, budget=10**9, policy="full").tokens
    try:
        return compact(messages, budget=max(1, int(total * share)), policy="llmlingua2", checkpoint=classify, **options)
    except BudgetError:
        return None


@given(any_dialect(), st.floats(0.2, 0.95))
def test_only_texts_change(conversation: tuple[str, Any], share: float) -> None:
    dialect, messages = conversation
    total = compact(messages, budget=10**9, policy="full", dialect=dialect).tokens
    try:
        done = compact(
            messages, budget=max(1, int(total * share)), policy="llmlingua2", dialect=dialect, checkpoint=classify
        )
    except BudgetError:
        return
    for entry in done.ledger:
        assert entry.form != "compressed" or (entry.reason == "llmlingua2" and not entry.pinned)
    calls = [call for message in messages for call in message.get("tool_calls") or ()]
    assert all(call in calls for message in done.messages for call in message.get("tool_calls") or ())


@given(chat(pending=False), st.floats(0.3, 0.9))
def test_units_go_whole_only_when_the_least_rate_is_too_much(messages: Any, share: float) -> None:
    done = policy(messages, share, rate=0.2)
    if done is None:
        return
    omitted = [entry.unit for entry in done.ledger if entry.form == "omitted"]
    freer = policy(messages, share, rate=0.02)
    assert len(omitted) >= len([entry for entry in freer.ledger if entry.form == "omitted"])
    rest = [entry.unit for entry in done.ledger if not entry.pinned and entry.form != "omitted"]
    assert not omitted or not rest or min(rest) > max(omitted), "the oldest go"


@pytest.mark.parametrize("rate", [0.001, 0.995])
def test_a_rate_near_an_end_is_one(rate: float) -> None:
    text = " ".join(f"word{at}" for at in range(100))
    messages = [{"role": "user", "content": text}, {"role": "assistant", "content": text}]
    messages += [{"role": "user", "content": "And?"}]
    done = policy(messages, 0.5, rate=rate)
    assert done.tokens <= done.budget
    assert done.messages[-1] == messages[-1]


def test_the_rate_is_as_high_as_the_budget_allows() -> None:
    text = " ".join(f"word{at}" for at in range(400))
    messages = [{"role": "user", "content": text}, {"role": "assistant", "content": text[::-1]}]
    messages += [{"role": "user", "content": "And?"}]
    for share in (0.4, 0.6, 0.8):
        done = policy(messages, share)
        assert done.tokens > 0.93 * done.budget
        assert [entry.form for entry in done.ledger] == ["compressed", "compressed", "raw"]


@pytest.mark.parametrize("make", [checkpoints.bert, checkpoints.xlm_roberta])
def test_a_checkpoint_in_the_real_layout(tmp_path: Path, make: checkpoints.Make) -> None:
    pytest.importorskip("tokenizers")
    folder = make(tmp_path, window=20, labels=2)
    messages = [
        {"role": "system", "content": "the harbour is closed. " * 4},
        {"role": "user", "content": "we met at the old mill near the harbour in 1987. " * 8},
        {"role": "assistant", "content": "ab-12/x stays the code of the mill, and k9 that of the harbour. " * 8},
        {"role": "user", "content": "what is the code"},
    ]
    total = compact(messages, budget=10**6, policy="full").tokens
    one, other = (load_policy("llmlingua2", checkpoint=folder) for _ in range(2))
    assert one.classifier is other.classifier, "all sessions of a process share the model"
    done = compact(messages, budget=total // 2, policy=one)
    assert [entry.form for entry in done.ledger] == ["raw", "compressed", "compressed", "raw"]
    assert done.messages[0] == messages[0]
    for made, source in zip(done.messages, messages, strict=True):
        assert set(made["content"].split()) <= {piece for w in source["content"].split() for piece in _parts(w)}


def _parts(word: str) -> set[str]:
    """Every piece of a word: what stays of it begins and ends where tokens do."""
    return {word[start:end] for start in range(len(word)) for end in range(start + 1, len(word) + 1)}


def test_what_is_missing_or_wrong_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"needs a checkpoint: give checkpoint=FOLDER"):
        load_policy("llmlingua2")
    with pytest.raises(ConfigError, match="name the folder of a checkpoint"):
        load_policy("llmlingua2", checkpoint=tmp_path)
    for rate in (0, 1, -0.5, "half"):
        with pytest.raises(ConfigError, match="rate must be a share"):
            load_policy("llmlingua2", checkpoint=classify, rate=rate)
