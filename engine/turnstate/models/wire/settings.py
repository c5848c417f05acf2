"""Settings and further fields of requests, checked before anything is sent."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from turnstate_states.errors import InvalidInput

from .json_values import to_json

__all__ = ["check_extra_body", "check_settings"]


def check_settings(settings: Mapping[str, Any], known: Mapping[str, str]) -> dict[str, Any]:
    """The settings as a dict of their own. A value of None is allowed: it takes back a setting of the model.

    Args:
        settings: what was given.
        known: names of the protocol's settings, and what each of them must be.

    Raises:
        InvalidInput: a name is not known, or a value does not fit; the text says what would.
    """
    for name, value in settings.items():
        if name not in known:
            names = ", ".join(known)
            raise InvalidInput(
                f"settings: {name!r} is not known; known are {names}; anything else goes into extra_body"
            )
        if value is not None and not _FITS[known[name]](value):
            raise InvalidInput(f"settings: {name} must be {known[name]}, got {value!r}"[:300])
        to_json(value, f"settings: {name}")
    return dict(settings)


def check_extra_body(fields: Mapping[str, Any], reserved: Iterable[str]) -> dict[str, Any]:
    """The further fields of a request's body. None leaves the field out, also where the adapter would send it.

    Raises:
        InvalidInput: a field is one that only the adapter can fill (``reserved``), or not JSON.
    """
    for name in reserved:
        if name in fields:
            raise InvalidInput(f"extra_body: {name} is made by the adapter; leave it out")
    to_json(dict(fields), "extra_body")
    return dict(fields)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_list_of(value: Any, kind: type) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(item, kind) for item in value)  # pyright: ignore[reportUnknownVariableType]


_FITS: Mapping[str, Callable[[Any], bool]] = {
    "a finite number": _is_number,
    "a whole number": _is_integer,
    "a positive whole number": lambda value: _is_integer(value) and value > 0,
    "true or false": lambda value: isinstance(value, bool),
    'true, false, "5m" or "1h"': lambda value: isinstance(value, bool) or value in ("5m", "1h"),
    "text": lambda value: isinstance(value, str),
    "a list of texts": lambda value: _is_list_of(value, str),
    "text or a list of texts": lambda value: isinstance(value, str) or _is_list_of(value, str),
    "a mapping": lambda value: isinstance(value, Mapping),
    "a list of mappings": lambda value: _is_list_of(value, Mapping),
    "text or a mapping": lambda value: isinstance(value, (str, Mapping)),
}
"""What the tables of settings say of a value, and whether one is that."""
