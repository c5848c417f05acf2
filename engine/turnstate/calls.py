"""The running calls of a driven session: begin, look after, cancel, give up."""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import trio

from turnstate_states import texts
from turnstate_states.checkpoint import Commit
from turnstate_states.errors import HookError
from turnstate_states.events import CallProgress
from turnstate_states.reports import Activity, CallChecked, CallDone, CallsBroken, CallSuspended
from turnstate_states.transcript import Message, Usage
from turnstate_states.turn import Call, CallStatus

from .activities import failure_of
from .deciding import Question, decide
from .failures import describe_to_model, failure_in
from .running import (
    GRACE,
    Abandoned,
    CallTask,
    Outcome,
    Suspended,
    crowded,
    invoke_tool,
    run_check,
    run_tool,
    runs_in_thread,
    timed_out,
)
from .tools import Tool, ToolContext

if TYPE_CHECKING:
    from .driver import Driver

__all__ = ["CallRunner"]

log = logging.getLogger("turnstate")


class CallRunner:
    """Runs the calls of one session, each in a task of the engine's nursery."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._tasks: dict[str, CallTask] = {}
        self._lingering: list[CallTask] = []
        self._free = trio.Event()
        self._not_begun: list[str] = []
        self._used: dict[str, Usage] = {}
        self._not_ended: list[str] = []

    @property
    def active(self) -> bool:
        """Whether a call runs, is looked after or is being decided on."""
        return bool(self._tasks)

    @property
    def remain(self) -> bool:
        """Whether there is a task of any call, also one that was left alone."""
        return bool(self._tasks or self._lingering)

    @property
    def not_begun(self) -> list[str]:
        """Calls of the turn that had the right to begin and never did."""
        return self._not_begun

    def take_used(self) -> dict[str, Usage]:
        """What models of stopped calls' own used, by model."""
        used, self._used = self._used, {}
        return used

    def align(self, commit: Commit | None) -> None:
        """Cancel what is settled or told to end; begin what the commit started."""
        core = self._driver.core
        turn = core.turn
        calls = {} if turn is None or turn.final or core.stopping else turn.calls
        for name, task in tuple(self._tasks.items()):
            call = calls.get(name)
            if call is None or call.settled:
                task.cancel()
            elif call.nested is not task.context.nested:
                task.context.nested = call.nested
                self._driver.engine.answered(task.context)
        if commit is None:
            return
        if commit.started:
            self._not_begun = []
        for call in commit.started:
            self._start(call, self._run)
        if self._driver.holds:
            return
        for call in commit.checking:
            self._start(call, self._check)
        if turn is not None and turn.state == "executing-tools":
            for call in calls.values():
                if call.status == "proposed" and call.id not in self._tasks and not self._driver.decided(call.id):
                    self._start(call, self._decide)

    def _start(self, call: Call, run: Any) -> None:
        turn = self._driver.core.turn
        assert turn is not None, "a call starts only in a turn"
        task = CallTask(call.id, self._context(call, turn.id))
        self._tasks[call.id] = task
        self._driver.engine.start(self._guarded, call, task, run, Activity("execute", turn.id, turn.step))

    def _context(self, call: Call, turn: str) -> ToolContext[Any]:
        driver = self._driver
        token = trio.lowlevel.current_trio_token()

        def tell(value: object) -> None:
            event = CallProgress(call.id, value, turn=turn, at=driver.now())
            if _token() is token:
                driver.progress(event)
                return
            try:
                token.run_sync_soon(driver.progress, event)
            except trio.RunFinishedError:
                pass  # a function that nobody waits for any more, in a thread that outlived the run

        context: ToolContext[Any] = ToolContext(
            None,
            session_id=driver.session,
            turn_id=turn,
            call_id=call.id,
            tool=call.tool,
            progress=tell,
            life=driver.core.checkpoint.life,
        )
        if call.permissions is not None:
            context.permissions = call.permissions
        context.decision = call.decision
        context.nested = call.nested
        context.engine = driver.engine
        return context

    async def _guarded(self, call: Call, task: CallTask, run: Any, key: Activity) -> None:
        """Run one of the three, and take the task off the list on every path."""
        try:
            await run(call, task, key)
        finally:
            task.done = True
            if task.place is not None:
                task.place.give_back()
            if task in self._lingering:
                self._lingering.remove(task)
                self._free.set()
            else:
                if not task.began and run == self._run:
                    self._not_begun.append(task.id)
                del self._tasks[task.id]
            self._driver.wake()

    async def _run(self, call: Call, task: CallTask, key: Activity) -> None:
        driver = self._driver
        tool = driver.agent.tools.by_name[call.tool]
        if not self._give_deps(task, key):
            return
        may_begin = functools.partial(self._may_begin, tool, task)
        done = await run_tool(tool, task, self._invocation(tool, call, task), may_begin)
        if isinstance(done, Suspended):
            driver.report(CallSuspended(key, call.id, done.nested, task.context.usage))
        elif isinstance(done, Abandoned):
            if done.cause is not None:
                driver.stop(done.cause)
        elif done is not None and task not in self._lingering:
            driver.report(CallDone(key, call.id, done.status, done.text, done.reason, task.context.usage, **done.more))
        elif done is None:
            for model, usage in task.context.usage.items():
                self._used[model] = self._used.get(model, Usage()) + usage

    def _invocation(self, tool: Tool[..., Any], call: Call, task: CallTask) -> Callable[[], Awaitable[Any]]:
        """The tool's function with its arguments, inside what middleware puts around it, the first one outermost."""
        driver = self._driver
        run: Callable[[], Awaitable[Any]] = functools.partial(
            invoke_tool, tool, call.arguments_json, task, driver.engine.threads
        )
        around = driver.agent.hooked("around_call")
        # What middleware does around it may have effects before the function begins.
        task.in_thread = runs_in_thread(tool) and not around
        for item in reversed(around):
            run = functools.partial(item.around_call, task.context, call, run)
        return run

    async def _may_begin(self, tool: Tool[..., Any], task: CallTask) -> bool | Outcome:
        """Wait until there is a thread for a plain function, and until an exclusive tool is alone: calls that did not end
        when told are gone. Whether it may begin then, or what it gave without beginning.
        """
        while tool.spec.exclusive and self._lingering:
            self._free = trio.Event()
            await self._free.wait()
        if runs_in_thread(tool):
            task.place = await self._driver.engine.threads.enter(self._driver.session)
            if task.place is None:
                return crowded(tool)
        if self._driver.core.stopping or self._driver.engine.told_to_end:
            return False
        if tool.timeout is not None:
            task.give_up_at = trio.current_time() + tool.timeout + GRACE
            self._driver.wake()
        return True

    async def _check(self, call: Call, task: CallTask, key: Activity) -> None:
        driver = self._driver
        tool = driver.agent.tools.by_name[call.tool]
        if not self._give_deps(task, key):
            return
        with task.scope:
            try:
                found = await run_check(tool, call.arguments_json, task)
            except BaseException as raised:
                error = failure_in(raised)
                log.warning("the check of tool %s failed in call %s", tool.name, task.id, exc_info=error)
                told = describe_to_model(error, "the check", in_words=tool.errors == "text")
                reason = f"after restart ({told})"
                driver.report(CallDone(key, call.id, "unknown", texts.unknown(reason), reason))
            else:
                driver.report(CallChecked(key, call.id, found))

    async def _decide(self, call: Call, task: CallTask, key: Activity) -> None:
        driver = self._driver
        tool = driver.agent.tools.by_name[call.tool]
        question = Question(key, call, tool, task.context, self._visible)
        if not self._give_deps(task, key):
            return
        with task.scope:
            driver.report(await decide(driver.agent, question))

    def _give_deps(self, task: CallTask, key: Activity) -> bool:
        """Give a call the host's dependencies; without them the turn fails, which is nothing that a model could mend."""
        driver = self._driver
        try:
            task.context.deps = driver.activities.deps()
        except HookError as error:
            log.error("deps failed for session %s", driver.session, exc_info=error)
            driver.report(CallsBroken(key, failure_of(error)), error)
            return False
        return True

    def _visible(self) -> Sequence[Message]:
        """The visible messages for a policy; in a session below, from before their authors were noted, none is a person's."""
        core = self._driver.core
        messages = core.transcript.visible()
        if not core.checkpoint.parent or core.checkpoint.life:
            return messages
        return [attrs.evolve(message, source=message.source or "agent") for message in messages]

    def give_up(self) -> None:
        """Leave alone the calls that did not end in time after they were told to."""
        now = trio.current_time()
        for name, task in tuple(self._tasks.items()):
            if task.give_up_at is None or task.give_up_at > now or task.done:
                continue
            del self._tasks[name]
            self._lingering.append(task)
            tool = self._driver.agent.tools.by_name.get(task.context.tool)
            log.warning("call %s of %s did not end when it was told to; it is left alone", name, task.context.tool)
            turn = self._driver.core.turn
            if tool is not None and turn is not None and not task.scope.cancel_called:
                task.cancel()
                late = timed_out(tool)
                key = Activity("execute", turn.id, turn.step)
                self._driver.report(CallDone(key, name, late.status, late.text, late.reason))

    @property
    def next_give_up(self) -> float:
        """When :meth:`give_up` has something to do; in trio's time."""
        return min(
            (task.give_up_at for task in self._tasks.values() if task.give_up_at is not None), default=float("inf")
        )

    def cancel_all(self) -> None:
        """Tell everything to end."""
        for task in (*self._tasks.values(), *self._lingering):
            task.cancel()

    async def end_children(self, calls: Iterable[Call]) -> None:
        """End what is left of the agents below calls that are settled."""
        tools = self._driver.agent.tools.by_name
        # What is no tool any more, or another one, may have been an agent.
        above = [
            call.id
            for call in calls
            if call.tool not in tools
            or hasattr(tools[call.tool], "agent")
            or call.wants == "nested"
            or call.status == "unknown"
        ]
        if above or self._not_ended:
            from .nested import end_children

            above += self._not_ended
            self._not_ended = await end_children(self._driver.store, self._driver.session, above, self._driver.now)

    def left_behind(self) -> Sequence[Call]:
        """Settled calls below which a process that died may have left something behind.

        Those of the last turn, and of the one before: the commit that ended that may have begun the last one.
        """
        core = self._driver.core
        last = core.checkpoint.turns
        turns = {f"t{last}", f"t{last - 1}"}
        parts = [part for message in core.transcript.all() if message.turn in turns for part in message.calls]
        known = {} if core.turn is None else core.turn.calls
        results: dict[str, CallStatus] = {
            part.call: part.status
            for message in core.transcript.all()
            if message.turn in turns
            for part in message.results
        }
        settled = (part for part in parts if part.id not in known or known[part.id].settled)
        return [Call(part.id, part.name, results.get(part.id, "unknown")) for part in settled]

    @property
    def names(self) -> list[str]:
        """What runs, for people."""
        return [f"{task.context.tool} ({task.id})" for task in (*self._tasks.values(), *self._lingering)]


def _token() -> trio.lowlevel.TrioToken | None:
    try:
        return trio.lowlevel.current_trio_token()
    except RuntimeError:
        return None
