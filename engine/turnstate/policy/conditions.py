"""Conditions on the value of one argument, which know when they cannot tell."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, ClassVar

from turnstate_states import checks
from turnstate_states.errors import InvalidInput

__all__ = ["Between", "Condition", "Glob", "Not", "OneOf"]


class Condition:
    """Base class: whether the value of an argument is of some kind. Derive from it to write your own.

    Each question has three answers: True, False, and None for "cannot tell". A value that two programs could read in two
    ways, and one of another type than the condition is about, cannot be told. An exception, or an answer that is none of
    the three, counts as None.

    ``blocking`` says that the methods wait for something (a disk, a network); they then run in a thread.
    """

    blocking: ClassVar[bool] = False

    def fits(self, value: Any) -> bool | None:
        """Whether all of the value is of this kind. An :class:`~turnstate.Allow` rule needs True."""
        raise NotImplementedError

    def touches(self, value: Any) -> bool | None:
        """Whether any part of the value is; rules that deny or ask look at this. The default is the same as ``fits``."""
        return self.fits(value)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), repr(self)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(repr(value) for value in vars(self).values())})"


class Glob(Condition):
    """What a plain text means in :class:`~turnstate.policy.Rule`: a pattern with ``*``, ``?`` and ``[...]``.

    It is compared with a text, or with the JSON of another value. A rule that denies or asks also looks at the texts inside
    a list or an object, and at a number however it could be written.

    >>> Glob("/etc/*").touches(["/srv/a", "/etc/passwd"]), Glob("/etc/*").fits(["/srv/a", "/etc/passwd"])
    (True, False)
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern

    def fits(self, value: Any) -> bool | None:
        return all(self._matches(text) for text in _written(value))

    def touches(self, value: Any) -> bool | None:
        return any(self._matches(text) for text in (*_written(value), *_inside(value)))

    def _matches(self, text: str) -> bool:
        return fnmatch.fnmatchcase(text, self.pattern)


def _written(value: object) -> tuple[str, ...]:
    """How a value can be written: a text as it is, ``1000.0`` also as ``1000``."""
    if isinstance(value, str):
        return (value,)
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return (text, str(int(value)))
    return (text,)


def _inside(value: object) -> Iterator[str]:
    """The texts, numbers and names inside a list or an object, as they can be written."""
    waiting: list[Any] = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, list):
            waiting.extend(found)  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(found, dict):
            waiting.extend([*found, *found.values()])  # pyright: ignore[reportUnknownArgumentType]
        elif found is not value:
            yield from _written(found)


class Not(Condition):
    """The opposite of a condition, or of a pattern. What the condition cannot tell, its opposite cannot tell either.

    >>> Not(OneOf("small", "medium")).fits("huge")
    True
    """

    def __init__(self, condition: Condition | str) -> None:
        self.condition = as_condition(condition, "Not: condition")
        self.blocking = self.condition.blocking  # type: ignore[misc]  # of this object, not of the class

    def fits(self, value: Any) -> bool | None:
        return _opposite(self.condition.touches(value))

    def touches(self, value: Any) -> bool | None:
        return _opposite(self.condition.fits(value))

    def __repr__(self) -> str:
        return f"Not({self.condition!r})"


def _opposite(answer: bool | None) -> bool | None:
    return (not answer) if isinstance(answer, bool) else None


class OneOf(Condition):
    """One of these texts, numbers or booleans; None stands for JSON's null.

    Case counts, and so does the type: ``1`` is not ``True`` and not ``"1"``. A value of a type that none of them has cannot
    be told, except null, which is just not one of them.

    >>> OneOf("small", "medium").fits("small"), OneOf("small").fits("huge"), OneOf("small").fits(["small"])
    (True, False, None)

    Raises:
        InvalidInput: nothing is given, or something that is none of these.
    """

    def __init__(self, *values: str | int | float | bool | None) -> None:
        if not values:
            raise InvalidInput("OneOf: values: expected at least one value")
        for value in values:
            if _kind(value) == "other":
                raise InvalidInput(
                    f"OneOf: values: expected text, numbers, booleans or None, got {type(value).__name__}"
                )
        self.values = values

    def fits(self, value: Any) -> bool | None:
        kind = _kind(value)
        if any(_kind(one) == kind and one == value for one in self.values):
            return True
        return False if kind in {"null", *(_kind(one) for one in self.values)} else None

    def __repr__(self) -> str:
        return f"OneOf({', '.join(map(repr, self.values))})"


def _kind(value: object) -> str:
    """The JSON type of a value that is neither a list nor an object."""
    if value is None:
        return "null"
    for kind, types in (("boolean", bool), ("number", (int, float)), ("text", str)):
        if isinstance(value, types):
            return "other" if value != value else kind  # what is not a number is equal to nothing, itself included
    return "other"


_DECIMAL = re.compile(r"[+-]?[0-9]{1,1000}(\.[0-9]{1,1000})?([eE][+-]?[0-9]{1,4})?")


class Between(Condition):
    """A number from ``low`` to ``high``, both included; None leaves a side open, and has to be written.

    A text that is one plain decimal number counts as that number, since that is how a ``Decimal`` arrives. Everything else
    cannot be told.

    >>> Between(0, 100).fits(99.5), Between(0, 100).fits(-1), Between(0, 100).fits("many")
    (True, False, None)

    Raises:
        InvalidInput: a bound is not a finite number, both are None, or no number is between them.
    """

    def __init__(self, low: float | Decimal | None, high: float | Decimal | None) -> None:
        for name, bound in (("low", low), ("high", high)):
            if bound is not None and (isinstance(bound, (str, bool)) or _number(bound) is None):
                raise InvalidInput(f"Between: {name}: expected a finite number or None, got {checks.shown(bound)}")
        if low is None and high is None:
            raise InvalidInput("Between: expected a number for low, high or both; with neither, every number fits")
        if low is not None and high is not None and low > high:
            raise InvalidInput(
                f"Between: low, high: no number is from {checks.shown(low)} to {checks.shown(high)}; "
                "the lower bound comes first"
            )
        self.low, self.high = low, high

    def fits(self, value: Any) -> bool | None:
        number = _number(value)
        if number is None:
            return None
        low, high = _number(self.low), _number(self.high)
        return (low is None or low <= number) and (high is None or number <= high)


def _number(value: object) -> Decimal | None:
    """The exact value of a finite number, or of a text that is one."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal, str)):
        return None
    if isinstance(value, str) and not _DECIMAL.fullmatch(value):
        return None
    number = Decimal(value)
    return number if number.is_finite() else None


def as_condition(value: object, where: str) -> Condition:
    """A condition as it is, and a text as a pattern.

    Raises:
        InvalidInput: it is neither.
    """
    if isinstance(value, Condition):
        return value
    if isinstance(value, str):
        return Glob(value)
    raise InvalidInput(f"{where}: expected a pattern (text) or a Condition, got {type(value).__name__}")
