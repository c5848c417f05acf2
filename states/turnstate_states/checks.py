"""Checks of what callers give: each returns the value, or raises InvalidInput that names the parameter.

None of them trusts a value: one whose ``__repr__``, ``__eq__`` or ``__bool__`` raises is refused like any other.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar, cast

import attrs

from .errors import InvalidInput

__all__ = [
    "DATA_DEPTH",
    "array",
    "callback",
    "choice",
    "finite",
    "flag",
    "identifier",
    "instance",
    "integer",
    "items",
    "json_object",
    "json_value",
    "mapping",
    "name",
    "number",
    "optional",
    "optional_text",
    "shown",
    "text",
    "unfit",
    "validator",
]

T = TypeVar("T")
DATA_DEPTH = 200
"""How deep results, metadata and other data may be nested."""
LONGEST_ID = 200
LONGEST_SHOWN = 80
INTEGER_BITS = 13_000
"""Python reads and writes integers of at most 4,300 digits."""


def shown(value: object) -> str:
    """A value for an error's text: short, and never an error itself.

    >>> shown(3), shown("a" * 100)[-5:]
    ('3', 'aa...')
    """
    if isinstance(value, (str, bytes)):
        value = value[: LONGEST_SHOWN + 1]
    elif not isinstance(value, (bool, float, type(None))) and type(value) is not int:
        return f"{type(value).__name__}"
    try:
        found = repr(value)
    except ValueError:  # an integer of too many digits
        return "a huge integer"
    return found if len(found) <= LONGEST_SHOWN else f"{found[: LONGEST_SHOWN - 3]}..."


def unfit(where: str, expected: str, value: object) -> InvalidInput:
    """The error for a value of another kind than expected."""
    return InvalidInput(f"{where}: expected {expected}, got {shown(value)}")


def text(where: str, value: object, *, filled: bool = False, expected: str = "text") -> str:
    """A text that can be encoded, as a plain ``str``; with ``filled`` not a blank one."""
    if not isinstance(value, str):
        raise unfit(where, expected, value)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidInput(
                f"{where}: lone surrogate U+{ord(value[error.start]):04X} at position {error.start}; "
                "decode the text with errors='replace' before you send it"
            ) from None
    if filled and not value.strip():
        raise InvalidInput(f"{where}: expected {expected}, got nothing")
    return value if type(value) is str else str.__str__(value)


def name(where: str, value: object, *, filled: bool = False) -> str:
    """A text that lists of sessions hold: a title, a label. U+0000 is refused, since not every store can hold it."""
    found = text(where, value, filled=filled)
    if "\0" in found:
        raise InvalidInput(f"{where}: it holds U+0000, which not every store can hold; leave it out")
    return found


def identifier(where: str, value: object) -> str:
    """An id: 1 to 200 printable characters."""
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_ID or not value.isprintable():
        raise unfit(where, f"1 to {LONGEST_ID} printable characters", value)
    return value if type(value) is str else str.__str__(value)


def flag(where: str, value: object) -> bool:
    """True or False, and nothing that only counts as one of them."""
    if not isinstance(value, bool):
        raise unfit(where, "True or False", value)
    return value


def number(
    where: str, value: object, *, least: float = -math.inf, above: float | None = None, expected: str = "a number"
) -> float:
    """A number of at least ``least``, or above ``above``; never NaN. Infinity is a number here."""
    limit = f" above {above:g}" if above is not None else "" if least == -math.inf else f", at least {least:g}"
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise unfit(where, f"{expected}{limit}", value)
    if abs(value) > sys.float_info.max and value not in (math.inf, -math.inf):
        raise unfit(where, f"{expected} that a float can hold", value)
    if not (value >= least if above is None else value > above):
        raise unfit(where, f"{expected}{limit}", value)
    return value


def finite(
    where: str, value: object, *, least: float = -math.inf, above: float | None = None, expected: str = "a number"
) -> float:
    """The same without infinity: for what is stored or sent as JSON, or slept through."""
    if number(where, value, least=least, above=above, expected=expected) in (math.inf, -math.inf):
        raise unfit(where, f"{expected}, finite", value)
    return cast(float, value)


def integer(where: str, value: object, *, least: int, most: int | None = None, expected: str = "a number") -> int:
    """A whole number from ``least`` to ``most``."""
    if type(value) is not int or value < least or (most is not None and value > most):
        raise unfit(where, f"{expected}, at least {least}" + ("" if most is None else f" and at most {most}"), value)
    return value


def choice(where: str, value: object, choices: Collection[str]) -> Any:
    """One of some words."""
    if not isinstance(value, str) or value not in choices:
        raise unfit(where, " or ".join(map(repr, choices)), value)
    return value


def instance(where: str, value: object, kind: type[T] | tuple[type[T], ...], expected: str) -> T:
    """An object of a class."""
    if not isinstance(value, kind):
        raise unfit(where, expected, value)
    return value


def callback(where: str, value: object, expected: str = "a function") -> Any:
    """Something that can be called."""
    if not callable(value):
        raise unfit(where, expected, value)
    return value


def optional(check: Callable[..., T], where: str, value: object, **more: Any) -> T | None:
    """None, or what another check takes."""
    return None if value is None else check(where, value, **more)


def optional_text(where: str, value: object) -> str | None:
    """None, or a text."""
    return optional(text, where, value, expected="None or text")


def items(where: str, value: object, expected: str) -> list[Any]:
    """What can be iterated over, once; a text, bytes and a mapping are not meant."""
    if isinstance(value, (str, bytes, bytearray, Mapping)) or not isinstance(value, Iterable):
        raise unfit(where, expected, value)  # pyright: ignore[reportUnknownArgumentType]
    try:
        return list(value)  # pyright: ignore[reportUnknownArgumentType,reportUnknownVariableType]
    except Exception as error:
        raise InvalidInput(f"{where}: it cannot be iterated over: {type(error).__name__}") from error


def mapping(where: str, value: object, *, expected: str = "a mapping") -> dict[str, Any]:
    """A mapping with texts as keys, as a dict of its own; the values are not looked at."""
    if not isinstance(value, Mapping):
        raise unfit(where, expected, value)
    found: dict[str, Any] = {}
    for key, held in cast("Mapping[object, Any]", value).items():
        if not isinstance(key, str):
            raise InvalidInput(f"{where}: expected text as keys, got {shown(key)}")
        found[text(f"{where}: a key", key)] = held
    return found


def array(where: str, value: object, kind: type[T] | tuple[type[T], ...], expected: str) -> tuple[T, ...]:
    """A list or tuple of objects of a class, as a tuple."""
    if not isinstance(value, (list, tuple)):
        raise unfit(where, f"a list of {expected}", value)
    items = cast("list[object] | tuple[object, ...]", value)
    return tuple(instance(f"{where}[{place}]", item, kind, expected) for place, item in enumerate(items))


def json_value(where: str, value: object, depth: int = DATA_DEPTH) -> Any:
    """Plain JSON as a copy that shares nothing with the caller's: None, bool, int, float, str, lists and mappings of them.

    Raises:
        InvalidInput: something in it is none of these, a key is not text, a number is not finite or too large, or it is
            nested more than ``depth`` deep (a cycle is); the text names the path.
    """
    try:
        return _plain(value, depth)
    except _Unfit as unfit:
        path = "".join(reversed(unfit.path))
        if len(path) > LONGEST_SHOWN:
            path = f"{path[:LONGEST_SHOWN]}..."
        what = unfit.what or f"nested more than {depth} deep"
        raise InvalidInput(f"{where}{path}: {what}") from None


def json_object(where: str, value: object, depth: int = DATA_DEPTH) -> dict[str, Any]:
    """A mapping of plain JSON; see :func:`json_value`."""
    if not isinstance(value, Mapping):
        raise unfit(where, "a mapping", value)
    found: dict[str, Any] = json_value(where, value, depth)  # pyright: ignore[reportUnknownArgumentType]
    return found


class _Unfit(Exception):
    """Something in a value is not JSON; those that hold it put their part of the path in front, so that none is made for
    what is right."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.path: list[str] = []


def _plain(value: object, left: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int):
        return _integer(int(value))
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _Unfit(f"{shown(float(value))} is not JSON; use None or a text")
        return float(value)
    if isinstance(value, Mapping):
        return _object(cast("Mapping[object, object]", value), left)
    if isinstance(value, (list, tuple)):
        return _list(cast("list[object] | tuple[object, ...]", value), left)
    raise _Unfit(f"{type(value).__name__} is not plain JSON; use text, numbers, lists and mappings")


def _object(value: Mapping[object, object], left: int) -> dict[str, Any]:
    if not left:
        raise _Unfit("")
    found: dict[str, Any] = {}
    for key, held in value.items():
        if not isinstance(key, str):
            raise _Unfit(f"expected text as keys, got {shown(key)}")
        try:
            found[_text(key)] = _plain(held, left - 1)
        except _Unfit as unfit:
            unfit.path.append(f".{shown(key)[1:-1]}")
            raise
    return found


def _list(value: list[object] | tuple[object, ...], left: int) -> list[Any]:
    if not left:
        raise _Unfit("")
    found: list[Any] = []
    for place, item in enumerate(value):
        try:
            found.append(_plain(item, left - 1))
        except _Unfit as unfit:
            unfit.path.append(f"[{place}]")
            raise
    return found


def _text(value: str) -> str:
    try:
        return text("", value)
    except InvalidInput as error:
        raise _Unfit(str(error).removeprefix(": ")) from None


def _integer(value: int) -> int:
    if value.bit_length() > INTEGER_BITS:
        raise _Unfit(f"an integer of more than {INTEGER_BITS} bits; use a text")
    return value


def validator(check: Callable[..., Any], **more: Any) -> Callable[[Any, Any, Any], None]:
    """A check as a validator of an attrs field; the error names the class and the field."""

    def validate(owner: object, field: attrs.Attribute[Any], value: object) -> None:
        try:
            check("", value, **more)
        except InvalidInput as error:  # only now is it worth while to say where
            raise InvalidInput(f"{type(owner).__name__}.{field.name}{error}") from None

    return validate
