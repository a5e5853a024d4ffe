"""Errors that the proxy itself answers with, in the shape that each dialect's clients understand."""

from __future__ import annotations

from typing import Any

__all__ = ["error_body"]

_ANTHROPIC = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def error_body(dialect: str, status: int, kind: str, message: str) -> dict[str, Any]:
    """The body of an error.

    Args:
        dialect: `anthropic`, or one of OpenAI's.
        status: of the HTTP answer; clients choose their exception by it.
        kind: what went wrong, in a word that programs can tell it by: `budget_exceeded`, `upstream_timeout`.
        message: for people.
    """
    if dialect == "anthropic":
        told = _ANTHROPIC.get(status, "api_error" if status >= 500 else "invalid_request_error")
        return {"type": "error", "error": {"type": told, "message": message, "details": {"error_code": kind}}}
    told = "server_error" if status >= 500 else "invalid_request_error"
    return {"error": {"message": message, "type": told, "param": None, "code": kind}}
