from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetless.replies.overflow import Overflow, overflow


def wordings(*, too_long: bool) -> list[Any]:
    """What providers say, as their users have reported it; with the limit and the tokens that are to be found in it."""
    lines = (Path(__file__).parent / "overflow.jsonl").read_text().splitlines()
    found = [said for said in map(json.loads, lines) if said["too_long"] is too_long]
    return [pytest.param(said, id=said["name"]) for said in found]


@pytest.mark.parametrize("said", wordings(too_long=True))
def test_errors_of_requests_that_are_too_long(said: dict[str, Any]) -> None:
    status, body, expected = said["status"], said["body"], Overflow(said["limit"], said["tokens"])
    text = json.dumps(body)
    assert overflow(status, body) == overflow(status, text) == overflow(status, text.encode()) == expected


@pytest.mark.parametrize("said", wordings(too_long=False))
def test_errors_that_read_alike(said: dict[str, Any]) -> None:
    assert overflow(said["status"], said["body"]) is None


def test_a_limit_a_minute_that_names_the_context_is_one() -> None:
    told = {"error": "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens."}
    assert overflow(429, told) == Overflow(8192, 9000)


def test_numbers_may_have_commas() -> None:
    told = {"error": "This model's maximum context length is 131,072 tokens. However, you requested 140,000 tokens."}
    assert overflow(400, told) == Overflow(131072, 140000)


nodes = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary()),
    lambda inner: st.one_of(
        st.lists(inner), st.dictionaries(st.sampled_from(["error", "message", "n_ctx", "metadata", "detail"]), inner)
    ),
)


@given(st.integers(200, 599), nodes)
def test_no_body_makes_it_fail(status: int, body: Any) -> None:
    found = overflow(status, body)
    assert found is None or isinstance(found, Overflow)


def test_bytes_that_are_no_text_tell_nothing() -> None:
    assert overflow(500, b"\xff\xfe") is None


def test_no_text_takes_long() -> None:
    start = time.process_time()
    for text in ("exceed ", "prompt tokens ", "9", "9,", "is too large: 9. ", "total of 9 ", "context "):
        overflow(400, {"error": "maximum context length is " + text * 50_000})
    assert time.process_time() - start < 2
