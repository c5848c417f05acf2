"""The one reader of a call's arguments: what it gives is what is shown, judged, stored and run.

A model writes the arguments of a call as JSON text. Two parsers that read one text in two ways are a way around every rule
on arguments: where the policy sees nothing, or another value, a denial does not fit. So the text is read by
:func:`read_arguments` alone, which is strict and bounded; what it refuses is an error result before any policy is asked.
Then the tool's own types fill in defaults and convert values, once, and :attr:`Call.arguments` gives the result.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, NoReturn

from .errors import InvalidInput

__all__ = [
    "CUT_OFF",
    "DEPTH",
    "DIGITS",
    "SIZE",
    "canonical",
    "canonical_values",
    "filled_in",
    "merged",
    "read_arguments",
]

DEPTH = 64
"""How deep arrays and objects may be nested."""
DIGITS = 400
"""Characters of a number. Python reads at most 4,300 digits, other readers have other limits; nobody needs as many."""
SIZE = 4 * 2**20
"""Characters of all arguments of a call."""
CUT_OFF = "the arguments were cut off, so the tool was not run"

_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+["\\]?|[\[\]{}]', re.DOTALL)
_TAIL = re.compile(r"[\w+.-]*\s*")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def read_arguments(text: str) -> dict[str, Any]:
    """The arguments of a call as plain JSON values; no text at all means none.

    Raises:
        InvalidInput: it is not one JSON object, or something in it can be read in two ways or is out of bounds: a name that
            stands twice, NaN or an infinity, a number that is too long or out of range, half of a surrogate pair, more than
            64 levels, more than 4,194,304 characters.

    >>> read_arguments('{"a": [1, true]}'), read_arguments(" ")
    ({'a': [1, True]}, {})
    >>> read_arguments('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    turnstate_states.errors.InvalidInput: not JSON that can be read in one way only: the name 'a' stands twice
    """
    if not text or text.isspace():
        return {}
    if len(text) > SIZE:
        raise InvalidInput(f"they have {len(text)} characters; the limit is {SIZE}")
    _check_depth(text)
    try:
        value: object = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise InvalidInput(CUT_OFF if _cut_off(text, error) else f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidInput(f"expected a JSON object, got {_kind(value)}")
    _check_encodable(text)
    return value  # pyright: ignore[reportUnknownVariableType]


def _check_depth(text: str) -> None:
    if text.count("[") + text.count("{") <= DEPTH:
        return
    depth = 0
    for token in _TOKEN.finditer(text):
        first = token[0][0]
        if first in "[{":
            depth += 1
            if depth > DEPTH:
                raise InvalidInput(f"nested deeper than {DEPTH} levels")
        elif first in "]}":
            depth -= 1


def _check_encodable(text: str) -> None:
    """No half of a surrogate pair, written as it is or escaped: it is no text, and cannot be stored."""
    if text.isascii() and not _SURROGATE.search(text):
        return
    try:
        json.dumps(_DECODER.decode(text), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise InvalidInput("not text: it holds half of a surrogate pair") from None


def _cut_off(text: str, error: json.JSONDecodeError) -> bool:
    """Whether the text only lacks its end: what is wrong is that it is over."""
    if error.msg == "Extra data":
        return False
    return error.msg.startswith("Unterminated") or bool(_TAIL.fullmatch(text, error.pos))


def _kind(value: object) -> str:
    names: dict[type[object], str] = {
        bool: "true or false",
        int: "a number",
        float: "a number",
        str: "text",
        list: "an array",
    }
    return names.get(type(value), "null")


def _twice(problem: str) -> NoReturn:
    raise InvalidInput(f"not JSON that can be read in one way only: {problem}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        _twice(f"the name {twice!r} stands twice")
    return found


def _whole(digits: str) -> int:
    if len(digits) > DIGITS:
        _twice(f"a number has more than {DIGITS} digits")
    return int(digits)


def _real(digits: str) -> float:
    if len(digits) > DIGITS:
        _twice(f"a number has more than {DIGITS} digits")
    value = float(digits)
    if math.isinf(value):
        _twice(f"the number {digits} is out of range")
    return value


def _constant(name: str) -> NoReturn:
    _twice(f"{name} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=_whole, parse_float=_real, parse_constant=_constant)


def canonical_values(values: Mapping[str, Any]) -> str:
    """Values in one form for equal values.

    >>> canonical_values({"b": 1, "a": 2})
    '{"a":2,"b":1}'
    """
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)


def canonical(arguments: str) -> str | None:
    """Arguments in one form for equal values; None if they cannot be read.

    >>> canonical(' {"b":1, "a":2}')
    '{"a":2,"b":1}'
    """
    try:
        return canonical_values(read_arguments(arguments))
    except InvalidInput:
        return None


def filled_in(given: Mapping[str, Any], bound: Mapping[str, Any]) -> str:
    """What binding to a tool's parameters added to the arguments or changed in them, as JSON; empty if nothing.

    >>> filled_in({"a": 1}, {"a": 1.0, "b": None})
    '{"a":1.0,"b":null}'
    >>> filled_in({"a": 1}, {"a": 1})
    ''
    """
    more = {name: value for name, value in bound.items() if name not in given or not _same(given[name], value)}
    return canonical_values(more) if more else ""


def _same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON: true is not 1, and 1 is not 1.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, (dict, list)):
        return bool(one == other) and canonical_values({"": one}) == canonical_values({"": other})
    return bool(one == other)


def merged(arguments: str, filled: str) -> dict[str, Any]:
    """The arguments with what binding filled in.

    Raises:
        InvalidInput: the arguments cannot be read.
    """
    values = read_arguments(arguments)
    return values | json.loads(filled) if filled else values
