"""Running one call of a tool, in a task of its own."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, cast

import attrs
import trio

from turnstate_states import texts
from turnstate_states.content import ResultStatus
from turnstate_states.errors import StoreError, ToolError
from turnstate_states.turn import Nested
from turnstate_states.values import Value

from .failures import describe_to_model, failure_in, in_full
from .threads import LEFT, Place, ThreadList
from .tools import Tool, ToolContext
from .tools.output import as_output, result_text, shorten

__all__ = ["CallTask", "ThreadList", "crowded", "invoke_tool", "run_check", "run_tool", "runs_in_thread"]

log = logging.getLogger("turnstate")
GRACE = 5.0
"""Seconds that an async tool has to end after it was cancelled; then it is left alone and its outcome is unknown."""


@attrs.define(eq=False)
class CallTask:
    """A running call. ``began`` is set before the tool's first instruction; ``done`` when its task is gone.

    ``place`` is its place among those that run in threads, if it has one. ``in_thread``: nothing of it runs before its
    function does, in a thread, which then sets ``began``.
    """

    id: str
    context: ToolContext[Any]
    in_thread: bool = False
    place: Place | None = None
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    began: bool = False
    done: bool = False
    give_up_at: float | None = None

    def cancel(self) -> None:
        """Ask it to end; it has a grace to do so."""
        if self.scope.cancel_called:
            return
        self.context.cancel()
        if self.context.engine is not None:
            self.context.engine.call_ends(self.context)
        self.scope.cancel()
        self.give_up_at = trio.current_time() + GRACE


class Suspended(BaseException):
    """Raised by a call that cannot go on before a person answers the calls nested in it.

    Like a cancellation it is no failure, so what handles exceptions of tools lets it pass.
    """

    def __init__(self, nested: tuple[Nested, ...]) -> None:
        super().__init__("it waits for a person")
        self.nested = nested


class Abandoned(BaseException):
    """Raised by a call that was cut off and begins again: its engine closes, or, with ``cause``, its own session broke."""

    def __init__(self, cause: StoreError | None = None) -> None:
        super().__init__("it begins again")
        self.cause = cause


@attrs.frozen(eq=False, repr=False)
class Outcome(Value):
    """How a call went: its status, the text for the model, a short reason; ``more`` are other fields of the report."""

    status: ResultStatus
    text: str
    reason: str = ""
    more: Mapping[str, Any] = attrs.field(factory=dict[str, Any])


async def run_tool(
    tool: Tool[..., Any],
    task: CallTask,
    invoke: Callable[[], Awaitable[Any]],
    may_begin: Callable[[], Awaitable[bool | Outcome]],
) -> Outcome | Suspended | Abandoned | None:
    """Run a call by ``invoke`` to its end, once ``may_begin`` says so; None if it was cancelled: nothing is known of it.

    ``may_begin`` may also say how it ended without having begun. The tool's time runs from when it begins.

    Exceptions of the tool become error results. KeyboardInterrupt, SystemExit and cancellation pass.
    """
    with task.scope:
        may = await may_begin()
        if isinstance(may, Outcome):
            return may
        if not may:
            return None
        await trio.lowlevel.checkpoint_if_cancelled()
        task.began = not task.in_thread
        done: Outcome | Suspended | Abandoned | None = None
        with trio.move_on_after(tool.timeout if tool.timeout is not None else float("inf")) as limit:
            done = await _outcome(tool, task, invoke, limit)
        if done is None and limit.cancel_called and not task.scope.cancel_called:
            task.context.cancel()
            return timed_out(tool)
        return done
    return None


def crowded(tool: Tool[..., Any]) -> Outcome:
    """The outcome of a call for which there was no thread."""
    reason = f"{LEFT} functions that this session called before still run, though nobody waits for them any more"
    log.warning("tool %s was not run: %s", tool.name, reason)
    return Outcome("not-run", texts.not_run(reason), reason)


def timed_out(tool: Tool[..., Any]) -> Outcome:
    """The outcome of a call that took too long."""
    reason = f"timed out after {tool.timeout:g} s; it may have taken effect"
    return Outcome("unknown", texts.unknown(reason), reason)


async def _outcome(
    tool: Tool[..., Any], task: CallTask, invoke: Callable[[], Awaitable[Any]], limit: trio.CancelScope
) -> Outcome | Suspended | Abandoned | None:
    try:
        value = await invoke()
        text, more = as_output(value, tool.output_limit)
        return Outcome("ok", text, more=more)
    except ToolError as error:
        return _failed(tool, describe_to_model(error, "the tool"))
    except BaseException as error:
        cause = failure_in(error)
        if isinstance(cause, (Suspended, Abandoned)):
            return cause
        if task.scope.cancel_called or limit.cancel_called:
            # It was told to end and its way out failed: that says nothing about whether it took effect.
            log.warning("tool %s failed when call %s was told to end", tool.name, task.id, exc_info=error)
            return None
        text = shorten(in_full(cause), 500)
        log.warning("tool %s failed in call %s: %s", tool.name, task.id, text, exc_info=error)
        return _failed(tool, describe_to_model(cause, "the tool", in_words=tool.errors == "text"))
    finally:
        # Nobody of a cancelled call waits for it any more; a thread may look at this.
        if task.scope.cancel_called or limit.cancel_called:
            task.context.cancel()


def _failed(tool: Tool[..., Any], text: str) -> Outcome:
    return Outcome("error", shorten(text, tool.output_limit), shorten(text, 500))


def runs_in_thread(tool: Tool[..., Any]) -> bool:
    """Whether a tool's function is a plain one."""
    return not (tool.is_async or tool.yields)


async def invoke_tool(tool: Tool[..., Any], arguments: str, task: CallTask, threads: ThreadList) -> Any:
    """Call a tool's function with its arguments; a plain one in a thread."""
    context = task.context
    bound = tool.bind(arguments, context)
    if tool.yields:
        return await _last_of(cast(Callable[..., AsyncGenerator[Any, None]], tool.function)(**bound), context)
    if tool.is_async:
        return await cast(Callable[..., Awaitable[Any]], tool.function)(**bound)
    name = f"{context.tool} ({context.session_id}/{context.call_id})"
    function = functools.partial(tool.function, **bound)

    def begins() -> None:
        task.began = True

    value: object = await threads.run(context.session_id, name, function, begins)
    return await value if inspect.isawaitable(value) else value


async def _last_of(values: AsyncGenerator[Any, None], context: ToolContext[Any]) -> Any:
    """Tell what a tool yields as progress; the last value is its result."""
    last: Any = None
    told = False
    async with aclosing(values):
        async for value in values:
            if told:
                context.progress(last)
            last, told = value, True
    return last


async def run_check(tool: Tool[..., Any], arguments: str, task: CallTask) -> str | None:
    """Look at the world for a call that had started when its process died.

    Returns:
        The text of its result, or None if it did not happen. An exception leaves the outcome unknown, and so does taking
        longer than the tool may.
    """
    check = tool.on_crash
    assert callable(check), "only a call whose tool has a check is checked"
    bound = tool.bind_for(check, arguments, task.context)
    with trio.fail_after(tool.timeout if tool.timeout is not None else float("inf")):
        value = await check(**bound)
    return None if value is None else result_text(value, tool.output_limit)
