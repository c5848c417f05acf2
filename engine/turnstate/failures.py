"""Exceptions in words."""

from __future__ import annotations

from turnstate_states.content import clean_text

__all__ = ["describe", "only"]


def only(error: BaseException) -> BaseException:
    """What an exception group of one holds, however deep; any other exception as it is."""
    while isinstance(error, BaseExceptionGroup):
        held: tuple[BaseException, ...] = error.exceptions  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if len(held) != 1:
            return error  # pyright: ignore[reportUnknownVariableType]
        error = held[0]
    return error


def describe(error: BaseException) -> str:
    """An exception as the model reads it.

    >>> describe(ValueError("too big"))
    'ValueError: too big'
    """
    message = clean_text(str(error)).strip()
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
