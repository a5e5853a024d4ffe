from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from forgetless.replies.faults import error_body
from forgetless.replies.readers import reader

STATUSES = [
    (400, "budget_exceeded"),
    (413, "body_too_large"),
    (429, "too_many_requests"),
    (502, "upstream_unreachable"),
    (504, "upstream_timeout"),
]
OPENAI = {400: openai.BadRequestError, 413: openai.APIStatusError, 429: openai.RateLimitError}
ANTHROPIC = {
    400: (anthropic.BadRequestError, "invalid_request_error"),
    413: (anthropic.RequestTooLargeError, "request_too_large"),
    429: (anthropic.RateLimitError, "rate_limit_error"),
    502: (anthropic.InternalServerError, "api_error"),
    504: (anthropic.DeadlineExceededError, "timeout_error"),
}


@pytest.fixture(scope="module")
def clients(provider: Any) -> Iterator[tuple[openai.OpenAI, anthropic.Anthropic]]:
    with (
        openai.OpenAI(base_url=provider.url, api_key="key", max_retries=0) as one,
        anthropic.Anthropic(base_url=provider.url, api_key="key", max_retries=0) as other,
    ):
        yield one, other


@pytest.mark.parametrize(("status", "kind"), STATUSES)
def test_openai_raises_what_it_should(provider: Any, clients: Any, status: int, kind: str) -> None:
    calls = {
        "chat": lambda: clients[0].chat.completions.create(model="m", messages=[]),
        "responses": lambda: clients[0].responses.create(model="m", input="hi"),
    }
    for dialect, call in calls.items():
        provider.answers(json.dumps(error_body(dialect, status, kind, "It is so.")).encode(), status)
        with pytest.raises(OPENAI.get(status, openai.InternalServerError), match="It is so") as raised:
            call()
        error = raised.value
        assert (error.status_code, error.code, error.param) == (status, kind, None)
        assert error.type == ("server_error" if status >= 500 else "invalid_request_error")


@pytest.mark.parametrize(("status", "kind"), STATUSES)
def test_anthropic_raises_what_it_should(provider: Any, clients: Any, status: int, kind: str) -> None:
    expected, told = ANTHROPIC[status]
    provider.answers(json.dumps(error_body("anthropic", status, kind, "It is so.")).encode(), status)
    with pytest.raises(expected, match="It is so") as raised:
        clients[1].messages.create(model="m", messages=[], max_tokens=9)
    error = raised.value
    assert (error.status_code, error.api_message, error.type, error.error_code) == (status, "It is so.", told, kind)


@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])
def test_our_readers_read_our_errors(dialect: str) -> None:
    read = reader(dialect)
    read.body(error_body(dialect, 502, "upstream_unreachable", "It is so."))
    done = read.done()
    assert done.messages == ()
    assert done.error is not None
    assert done.error["message"] == "It is so."
