"""Exceptions in words."""

from __future__ import annotations

import logging
import math

import trio

from turnstate_states.content import clean_text
from turnstate_states.errors import StoreError, ToolError, TurnstateError

__all__ = [
    "OwnWords",
    "bug",
    "cancelled_here",
    "describe",
    "describe_to_model",
    "ends_host",
    "failure_in",
    "in_full",
    "only",
    "without_cancelled",
]

log = logging.getLogger("turnstate")


class OwnWords(TypeError):
    """A host's function gave what it may not give. The text is turnstate's own, so everybody may read it."""


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
    """The failure in what a host's code raised; the ends of this task and of the host are raised on.

    A host's code may raise anything, also what only trio and Python should: a Cancelled that it kept from a scope of its
    own, an asyncio.CancelledError, a GeneratorExit. Such a thing ends this task only if it is meant for it: a Cancelled
    where a scope around this code is cancelled, a GeneratorExit where the task is thrown away.
    """
    host = ends_host(error)
    if host is not None:
        raise host from None
    found = leaves(error)
    if any(isinstance(leaf, GeneratorExit) for leaf in found) and _thrown_away():
        raise error
    if any(isinstance(leaf, trio.Cancelled) for leaf in found) and cancelled_here():
        for other in found:
            if not isinstance(other, trio.Cancelled):
                log.error("this failed when it was cancelled", exc_info=other)
        raise next(leaf for leaf in found if isinstance(leaf, trio.Cancelled))
    return only(error)


def cancelled_here() -> bool:
    """Whether a scope around the code that runs now is cancelled."""
    return trio.current_effective_deadline() == -math.inf


def _thrown_away() -> bool:
    """Whether Python closes the coroutine that runs now, because nobody will run it any more."""
    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        return True
    return False


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
    """An exception as a person reads it, and as it is stored: by its type, and by its text if that was written for them.

    Those are the errors of turnstate's own tree, but not a store's: a driver's text may hold a host or a password, as that
    of any other exception may. The log has it all.

    >>> describe(ValueError("no route to db1")), describe(ToolError("no such page"))
    ('ValueError; the details are in the log', 'ToolError: no such page')
    """
    written = isinstance(error, TurnstateError) and not isinstance(error, StoreError)
    if written or isinstance(error, OwnWords):
        return in_full(error)
    return f"{_name(error)}; the details are in the log"


def describe_to_model(error: BaseException, what: str, *, in_words: bool = False) -> str:
    """An exception as a model reads it, and with the model whoever runs it: by its type alone.

    The text is told where it was written to be: that of a :class:`~turnstate.ToolError`, exactly.

    Args:
        error: what was raised.
        what: what failed, such as ``the tool``.
        in_words: whether the text of any exception may be told.

    >>> describe_to_model(ValueError("no route to db1"), "the tool"), describe_to_model(ToolError("no such page"), "")
    ('ValueError: the tool failed; the details are in the log', 'no such page')
    """
    if isinstance(error, ToolError):
        return _text(error) or "ToolError"
    if in_words or isinstance(error, OwnWords):
        return in_full(error)
    return f"{_name(error)}: {what} failed; the details are in the log"


def in_full(error: BaseException) -> str:
    """An exception with its text, for those who may read everything.

    >>> in_full(ValueError("too big"))
    'ValueError: too big'
    """
    text = _text(error)
    return f"{_name(error)}: {text}" if text else _name(error)


def _text(error: BaseException) -> str:
    try:
        return clean_text(str(error)).strip()
    except BaseException as raised:
        if ends_host(raised) is not None:
            raise
        return "(it has no text, because its __str__ failed)"


def _name(error: BaseException) -> str:
    return "TypeError" if isinstance(error, OwnWords) else type(error).__name__


def bug(what: str, error: BaseException) -> str:
    """An exception that nothing was prepared for, in words for whoever runs the program.

    >>> bug("the driver of session s stopped", KeyError("x"))[:43]
    'the driver of session s stopped: KeyError; '
    """
    return (
        f"{what}: {_name(error)}; this is a bug of turnstate, unless a store, a model or other code of yours raised it: "
        'please report it with its traceback, which is in the log "turnstate"'
    )
