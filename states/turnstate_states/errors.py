"""Every error that turnstate raises on purpose, in one tree.

The branch says whose fault it is::

    TurnstateError
    |-- InvalidInput          yours: a value was wrong; nothing was changed (also a ValueError)
    |-- Refused               the session's: it cannot do that now; nothing was changed
    |-- TurnIncomplete        the turn's: it ended, or waits, without completing
    |   `-- TurnFailed        ... because something broke; the cause is attached
    |-- ModelError            the model's or its server's
    |-- ToolError             raised BY a tool: the model reads exactly its text
    |-- HookError             a middleware's
    |-- PolicyError           a policy's
    `-- StoreError            the store's
        |-- SessionInUse      another process (or engine) drives this session
        |-- StaleSession      another process took the session over; this driver stopped
        `-- CheckpointError   what is stored is not a checkpoint that this version can read

``TurnIncomplete`` and ``TurnFailed`` carry a result and live in ``turnstate.errors``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from .message import Usage

__all__ = [
    "CheckpointError",
    "HookError",
    "InvalidInput",
    "ModelError",
    "ModelErrorKind",
    "PolicyError",
    "RefusalCode",
    "Refused",
    "SessionInUse",
    "StaleSession",
    "StoreError",
    "ToolError",
    "TurnstateError",
]

RefusalCode = Literal["stale", "conflict", "gone", "busy", "full"]

ModelErrorKind = Literal[
    "connection",
    "timeout",
    "cut",
    "protocol",
    "rate-limit",
    "overloaded",
    "server",
    "authentication",
    "permission",
    "not-found",
    "context-overflow",
    "content-filter",
    "invalid-request",
    "other",
]


class TurnstateError(Exception):
    """The root: ``except TurnstateError`` catches everything that this package raises on purpose."""


class InvalidInput(TurnstateError, ValueError):
    """A value was wrong. The text names the field, what was expected and what to do; nothing was changed."""


class Refused(TurnstateError):
    """A submission that the session cannot accept now. Nothing was changed.

    ``code`` is one of

    - ``stale``: it names a turn or a call that is not open (any more);
    - ``conflict``: the same thing was decided otherwise before, or the id was used for other content;
    - ``gone``: the queued message was taken or removed already;
    - ``busy``: not while a turn is active;
    - ``full``: a capacity is used up.
    """

    def __init__(self, code: RefusalCode, message: str) -> None:
        super().__init__(message)
        self.code: RefusalCode = code

    def __reduce__(self) -> tuple[type[Refused], tuple[RefusalCode, str]]:
        return type(self), (self.code, str(self))


class ModelError(TurnstateError):
    """A request to a model did not give a complete reply.

    Args:
        message: one line for a person. Never holds an API key.
        kind: what went wrong, see :data:`ModelErrorKind`.
        retryable: whether the same request may succeed later.
        status: the HTTP status, if there was one.
        retry_after: seconds that the server asked to wait, if it did.
        usage: what the server counted for the attempt all the same, if it told.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: ModelErrorKind = "other",
        retryable: bool = False,
        status: int | None = None,
        retry_after: float | None = None,
        usage: Usage | None = None,
    ) -> None:
        super().__init__(message)
        self.kind: ModelErrorKind = kind
        self.retryable = retryable
        self.status = status
        self.retry_after = retry_after
        self.usage = usage


class ToolError(TurnstateError):
    """Raise it in a tool: the call settles as an error and the model reads exactly this text.

    Of any other exception the model reads the type alone, and the log has text and traceback; a tool with
    ``errors="text"`` lets the model read the text as well.
    """


class HookError(TurnstateError):
    """A hook of a middleware, or the engine's ``deps``, raised; the turn failed with it."""


class PolicyError(TurnstateError):
    """A policy raised or gave something that is not a verdict; the call was asked instead."""


class StoreError(TurnstateError):
    """The store could not read or write. What was accepted before is still there."""


class SessionInUse(StoreError):
    """Another engine drives this session. Read it or send to it, or try again when it is done."""


class StaleSession(StoreError):
    """Another engine took this session over. This driver stopped; nothing of it was written."""


class CheckpointError(StoreError):
    """The stored bytes are not a checkpoint that this version reads. Nothing was written."""
