"""Running one call of a tool, in a task of its own."""

from __future__ import annotations

import functools
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any, cast

import attrs
import trio

from turnstate_states import texts
from turnstate_states.content import ResultStatus, clean_text
from turnstate_states.errors import ToolError

from .failures import describe, only
from .tools import Tool, ToolContext, result_text

__all__ = ["CallTask", "ThreadList", "run_check", "run_tool"]

log = logging.getLogger("turnstate")
GRACE = 5.0
"""Seconds that an async tool has to end after it was cancelled; then it is left alone and its outcome is unknown."""


class ThreadList:
    """The threads in which functions run, and those that nobody waits for any more."""

    def __init__(self, limit: int = 40) -> None:
        self.limiter = trio.CapacityLimiter(limit)
        self._lock = threading.Lock()
        self._running: dict[object, str] = {}

    @property
    def running(self) -> list[str]:
        """Names of the calls whose function still runs."""
        with self._lock:
            return list(self._running.values())

    async def run(self, name: str, function: Callable[[], Any]) -> Any:
        """Run a function in a thread. Cancelling leaves the thread alone, and it stays listed until it ends."""
        token = object()

        started: list[bool] = []

        def body() -> Any:
            started.append(True)
            try:
                return function()
            finally:
                self._forget(token)

        with self._lock:
            self._running[token] = name
        try:
            return await trio.to_thread.run_sync(body, abandon_on_cancel=True, limiter=self.limiter)
        except trio.Cancelled:
            # Cancelled before a thread was free: body will never run and cannot take the name off the list.
            if not started:
                self._forget(token)
            raise

    def _forget(self, token: object) -> None:
        with self._lock:
            self._running.pop(token, None)


@attrs.define(eq=False)
class CallTask:
    """A running call. ``began`` is set before the tool's first instruction; ``done`` when its task is gone."""

    id: str
    context: ToolContext[Any]
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    began: bool = False
    done: bool = False
    give_up_at: float | None = None

    def cancel(self) -> None:
        """Ask it to end; it has a grace to do so."""
        if self.scope.cancel_called:
            return
        self.context.cancel()
        self.scope.cancel()
        self.give_up_at = trio.current_time() + GRACE


Outcome = tuple[ResultStatus, str, str]
"""Status, the text for the model, a short reason."""


async def run_tool(tool: Tool[..., Any], arguments: str, task: CallTask, threads: ThreadList) -> Outcome | None:
    """Run a call to its end; None if it was cancelled, so that nothing is known of it.

    Exceptions of the tool become error results. KeyboardInterrupt, SystemExit and cancellation pass.
    """
    with task.scope:
        await trio.lowlevel.checkpoint_if_cancelled()
        task.began = True
        if tool.timeout is not None:
            task.give_up_at = trio.current_time() + tool.timeout + GRACE
        with trio.move_on_after(tool.timeout if tool.timeout is not None else float("inf")) as limit:
            return await _outcome(tool, arguments, task, threads)
        if limit.cancelled_caught:
            task.context.cancel()
            return timed_out(tool)
    return None


def timed_out(tool: Tool[..., Any]) -> Outcome:
    """The outcome of a call that took too long."""
    reason = f"timed out after {tool.timeout:g} s; it may have taken effect"
    return "unknown", texts.unknown(reason), reason


async def _outcome(tool: Tool[..., Any], arguments: str, task: CallTask, threads: ThreadList) -> Outcome:
    try:
        value = await _invoke(tool, arguments, task.context, threads)
        return "ok", result_text(value, tool.output_limit), ""
    except ToolError as error:
        return "error", clean_text(str(error)) or "ToolError", str(error)
    except (trio.Cancelled, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        cause = only(error)
        if isinstance(cause, (trio.Cancelled, KeyboardInterrupt, SystemExit)):
            raise
        text = describe(cause)
        log.warning("tool %s failed in call %s: %s", tool.name, task.id, text, exc_info=error)
        return "error", text, text
    finally:
        # Nobody of a cancelled call waits for it any more; a thread may look at this.
        if task.scope.cancel_called:
            task.context.cancel()


async def _invoke(tool: Tool[..., Any], arguments: str, context: ToolContext[Any], threads: ThreadList) -> Any:
    bound = tool.bind(arguments, context)
    if tool.is_async:
        return await cast(Callable[..., Awaitable[Any]], tool.function)(**bound)
    name = f"{context.tool} ({context.session_id}/{context.call_id})"
    value: object = await threads.run(name, functools.partial(tool.function, **bound))
    return await value if inspect.isawaitable(value) else value


async def run_check(tool: Tool[..., Any], arguments: str, task: CallTask) -> tuple[bool, str]:
    """Look at the world for a call that had started when its process died.

    Returns:
        Whether anything is known, and the text: of the result, or empty if the call did not happen. An exception in the
        check leaves the outcome unknown.
    """
    check = tool.on_crash
    assert callable(check)
    try:
        bound = tool.bind_for(check, arguments, task.context)
        value = await check(**bound)
        return True, "" if value is None else result_text(value, tool.output_limit)
    except Exception as error:
        log.warning("the check of tool %s failed in call %s", tool.name, task.id, exc_info=error)
        return False, f"after restart ({describe(error)})"
