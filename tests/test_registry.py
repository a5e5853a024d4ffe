"""Names: every policy loads by its own, and a wrong name says what was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from forgetless import ConfigError, compact, load_policy
from forgetless.benchmarks.stand_ins import STAND_INS
from forgetless.registry import MODELS, load_dialect, policy_names
from forgetless.tokens import Counter


def test_every_named_policy_loads_and_says_whether_it_is_lazy() -> None:
    assert {"full", "recent", "fifo", "masking", "bm25"} <= set(policy_names())
    for name in policy_names():
        assert isinstance(load_policy(name).lazy, bool)


def test_policies_that_call_a_model_are_named_apart() -> None:
    assert set(policy_names(models=True)) - set(policy_names()) == MODELS
    assert set(STAND_INS) == MODELS
    for name, options in STAND_INS.items():
        assert isinstance(load_policy(name, **options).lazy, bool)


@pytest.mark.parametrize(
    ("attempt", "hint"),
    [
        (lambda: load_policy("bm26"), "did you mean 'bm25'"),
        (lambda: load_policy("zzz"), "known: acon, bm25"),
        (lambda: load_policy("acom"), "did you mean 'acon'"),
        (lambda: load_policy("recent", turn=3), "did you mean 'turns'"),
        (lambda: load_policy("full", turns=3), "known: none"),
        (lambda: load_dialect("anthropics"), "did you mean 'anthropic'"),
        (lambda: compact([], budget=1, policy="fiffo"), "did you mean 'fifo'"),
    ],
)
def test_a_wrong_name_says_what_was_meant(attempt: object, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        attempt()  # type: ignore[operator]


def test_a_policy_made_before_takes_no_options() -> None:
    policy = load_policy("recent", turns=2)
    assert load_policy(policy) is policy
    with pytest.raises(ConfigError, match="'turns': options go with a policy's name"):
        compact([], budget=1, policy=policy, turns=3)


def test_an_installed_package_offers_policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(
        "class Mine:\n    lazy = True\n    def __init__(self, size=3): self.size = size\n"
    )
    info = tmp_path / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[forgetless.policies]\nmine = mine:Mine\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert "mine" in policy_names()
    assert load_policy("mine", size=5).size == 5


def test_the_counter_reaches_only_policies_that_count() -> None:
    counter = Counter(len)
    assert load_policy("masking", counter=counter).counter is counter
    load_policy("fifo", counter=counter)
