"""Checks of what is declared about a tool, so that what cannot work is refused when it is declared."""

from __future__ import annotations

import functools
import inspect
import re
import types
import typing
from collections.abc import Collection
from typing import Any

from turnstate_states import checks
from turnstate_states.errors import InvalidInput

__all__ = [
    "check_companion",
    "check_decider",
    "check_function",
    "check_name",
    "check_on_crash",
    "check_returns",
    "is_async",
    "yields",
]

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
BYTES: tuple[Any, ...] = (bytes, bytearray, memoryview)


def check_name(name: str | None, function: object) -> str:
    """The name of a tool; by default its function's."""
    if not callable(function):
        raise InvalidInput(f"tool: expected a function, got {checks.shown(function)}")
    found = getattr(function, "__name__", "") if name is None else name
    if not isinstance(found, str) or not NAME.fullmatch(found):
        raise InvalidInput(f"tool name {checks.shown(found)}: use 1 to 64 letters, digits, _ or -; give one with name=")
    return found


def check_function(name: str, function: object) -> None:
    """Refuse what cannot be a tool: a class, a method without its object, a generator function."""
    if isinstance(function, type) or not callable(function):
        raise InvalidInput(f"tool {name}: expected a function, got {type(function).__name__}")  # pyright: ignore[reportUnknownArgumentType]
    target = body_of(function)
    if inspect.isgeneratorfunction(target):
        raise InvalidInput(f"tool {name}: a generator function is no tool; make it an async one to report progress")
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"tool {name}: its parameters cannot be known: {error}; wrap it in a function") from None
    if parameters and parameters[0].name in ("self", "cls") and parameters[0].annotation is inspect.Parameter.empty:
        raise InvalidInput(
            f"tool {name}: parameter {parameters[0].name}: it is a method; leave it as it is and make the tool of the bound "
            f"one: tools=[toolbox.{name}], or tool(toolbox.{name}, ...) with options"
        )


def body_of(function: Any) -> Any:
    """What runs when something is called: the function of a partial one, the ``__call__`` of an object."""
    while isinstance(function, functools.partial):
        function = function.func  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
    return function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004


def is_async(function: object) -> bool:
    """Whether calling it gives a coroutine."""
    return inspect.iscoroutinefunction(body_of(function))


def yields(function: object) -> bool:
    """Whether calling it gives an async generator."""
    return inspect.isasyncgenfunction(body_of(function))


def check_returns(name: str, hint: Any) -> None:
    """Refuse a function that says that it returns bytes, which no model reads."""
    if isinstance(hint, type) and issubclass(hint, BYTES):
        raise InvalidInput(
            f"tool {name}: it returns {getattr(hint, '__name__', hint)}, which no model reads; return text "
            "(bytes.decode()), or Output(images=[Image('data:image/png;base64,...')]) for a picture"
        )
    if not isinstance(hint, typing.TypeVar) and typing.get_origin(hint) is not typing.Literal:
        for inner in typing.get_args(hint):
            if isinstance(inner, (type, types.GenericAlias, types.UnionType)) or typing.get_origin(inner):
                check_returns(name, inner)


def check_decider(where: str, value: Any, plain: type | tuple[type, ...], expected: str) -> None:
    """Refuse what is neither one of the plain values nor a function whose answer is there when it returns."""
    if isinstance(value, plain):
        if isinstance(value, str):
            checks.text(where, value)
        return
    if isinstance(value, type) or not callable(value):
        raise InvalidInput(f"{where}: expected {expected} or a function, got {checks.shown(value)}")
    if is_async(value):
        raise InvalidInput(f"{where}: expected {expected} or a plain function, got an async one, which nobody awaits")


def check_on_crash(where: str, value: Any) -> None:
    """Refuse what is neither a word nor an async function; a lambda may give something to await."""
    if isinstance(value, str) and value in ("report", "rerun"):
        return
    plain = inspect.isroutine(value) and not is_async(value) and getattr(value, "__name__", "") != "<lambda>"
    if plain or isinstance(value, type) or not callable(value):
        got = "one that is not async" if plain else checks.shown(value)
        raise InvalidInput(f"{where}: expected 'report', 'rerun' or an async function, got {got}")


def check_companion(where: str, function: object, given: Collection[str], contexts: Collection[str]) -> None:
    """Refuse a predicate, a check or a prompt that could not be called: each of its parameters must be one of the tool's.

    Args:
        where: what it is, for the error.
        function: the companion.
        given: the names of the tool's parameters.
        contexts: the names of the companion's parameters that take the :class:`~turnstate.ToolContext`.
    """
    try:
        parameters = inspect.signature(typing.cast(Any, function)).parameters.values()
    except (TypeError, ValueError):
        return  # it cannot be known; calling it will tell
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) or parameter.name in contexts:
            continue
        by_name = parameter.kind is not parameter.POSITIONAL_ONLY
        if parameter.default is parameter.empty and not (by_name and parameter.name in given):
            names = ", ".join(sorted(given)) or "none"
            raise InvalidInput(
                f"{where}: parameter {parameter.name}: it is called with parameters of the tool by name, which are: {names}"
            )
