"""What ``Annotated`` says of a parameter beside its type, in the words of msgspec."""

from __future__ import annotations

import types
import typing
from typing import Annotated, Any, Union

import msgspec

__all__ = ["with_metadata"]

CONTAINERS: tuple[Any, ...] = (list, dict, tuple, set, frozenset)
LIMITS = {
    "Gt": ("gt",),
    "Ge": ("ge",),
    "Lt": ("lt",),
    "Le": ("le",),
    "MultipleOf": ("multiple_of",),
    "MinLen": ("min_length",),
    "MaxLen": ("max_length",),
    "Len": ("min_length", "max_length"),
    "Interval": ("gt", "ge", "lt", "le"),
}
"""Constraints of the package annotated-types (which is not imported), and the fields of each."""


def with_metadata(hint: Any) -> Any:
    """A type with what its ``Annotated`` metadata says, also within unions, lists and mappings.

    A text is the description; ``msgspec.Meta`` counts as it is, and so do the constraints of annotated-types. Anything else
    belongs to another library and is left alone.

    >>> with_metadata(Annotated[int, "How many."])
    typing.Annotated[int, msgspec.Meta(description='How many.')]
    """
    origin: Any = typing.get_origin(hint)
    args = typing.get_args(hint)
    if origin is Annotated:
        return _annotated(with_metadata(args[0]), hint.__metadata__)
    if origin in (Union, types.UnionType):
        return Union[tuple(map(with_metadata, args))]  # noqa: UP007 - their number is not known
    if args and origin in CONTAINERS:
        inner = tuple(item if item is ... else with_metadata(item) for item in args)
        return hint if inner == args else origin[inner]
    return hint


def _annotated(kind: Any, metadata: tuple[Any, ...]) -> Any:
    for item in metadata:
        for meta in _metas(item):
            kind = Annotated[kind, meta]
    return kind


def _metas(item: Any) -> list[msgspec.Meta]:
    if isinstance(item, msgspec.Meta):
        return [item]
    if isinstance(item, str):
        return [msgspec.Meta(description=item)]
    if type(item).__module__.partition(".")[0] != "annotated_types":
        return []
    found = {name: getattr(item, name) for name in LIMITS.get(type(item).__name__, ())}
    given = {name: value for name, value in found.items() if value is not None}
    # One for each: msgspec takes no lower bound of two kinds in one Meta.
    return [msgspec.Meta(**{name: value}) for name, value in given.items()]
