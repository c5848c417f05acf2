"""What goes wrong over HTTP, as :class:`~turnstate.ModelError`: statuses, Retry-After, broken connections."""

from __future__ import annotations

import math
import re
import ssl
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from socket import gaierror

from turnstate_states.errors import ModelError, ModelErrorKind

from .redaction import chain_of, foreign

__all__ = [
    "failure_text",
    "kind_of_status",
    "one_line",
    "plain_text",
    "retry_after",
    "retryable_status",
    "should_retry",
    "transport_error",
]

_STATUS_KINDS: dict[int, ModelErrorKind] = {
    401: "authentication",
    402: "permission",
    403: "permission",
    404: "not-found",
    408: "timeout",
    409: "server",
    425: "server",
    429: "rate-limit",
    498: "overloaded",
    503: "overloaded",
    504: "timeout",
    522: "timeout",
    524: "timeout",
    529: "overloaded",
}
_RETRYABLE: frozenset[ModelErrorKind] = frozenset({"timeout", "rate-limit", "overloaded", "server"})
_NEVER_AGAIN = frozenset({501, 505})
_NUMBER = re.compile(r"\s*\d+(\.\d*)?\s*")
_LONGEST = 500


def kind_of_status(status: int) -> ModelErrorKind:
    """The kind of error that a status alone tells.

    >>> kind_of_status(529), kind_of_status(418), kind_of_status(500)
    ('overloaded', 'invalid-request', 'server')
    """
    if status in _STATUS_KINDS:
        return _STATUS_KINDS[status]
    if 400 <= status < 500:
        return "invalid-request"
    return "server" if status >= 500 else "other"


def retryable_status(status: int) -> bool:
    """Whether the same request may succeed later, judged by the status alone."""
    return status not in _NEVER_AGAIN and kind_of_status(status) in _RETRYABLE


def should_retry(headers: Mapping[str, str]) -> bool | None:
    """What the server itself says in ``x-should-retry``; None if it says nothing."""
    return {"true": True, "false": False}.get(headers.get("x-should-retry", "").strip().lower())


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Seconds that the server asks to wait: ``retry-after-ms``, or ``retry-after`` in seconds or as a date.

    A date is rounded up to whole seconds. What is not a positive number, or a date in the past, counts as absent.

    Args:
        headers: those of an error's response, names in lower case or case-insensitive.
        now: seconds since the epoch, if not the clock's.

    >>> retry_after({"retry-after": "1", "retry-after-ms": "0"}), retry_after({"retry-after": "-5"})
    (1.0, None)
    """
    milliseconds = _positive(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    return _positive(value) or _until(value, time.time() if now is None else now)


def _positive(text: str | None) -> float | None:
    if text is None or not text.isascii() or not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if 0 < value < math.inf else None


def _until(text: str | None, now: float) -> float | None:
    if not text:
        return None
    try:
        seconds = math.ceil(parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, TypeError, OverflowError, IndexError, OSError):
        return None
    return float(seconds) if seconds > 0 else None


def one_line(text: str) -> str:
    """A server's text as one line of bounded length that can be encoded and holds no secret."""
    line = " ".join(foreign(text, 4 * _LONGEST).split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."


def plain_text(body: bytes, headers: Mapping[str, str]) -> str:
    """What the body of an error says where it is no JSON: its text, or the title of a web page.

    >>> plain_text(b"<html><title>Bad gateway</title></html>", {}), plain_text(b"busy", {}), plain_text(b"{}", {})
    ('Bad gateway', 'busy', '')
    """
    text = foreign(body[:8000].decode("utf-8", "replace"), 2000).strip()
    if "html" in headers.get("content-type", "") or text.startswith("<"):
        found = re.search(r"<title[^>]*>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
        return found.group(1) if found else ""
    return "" if text.startswith(("{", "[")) else text


def failure_text(status: int, url: str, text: str) -> str:
    """What to tell of an answer whose status says that it failed: what the server said of it, or what the status means.

    >>> failure_text(404, "http://h/v1", ""), failure_text(500, "http://h/v1", "busy")
    ('http://h/v1 does not exist on the server (404); is base_url right?', 'busy (500)')
    """
    if 300 <= status < 400:
        return f"{url} redirects elsewhere ({status}); set base_url to the final address"
    if status in (404, 405) and not text:
        return f"{url} does not exist on the server ({status}); is base_url right?"
    return f"{text or f'{url} answered without a reason'} ({status})"


def transport_error(error: Exception, url: str, *, answering: bool) -> ModelError:
    """A broken exchange as a :class:`~turnstate.ModelError`.

    Args:
        error: what the HTTP library raised.
        url: where the request went, fit to be shown.
        answering: whether the answer's headers had come already.
    """
    import httpx

    if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError)):
        return _no_connection(error, url)
    if isinstance(error, httpx.TimeoutException):
        return ModelError(f"the exchange with {url} took too long", kind="timeout", retryable=True)
    if isinstance(error, httpx.RemoteProtocolError) and not _hung_up(error):
        return ModelError(f"the answer of {url} is not HTTP", kind="protocol", retryable=True)
    if isinstance(error, (httpx.LocalProtocolError, httpx.InvalidURL, httpx.UnsupportedProtocol, UnicodeError)):
        return ModelError(f"the request to {url} cannot be sent; check its URL and headers", kind="invalid-request")
    if isinstance(error, (httpx.TransportError, OSError)):
        when = "in the middle of the answer" if answering else "before an answer came"
        return ModelError(f"the connection to {url} broke {when}", kind="connection", retryable=True)
    return ModelError(f"the exchange with {url} failed ({type(error).__name__})", kind="other")


def _hung_up(error: Exception) -> bool:
    text = str(error)
    return "disconnected" in text or "peer closed" in text


def _no_connection(error: Exception, url: str) -> ModelError:
    import httpx

    causes = chain_of(error)
    if isinstance(error, httpx.ConnectTimeout) or any(isinstance(cause, TimeoutError) for cause in causes):
        return ModelError(f"cannot connect to {url} in time", kind="timeout", retryable=True)
    reason, retryable = "the connection failed", True
    for cause in causes:
        if isinstance(cause, ConnectionRefusedError):
            reason = "connection refused"
            break
        if isinstance(cause, gaierror):
            reason = "its host name is not known"
        elif isinstance(cause, ssl.SSLCertVerificationError):
            reason, retryable = "its certificate could not be verified", False
        elif isinstance(cause, ssl.SSLError):
            reason = "the TLS handshake failed"
    hint = "; is the server running?" if reason == "connection refused" else ""
    return ModelError(f"cannot connect to {url} ({reason}){hint}", kind="connection", retryable=retryable)
