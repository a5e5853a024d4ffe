"""Dates that a question names, and those that a session begins with."""

from __future__ import annotations

import pytest

from forgetless.policies.relevance.dates import Date, date, heading


def day(years: set[int], months: set[int], days: set[int]) -> Date:
    return Date(frozenset(years), frozenset(months), frozenset(days))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1:56 pm on 8 May, 2023", day({2023}, {5}, {8})),
        ("2023/05/30 (Tue) 21:48", day({2023}, {5}, {30})),
        ("2023-12-01", day({2023}, {12}, {1})),
        ("What did she do in August 2022?", day({2022}, {8}, set())),
        ("on the 3rd of sept", day(set(), set(), {3})),
        ("on the 21st of Sep", day(set(), {9}, {21})),
        ("2024年3月5日", day({2024}, {3}, {5})),
        ("2024年", day({2024}, set(), set())),
        ("you may ask Maya", Date()),
        ("12 or 45 of them", day(set(), set(), {12})),
        ("", Date()),
    ],
)
def test_a_date_is_found(text: str, found: Date) -> None:
    assert date(text) == found


def test_a_session_is_headed_by_its_date() -> None:
    assert heading("[1:56 pm on 8 May, 2023]\nAnn: hi") == day({2023}, {5}, {8})
    assert heading("Ann: [8 May] hi") is None
    assert heading("[no digits] hi") is None
    assert heading("[1, 2, 3]") is None
