"""Values that nobody expects, and whether a value is one that an annotation allows."""

from __future__ import annotations

import collections.abc
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal, Union

__all__ = ["NASTY", "Evil", "fits", "hints"]


CALLABLE: Any = collections.abc.Callable


class Evil:
    """An object that cannot be looked at."""

    def __init__(self, *_: object) -> None: ...

    def _raise(self, *_: object) -> Any:
        raise RuntimeError("do not touch")

    __bool__ = __eq__ = __str__ = __repr__ = __len__ = __iter__ = __lt__ = __ge__ = __hash__ = _raise


def _cycle() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


def _deep() -> list[Any]:
    made: list[Any] = []
    for _ in range(20_000):
        made = [made]
    return made


def _function(*_: object) -> None:
    return None


async def _coroutine_function(*_: object) -> None:
    return None


NASTY: Mapping[str, Callable[[], Any]] = {
    "None": lambda: None,
    "bytes": lambda: b"x",
    "a bool": lambda: True,
    "an integer": lambda: 1,
    "a negative number": lambda: -1,
    "a float": lambda: 2.5,
    "NaN": lambda: float("nan"),
    "infinity": lambda: float("inf"),
    "a huge integer": lambda: 10**5000,
    "no text": lambda: "",
    "a blank": lambda: " ",
    "a text": lambda: "no such thing",
    "a long text": lambda: "x" * 100_000,
    "a lone surrogate": lambda: "a\ud800",
    "U+0000": lambda: "a\0",
    "a list": lambda: [],
    "a list of integers": lambda: [1],
    "a list of texts": lambda: ["x"],
    "a mapping": lambda: {},
    "a mapping of integers": lambda: {1: 2},
    "a mapping of objects": lambda: {"a": object()},
    "a mapping with NaN": lambda: {"a": float("nan")},
    "a cycle": _cycle,
    "a cyclic mapping": lambda: {"a": _cycle()},
    "a deep list": _deep,
    "a deep mapping": lambda: {"a": _deep()},
    "an async function": lambda: _coroutine_function,
    "a function": lambda: _function,
    "a class": lambda: Evil,
    "a module": lambda: sys,
    "an evil object": Evil,
    "evil objects": lambda: [Evil()],
}


def hints(owner: Any) -> dict[str, Any]:
    """The annotation of each parameter; ``Any`` for one that exists for type checkers only."""
    function = owner.__init__ if inspect.isclass(owner) else owner
    found: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        hint: Any = parameter.annotation
        scope = vars(sys.modules[owner.__module__])
        for _ in range(2):
            if isinstance(hint, typing.ForwardRef):
                hint = hint.__forward_arg__
            if isinstance(hint, str):
                try:
                    hint = eval(hint, scope)
                except (NameError, AttributeError):
                    hint = Any
        found[name] = Any if hint is inspect.Parameter.empty else hint
    return found


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type; what is inside a container is not looked at."""
    origin = typing.get_origin(hint)
    if hint is Any or hint is object or isinstance(hint, typing.TypeVar):
        return True
    if hint is None or hint is type(None):
        return value is None
    if origin in (Union, types.UnionType):
        return any(fits(value, inner) for inner in typing.get_args(hint))
    if origin is Literal:
        return isinstance(value, str) and value in typing.get_args(hint)
    if origin is type:
        return isinstance(value, type)
    kind = origin or hint
    if kind is CALLABLE:
        return callable(value)
    if kind in (collections.abc.Iterable, collections.abc.Sequence, tuple) and isinstance(value, (str, bytes)):
        return False
    if kind is tuple or kind is collections.abc.Sequence or kind is collections.abc.Iterable:
        return isinstance(value, (list, tuple))
    if kind is int:
        return type(value) is int
    if kind is float:
        return type(value) in (int, float)
    if kind in (str, bool, bytes, dict, list):
        return type(value) is kind
    if not isinstance(kind, type):
        return True
    return isinstance(value, kind)
