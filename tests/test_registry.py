"""Names: every policy loads by its own, and a wrong name says what was meant."""

from __future__ import annotations

import pytest

from forgetless import ConfigError, compact, load_policy
from forgetless.registry import load_dialect, policy_names
from forgetless.tokens import Counter


def test_every_named_policy_loads_and_says_whether_it_is_lazy() -> None:
    assert {"full", "recent", "fifo", "masking", "bm25"} <= set(policy_names())
    for name in policy_names():
        assert isinstance(load_policy(name).lazy, bool)


@pytest.mark.parametrize(
    ("attempt", "hint"),
    [
        (lambda: load_policy("bm26"), "did you mean 'bm25'"),
        (lambda: load_policy("zzz"), "known: bm25"),
        (lambda: load_policy("recent", turn=3), "did you mean 'turns'"),
        (lambda: load_policy("full", turns=3), "known: none"),
        (lambda: load_dialect("anthropics"), "did you mean 'anthropic'"),
        (lambda: compact([], budget=1, policy="fiffo"), "did you mean 'fifo'"),
    ],
)
def test_a_wrong_name_says_what_was_meant(attempt: object, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        attempt()  # type: ignore[operator]


def test_the_counter_reaches_only_policies_that_count() -> None:
    counter = Counter(len)
    assert load_policy("masking", counter=counter).counter is counter
    load_policy("fifo", counter=counter)
