"""What a host gives its tools and hooks: checked when the engine is made, made when a turn begins or goes on."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from turnstate_states import checks
from turnstate_states.errors import HookError, InvalidInput

from .failures import describe, failure_in
from .results import SessionInfo
from .tools.declaring import is_async, yields

__all__ = ["check_deps", "made_deps"]


def check_deps(deps: Any) -> None:
    """Refuse what is no plain function of one SessionInfo.

    Raises:
        InvalidInput: the text says what to do.
    """
    if not callable(deps):
        raise InvalidInput(
            f"deps: expected a function of a SessionInfo, got {checks.shown(deps)}; for one value that all sessions share "
            "write deps=lambda info: value"
        )
    if is_async(deps) or yields(deps):
        raise InvalidInput("deps: an async function is not supported; make what needs awaiting before Engine(...)")
    try:
        inspect.signature(deps).bind(SessionInfo("any"))
    except TypeError as error:
        raise InvalidInput(f"deps: it is called with one SessionInfo, which it cannot be: {error}") from None
    except ValueError:
        pass  # it has no signature that could be known


def made_deps(make: Callable[[SessionInfo], Any], info: SessionInfo) -> Any:
    """What the host's function gives for a session.

    Raises:
        HookError: it raised, or gave something that must be awaited first.
    """
    try:
        deps = make(info)
    except BaseException as raised:
        error = failure_in(raised)
        raise HookError(f"deps failed: {describe(error)}") from error
    if inspect.iscoroutine(deps):
        deps.close()
        raise HookError("deps failed: it gave a coroutine; an async function is not supported")
    return deps
