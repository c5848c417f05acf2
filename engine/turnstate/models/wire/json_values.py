"""JSON values: reading what a server sent, which raises only :class:`~turnstate.ModelError`, and writing our own."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Set
from typing import Any, TypeGuard

import msgspec

from turnstate_states.content import clean_text
from turnstate_states.errors import InvalidInput, ModelError

__all__ = [
    "IN_PIECES",
    "as_count",
    "as_dict",
    "as_list",
    "is_dict",
    "is_list",
    "mend",
    "misfit",
    "read_json",
    "read_odd_json",
    "read_text",
    "scrub",
    "to_json",
]

IN_PIECES = frozenset({"content", "reasoning", "reasoning_content", "refusal", "arguments", "delta"})
"""Fields that hold a text of which more may follow."""


def misfit(field: str, value: object) -> ModelError:
    """The error for a value of a type that the protocol does not have there."""
    text = f"the server sent {field} of an unexpected type ({type(value).__name__})"
    return ModelError(text, kind="protocol", retryable=True)


def is_dict(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether it is a JSON object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether it is a JSON array."""
    return isinstance(value, list)


def as_dict(value: object, field: str) -> dict[str, Any]:
    """The value, which must be a JSON object."""
    if not is_dict(value):
        raise misfit(field, value)
    return value


def as_list(value: object, field: str) -> list[Any]:
    """The value, which must be a JSON array."""
    if not is_list(value):
        raise misfit(field, value)
    return value


def read_text(fields: Mapping[str, Any], name: str) -> str:
    """The text of a field, empty where it is missing or null."""
    value = fields.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise misfit(name, value)
    return value


def as_count(value: object) -> int | None:
    """The value if it is a count, None if it is not.

    >>> as_count(3.0), as_count(-1), as_count(True)
    (3, None, None)
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def read_json(data: bytes | str) -> Any:
    """The value of strict JSON, or None."""
    try:
        return msgspec.json.decode(data)
    except (ValueError, RecursionError):
        return None


def read_odd_json(text: str, in_pieces: Set[str] = IN_PIECES) -> Any:
    """The value of JSON with escaped lone surrogates or non-finite numbers; None if it is not JSON.

    Such numbers become null, such surrogates U+FFFD; but texts that come in pieces (the fields of ``in_pieces``) are left
    as they are, because the other half of a pair may follow: see :func:`mend`.
    """
    try:
        return _cleaned(json.loads(text), in_pieces)
    except (ValueError, RecursionError):
        return None


def _cleaned(value: object, in_pieces: Set[str], name: str = "") -> Any:
    if isinstance(value, str):
        return value if name in in_pieces else clean_text(value)
    if is_dict(value):
        return {clean_text(key): _cleaned(item, in_pieces, key) for key, item in value.items()}
    if is_list(value):
        return [_cleaned(item, in_pieces) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def scrub(value: object) -> Any:
    """The value with every text in it complete: what :func:`read_odd_json` left for later is cleaned, too."""
    if isinstance(value, str):
        return clean_text(value)
    if is_dict(value):
        return {key: scrub(item) for key, item in value.items()}
    return [scrub(item) for item in value] if is_list(value) else value


def mend(text: str) -> tuple[str, str]:
    """Text that can be encoded, and half of a surrogate pair at its end whose other half may follow.

    >>> mend("a\\ud83d"), mend("\\ud83d" + "\\ude00")
    (('a', '\\ud83d'), ('😀', ''))
    """
    if text and "\ud800" <= text[-1] <= "\udbff":
        return clean_text(text[:-1]), text[-1]
    return clean_text(text), ""


def to_json(value: Any, what: str) -> bytes:
    """A value as JSON that every parser takes: no NaN, no infinity, no lone surrogate.

    Raises:
        InvalidInput: it cannot be written so; ``what`` names it in the text.
    """
    try:
        return json.dumps(
            value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain_dict
        ).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{what}: it is not JSON ({type(error).__name__})") from None


def _plain_dict(value: object) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    raise TypeError(type(value).__name__)
