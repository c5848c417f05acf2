"""Errors that servers tell by a code or a type, in bodies and in the middle of a stream: OpenAI's, Anthropic's and those
of the many servers that speak their protocols.

The same cause gives the same kind whatever carries it: code and type are looked at first, then the wording for a
context that is too long, then the status.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from turnstate_states.errors import ModelError, ModelErrorKind

from .http_errors import (
    failure_text,
    kind_of_status,
    one_line,
    plain_text,
    retry_after,
    retryable_status,
    should_retry,
)
from .json_values import is_dict, is_list, read_json

__all__ = ["response_error", "stream_error"]

_WORDS: dict[ModelErrorKind, str] = {
    "context-overflow": "contextlengthexceeded exceedcontextsizeerror contextwindowexceeded contextwindowexceedederror "
    "toomanyprompttokens modelcontextwindowexceeded prompttoolong inputtoolong contextoverflow requesttoolarge",
    "rate-limit": "ratelimitexceeded ratelimiterror ratelimit ratelimitreached toomanyrequests toomanyrequestserror "
    "resourceexhausted ratelimitreachederror tokens requests",
    "overloaded": "serverisoverloaded serveroverloaded overloadederror overloaded serviceunavailableerror "
    "serviceunavailable engineoverloadederror engineoverloaded modeloverloaded modelisoverloaded unavailableerror "
    "unavailable slowdown capacityexceeded overcapacity insufficientsystemresource",
    "authentication": "invalidapikey incorrectapikey authenticationerror invalidauthentication unauthorized "
    "invalidauthenticationerror unauthenticated",
    "permission": "permissionerror permissiondenied permissiondeniederror insufficientpermissions forbidden "
    "accessdenied billingerror billinghardlimitreached billingnotactive accountdeactivated "
    "unsupportedcountryregionterritory",
    "not-found": "modelnotfound modelnotfounderror notfounderror notfound deploymentnotfound modelnotexist",
    "content-filter": "contentfilter contentfiltered contentpolicyviolation responsibleaipolicyviolation "
    "datainspectionfailed promptblocked imagecontentpolicyviolation biopolicy cyberpolicy",
    "invalid-request": "imagetoolarge imagetoosmall imagefiletoolarge imageparseerror imagefilenotfound emptyimagefile "
    "unsupportedimagemediatype unsupportedfile failedtodownloadimage",
    "timeout": "vectorstoretimeout timeout timeouterror requesttimeout gatewaytimeout deadlineexceeded",
    "server": "servererror internalservererror internalerror",
}
_BY_WORD: dict[str, ModelErrorKind] = {word: kind for kind, words in _WORDS.items() for word in words.split()}
_RETRYABLE: frozenset[ModelErrorKind] = frozenset({"rate-limit", "overloaded", "timeout", "server"})
_CONTEXT = r"context[ _]?(length|size|window)"
_BEYOND = r"(exceed|maximum|too (long|large|many)|larger|greater|longer|beyond|overflow|does not fit)"
_TOO_LONG = re.compile(
    rf"{_CONTEXT}.*{_BEYOND}|{_BEYOND}.*{_CONTEXT}|maximum (prompt|input) length|(prompt|input) is too long"
    r"|total length of all messages is too long|reduce the length of the (messages|prompt|input)"
    r"|input (token count|length).*exceed|exceeds.*max_model_len|too many (input|prompt) tokens",
    re.IGNORECASE | re.DOTALL,
)
_NOT_ABOUT_LENGTH: frozenset[ModelErrorKind] = frozenset({"authentication", "permission", "not-found", "rate-limit"})


def stream_error(error: object) -> ModelError:
    """An error that came as data: inside a stream, or with status 200."""
    fields = _fields(error)
    return _error(fields, _status(fields), {}, one_line(_message(fields)) or "the server sent an error without a text")


def response_error(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    url: str,
    *,
    with_key: bool = True,
    variable: str = "",
) -> ModelError:
    """An answer whose status says that it failed.

    Args:
        status: the HTTP status.
        headers: the response's, by case-insensitive or lower-case names.
        body: what came of the body.
        url: where the request went, fit to be shown.
        with_key: whether an API key was sent.
        variable: the environment's variable that may hold the key.
    """
    fields = _fields(read_json(body))
    text = one_line(_message(fields) or plain_text(body, headers))
    if status == 401 and not with_key:
        hint = f"pass api_key or set {variable}" if variable else "pass api_key"
        text = f"the server wants an API key (401): {text or 'no reason given'}; {hint}"
    elif status == 401:
        text = f"the server refused the API key (401): {text or 'no reason given'}"
    else:
        text = failure_text(status, url, text)
    return _error(fields, status, headers, text)


def _error(fields: Mapping[str, Any], status: int | None, headers: Mapping[str, str], text: str) -> ModelError:
    kind, retryable = _classify(fields, status)
    if status is not None and (said := should_retry(headers)) is not None:
        retryable = said
    return ModelError(text, kind=kind, retryable=retryable, status=status, retry_after=retry_after(headers))


def _classify(fields: Mapping[str, Any], status: int | None) -> tuple[ModelErrorKind, bool]:
    words = [_word(fields.get(name)) for name in ("code", "type")]
    if "insufficientquota" in words:
        return "rate-limit", False
    if "toolusefailed" in words:
        # The model wrote a call that the server could not read; it may write a better one.
        return "protocol", True
    found: ModelErrorKind | None = next((_BY_WORD[word] for word in words if word in _BY_WORD), None)
    if found == "server" and status is not None:
        found = None
    kind = found if found is not None else _by_status(status, words)
    if _too_long(kind, status, fields):
        return "context-overflow", False
    if found is None and status is not None:
        return kind, retryable_status(status)
    return kind, kind in _RETRYABLE


def _too_long(kind: ModelErrorKind, status: int | None, fields: Mapping[str, Any]) -> bool:
    possible = kind not in _NOT_ABOUT_LENGTH and (status is None or status in (400, 413, 422, 500))
    return possible and _TOO_LONG.search(_message(fields)[:5000]) is not None


def _by_status(status: int | None, words: list[str]) -> ModelErrorKind:
    if status is not None:
        return kind_of_status(status)
    return "invalid-request" if any(word.startswith(("invalid", "badrequest")) for word in words) else "server"


def _word(value: object) -> str:
    return re.sub("[^a-z]", "", value.lower()) if isinstance(value, str) else ""


def _status(fields: Mapping[str, Any]) -> int | None:
    for name in ("status_code", "status", "code"):
        value = fields.get(name)
        if isinstance(value, str) and value.isascii() and value.isdigit():
            value = int(value[:4])
        if isinstance(value, int) and not isinstance(value, bool) and 400 <= value < 600:
            return value
    return None


def _fields(value: object) -> Mapping[str, Any]:
    """The object with ``message``, ``type`` and ``code``, wherever a server puts it."""
    for _ in range(4):
        if is_list(value) and value:
            value = value[0]
            continue
        if not is_dict(value):
            break
        inner = value.get("error")
        if isinstance(inner, str) and inner:
            return {"message": inner, **{name: value[name] for name in value if name != "error"}}
        if not inner or not (is_dict(inner) or is_list(inner)):
            return value
        value = inner
    return {"message": value} if isinstance(value, str) else {}


def _message(fields: Mapping[str, Any]) -> str:
    for name in ("message", "detail", "msg", "error_description", "title"):
        value: object = fields.get(name)
        if isinstance(value, str) and value.strip():
            return value
        if isinstance(value, (dict, list)) and value:
            return msgspec.json.encode(value).decode()
    return ""
