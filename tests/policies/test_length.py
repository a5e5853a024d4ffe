"""Length: the longest units go in first, however well short ones would fill the budget."""

from __future__ import annotations

from forgetless import compact
from forgetless.datasets.logs import units_of
from forgetless.policies.length import Length


def test_the_longest_stay_and_not_many_short_ones_of_the_same_length() -> None:
    messages = [{"role": "user", "content": "Begin."}]
    messages += [{"role": "assistant", "content": "word " * many} for many in (10, 10, 40, 10, 10, 30)]
    messages += [{"role": "user", "content": "End."}]
    costs = [4 + len(message["content"]) for message in messages]
    done = compact(messages, budget=costs[0] + costs[3] + costs[6] + costs[7], policy="length", counter=len)
    assert [entry.unit for entry in done.ledger if entry.form == "raw"] == [0, 3, 6, 7]


def test_longer_is_worth_more_by_the_token() -> None:
    units = units_of([{"role": "user", "content": "a b " * many} for many in (1, 2, 50)])
    short, longer, longest = (score / unit.tokens for score, unit in zip(Length()(units), units, strict=True))
    assert short < longer < longest
