"""Settings of Chat Completions, checked before anything is sent."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from turnstate_states.errors import InvalidInput

__all__ = ["CHAT_SETTINGS", "check_extra_body", "check_settings", "to_json"]

_NUMBER = "a finite number"
_COUNT = "a positive whole number"
_SWITCH = "true or false"
_TEXT = "text"
_OBJECT = "a mapping"
_ANY = "anything that is JSON"

CHAT_SETTINGS: Mapping[str, str] = {
    "temperature": _NUMBER,
    "top_p": _NUMBER,
    "max_tokens": _COUNT,
    "max_completion_tokens": _COUNT,
    "stop": "text or a list of texts",
    "seed": "a whole number",
    "tool_choice": "text or a mapping",
    "parallel_tool_calls": _SWITCH,
    "response_format": _OBJECT,
    "reasoning_effort": _TEXT,
    "verbosity": _TEXT,
    "user": _TEXT,
    "safety_identifier": _TEXT,
    "service_tier": _TEXT,
    "frequency_penalty": _NUMBER,
    "presence_penalty": _NUMBER,
    "logit_bias": _OBJECT,
    "logprobs": _SWITCH,
    "top_logprobs": "a whole number",
    "metadata": _OBJECT,
    "store": _SWITCH,
    "prompt_cache_key": _TEXT,
    "prediction": _OBJECT,
}
"""Names of the settings, and what each of them must be."""

_RESERVED = ("messages", "stream", "tools")


def check_settings(settings: Mapping[str, Any], known: Mapping[str, str] = CHAT_SETTINGS) -> dict[str, Any]:
    """The settings as a dict of their own. A value of None is allowed: it takes back a setting of the model.

    Raises:
        InvalidInput: a name is not known, or a value does not fit; the text says what would.
    """
    for name, value in settings.items():
        if name not in known:
            names = ", ".join(known)
            raise InvalidInput(
                f"settings: {name!r} is not known; known are {names}; anything else goes into extra_body"
            )
        if value is not None and not _fits(value, known[name]):
            raise InvalidInput(f"settings: {name} must be {known[name]}, got {value!r}"[:300])
        to_json(value, f"settings: {name}")
    return dict(settings)


def check_extra_body(fields: Mapping[str, Any], reserved: Iterable[str] = _RESERVED) -> dict[str, Any]:
    """The additional fields of a request's body. None leaves the field out, also where the adapter would send it.

    Raises:
        InvalidInput: a field is one that only the adapter can fill, or not JSON.
    """
    for name in reserved:
        if name in fields:
            raise InvalidInput(f"extra_body: {name} is made by the adapter; leave it out")
    to_json(dict(fields), "extra_body")
    return dict(fields)


def to_json(value: Any, what: str) -> bytes:
    """A value as JSON that every parser takes: no NaN, no infinity, no lone surrogate.

    Raises:
        InvalidInput: it cannot be written so; ``what`` names it in the text.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_as_dict).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{what}: it is not JSON ({type(error).__name__})") from None


def _as_dict(value: object) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    raise TypeError(type(value).__name__)


def _fits(value: Any, what: str) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    match what:
        case "a finite number":
            return number and math.isfinite(value)
        case "a whole number":
            return number and isinstance(value, int)
        case "a positive whole number":
            return number and isinstance(value, int) and value > 0
        case "true or false":
            return isinstance(value, bool)
        case "text":
            return isinstance(value, str)
        case "a mapping":
            return isinstance(value, Mapping)
        case "a list of texts":
            return _is_list_of(value, str)
        case "a list of mappings":
            return _is_list_of(value, Mapping)
        case "text or a mapping":
            return isinstance(value, (str, Mapping))
        case "text or a list of texts":
            return isinstance(value, str) or _is_list_of(value, str)
        case _:
            return True


def _is_list_of(value: object, kind: type) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(item, kind) for item in value)  # pyright: ignore[reportUnknownVariableType]
