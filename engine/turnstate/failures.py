"""Exceptions in words."""

from __future__ import annotations

import logging

import trio

from turnstate_states.content import clean_text

__all__ = ["bug", "describe", "ends_host", "failure_in", "only", "without_cancelled"]

log = logging.getLogger("turnstate")


def only(error: BaseException) -> BaseException:
    """What an exception group of one holds, however deep; any other exception as it is."""
    while isinstance(error, BaseExceptionGroup):
        held: tuple[BaseException, ...] = error.exceptions  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if len(held) != 1:
            return error  # pyright: ignore[reportUnknownVariableType]
        error = held[0]
    return error


def leaves(error: BaseException) -> list[BaseException]:
    """The exceptions in a group, however deep; of any other exception itself."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    held: tuple[BaseException, ...] = error.exceptions  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return [leaf for item in held for leaf in leaves(item)]


def ends_host(error: BaseException) -> BaseException | None:
    """The KeyboardInterrupt or SystemExit in an exception, which nobody but the host may handle."""
    return next((leaf for leaf in leaves(error) if isinstance(leaf, (KeyboardInterrupt, SystemExit))), None)


def failure_in(error: BaseException) -> BaseException:
    """The failure in what a host's code raised; cancellation, KeyboardInterrupt and SystemExit are raised on."""
    host = ends_host(error)
    if host is not None:
        raise host from None
    if any(isinstance(leaf, (trio.Cancelled, GeneratorExit)) for leaf in leaves(error)):
        raise error
    return only(error)


def without_cancelled(error: BaseException) -> BaseException | None:
    """The one exception that an exception or group comes down to, cancellation aside; others are logged."""
    found = [leaf for leaf in leaves(error) if not isinstance(leaf, trio.Cancelled)]
    if not found:
        return None
    chosen = ends_host(error) or found[0]
    for other in found:
        if other is not chosen:
            log.error("this failed as well", exc_info=other)
    return chosen


def describe(error: BaseException) -> str:
    """An exception as the model reads it.

    >>> describe(ValueError("too big"))
    'ValueError: too big'
    """
    try:
        message = clean_text(str(error)).strip()
    except Exception:
        message = "(it has no text, because its __str__ failed)"
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def bug(what: str, error: BaseException) -> str:
    """An exception that nothing was prepared for, in words for whoever runs the program.

    >>> bug("the driver of session s stopped", KeyError("x"))[:50]
    "the driver of session s stopped: KeyError: 'x'; th"
    """
    return (
        f"{what}: {describe(error)}; this is a bug of turnstate, unless a store, a model or other code of yours raised it: "
        'please report it with its traceback, which is in the log "turnstate"'
    )
