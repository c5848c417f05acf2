"""Errors of Gemini, in bodies and in the middle of a stream.

``status`` (Google's own word) is looked at first, then ``code``; the details say how long to wait and whether it helps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from turnstate_states.errors import ModelError, ModelErrorKind

from ..wire.http_errors import failure_text, kind_of_status, one_line, plain_text, retry_after, retryable_status
from ..wire.json_values import is_dict, is_list, read_json

__all__ = ["KEY_HINT", "response_error", "stream_error"]

KEY_HINT = "pass api_key or set GEMINI_API_KEY"

_STATUSES: dict[str, tuple[ModelErrorKind, bool]] = {
    "INVALID_ARGUMENT": ("invalid-request", False),
    "FAILED_PRECONDITION": ("permission", False),
    "OUT_OF_RANGE": ("invalid-request", False),
    "UNIMPLEMENTED": ("invalid-request", False),
    "ALREADY_EXISTS": ("invalid-request", False),
    "UNAUTHENTICATED": ("authentication", False),
    "PERMISSION_DENIED": ("permission", False),
    "NOT_FOUND": ("not-found", False),
    "RESOURCE_EXHAUSTED": ("rate-limit", True),
    "UNAVAILABLE": ("overloaded", True),
    "DEADLINE_EXCEEDED": ("timeout", True),
    "INTERNAL": ("server", True),
    "UNKNOWN": ("server", True),
    "ABORTED": ("server", True),
    "CANCELLED": ("server", True),
    "DATA_LOSS": ("server", True),
}
"""What Google's status words mean, and whether the same request may succeed later."""

_TOO_LONG = re.compile(
    r"(input|prompt|context).{0,40}(token count|length|window|size).*(exceed|too (long|large)|maximum)"
    r"|(exceed|maximum).{0,60}(context (length|window)|input tokens|tokens allowed)"
    r"|(prompt|input|context) is too (long|large)",
    re.IGNORECASE | re.DOTALL,
)
_DELAY = re.compile(r"\s*(\d+(?:\.\d+)?)s\s*")
_WAIT = re.compile(r"retry in (\d+(?:\.\d+)?)s", re.IGNORECASE)


@attrs.frozen
class _Details:
    reasons: frozenset[str] = frozenset()
    daily: bool = False
    delay: float | None = None


def stream_error(error: object) -> ModelError:
    """An error that came as data: inside a stream, or with status 200."""
    fields = _fields(error)
    return _error(fields, None, {}, one_line(_message(fields)) or "the server sent an error without a text")


def response_error(
    status: int, headers: Mapping[str, str], body: bytes, url: str, *, with_key: bool = True
) -> ModelError:
    """An answer whose status says that it failed.

    Args:
        status: the HTTP status.
        headers: the response's, by case-insensitive or lower-case names.
        body: what came of the body.
        url: where the request went, fit to be shown.
        with_key: whether an API key was sent.
    """
    fields = _fields(read_json(body))
    text = failure_text(status, url, one_line(_message(fields) or plain_text(body, headers)))
    error = _error(fields, status, headers, text)
    if not with_key and error.kind in ("authentication", "permission"):
        error.args = (f"{text}; {KEY_HINT}",)
    return error


def _error(fields: Mapping[str, Any], status: int | None, headers: Mapping[str, str], text: str) -> ModelError:
    details = _details(fields)
    kind, retryable = _classify(fields, status, details)
    shown = status if status is not None else _code(fields)
    return ModelError(text, kind=kind, retryable=retryable, status=shown, retry_after=_wait(fields, headers, details))


def _classify(fields: Mapping[str, Any], status: int | None, details: _Details) -> tuple[ModelErrorKind, bool]:
    if "API_KEY_INVALID" in details.reasons or "api key not valid" in _message(fields).lower():
        # Google answers a wrong key with 400 INVALID_ARGUMENT.
        return "authentication", False
    word, code = fields.get("status"), status if status is not None else _code(fields)
    known = _STATUSES.get(word.upper()) if isinstance(word, str) else None
    if known is None:
        known = (kind_of_status(code), retryable_status(code)) if code is not None else ("server", True)
    kind, retryable = known
    if kind in ("invalid-request", "server") and _TOO_LONG.search(_message(fields)[:5000]):
        return "context-overflow", False
    return kind, retryable and not details.daily


def _details(fields: Mapping[str, Any]) -> _Details:
    found, reasons, delay, daily = fields.get("details"), set[str](), None, False
    for detail in found if is_list(found) else []:
        if not is_dict(detail):
            continue
        if isinstance(reason := detail.get("reason"), str):
            reasons.add(reason)
        if isinstance(wait := detail.get("retryDelay"), str) and (match := _DELAY.fullmatch(wait)):
            delay = float(match[1])
        # A quota of the day comes back tomorrow, whatever delay is told with it.
        daily = daily or any("PerDay" in quota for quota in _quotas(detail))
    return _Details(frozenset(reasons), daily, delay)


def _quotas(detail: Mapping[str, Any]) -> Iterator[str]:
    violations = detail.get("violations")
    for violation in violations if is_list(violations) else []:
        if is_dict(violation) and isinstance(quota := violation.get("quotaId"), str):
            yield quota


def _wait(fields: Mapping[str, Any], headers: Mapping[str, str], details: _Details) -> float | None:
    """The longest of the waits that are told: the details' is often rounded down."""
    told = _WAIT.search(_message(fields)[:2000])
    waits = [retry_after(headers), details.delay, float(told[1]) if told else None]
    return max((wait for wait in waits if wait is not None and 0 < wait < float("inf")), default=None)


def _code(fields: Mapping[str, Any]) -> int | None:
    code = fields.get("code")
    if isinstance(code, str) and code.isascii() and code.isdigit():
        code = int(code[:4])
    return code if isinstance(code, int) and not isinstance(code, bool) and 400 <= code < 600 else None


def _fields(value: object) -> Mapping[str, Any]:
    """The object with ``code``, ``message`` and ``status``, however deep it was wrapped."""
    for _ in range(4):
        if is_list(value) and value:
            value = value[0]
            continue
        if not is_dict(value):
            break
        inner = value.get("error")
        if isinstance(inner, str) and inner:
            return {**value, "message": inner}
        if is_dict(inner) or is_list(inner):
            value = inner
            continue
        message = value.get("message")
        wrapped = read_json(message) if isinstance(message, str) and message.lstrip()[:1] in ("{", "[") else None
        if not (is_dict(wrapped) or is_list(wrapped)):
            return value
        value = wrapped
    return {"message": value} if isinstance(value, str) else {}


def _message(fields: Mapping[str, Any]) -> str:
    for name in ("message", "error_description", "detail"):
        if isinstance(text := fields.get(name), str) and text.strip():
            return text
    return ""
