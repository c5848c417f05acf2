"""Any value of the package's data, made from the types of its fields."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

import attrs
from hypothesis import strategies as st

from turnstate_states.asking import Option, Question
from turnstate_states.checkpoint import FORMAT

Strategy = st.SearchStrategy[Any]

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
JSON: Strategy = st.recursive(
    st.none() | st.booleans() | st.integers() | NUMBERS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)
OBJECTS: Strategy = st.dictionaries(st.text(max_size=5) | st.just("type"), JSON, max_size=2)

SIMPLE: dict[Any, Strategy] = {
    str: st.text(max_size=8),
    int: st.integers(),
    bool: st.booleans(),
    float: NUMBERS,
    type(None): st.none(),
    Any: JSON,
    Mapping[str, Any]: OBJECTS,
    dict[str, Any]: OBJECTS,
}
ELSEWHERE: dict[str, dict[str, Any]] = {
    "Call": {"proposed": ""},
    "Queued": {"parts": (), "settings": {}},
    "Checkpoint": {"format": FORMAT},
    "Option": {"kind": st.sampled_from(("allow-once", "allow-always", "reject-once", "reject-always", "_own"))},
    "Prompt": {
        "options": st.deferred(lambda: _unique(Option)),
        "questions": st.deferred(lambda: _unique(Question)),
    },
}
"""Fields that are not written with their class, and those that do not take any value of their type."""


def _unique(cls: type[attrs.AttrsInstance]) -> Strategy:
    return st.lists(instances(cls), max_size=2, unique_by=lambda value: value.id).map(tuple)


def of(kind: Any) -> Strategy:
    """Any value of a type."""
    if kind in SIMPLE:
        return SIMPLE[kind]
    origin, args = get_origin(kind), get_args(kind)
    if origin is Literal:
        return st.sampled_from(args)
    if origin in (Union, types.UnionType):
        return st.one_of([of(arg) for arg in args])
    if origin is tuple:
        return st.lists(of(args[0]), max_size=2).map(tuple)
    if origin in (dict, Mapping):
        return st.dictionaries(of(args[0]), of(args[1]), max_size=2)
    return instances(kind)


@functools.cache
def instances(cls: type[attrs.AttrsInstance]) -> Strategy:
    """Any instance of a class of the package."""
    hints = get_type_hints(cls)
    fixed = ELSEWHERE.get(cls.__name__, {})
    fields: dict[str, Strategy] = {}
    for field in attrs.fields(cls):
        value = fixed.get(field.name, st.deferred(_later(hints[field.name])))
        fields[field.name] = value if isinstance(value, st.SearchStrategy) else st.just(value)
    make = cast(Callable[..., Any], cls)
    return st.builds(make, **fields)


def _later(kind: Any) -> Callable[[], Strategy]:
    return lambda: of(kind)
