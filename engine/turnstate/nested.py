"""An agent as a tool of another one: a session below the call, driven by an engine of its own on the same store.

A call that has to wait for a person in there is suspended: its task ends, what the person is asked surfaces in the session
above, and an answer begins the call again, which hands the answer down and goes on. That is also what happens after a
crash, so that there is one way to go on.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

import trio

from turnstate_states.core import SessionCore
from turnstate_states.errors import InvalidInput, Refused, SessionInUse, StoreError, ToolError
from turnstate_states.reports import Stopped
from turnstate_states.rules import Rules
from turnstate_states.submissions import Interrupt
from turnstate_states.turn import Call, Nested, Wants

from .beginning import claimed
from .reading import load
from .records import stored_commit
from .results import Result
from .running import Abandoned, Suspended
from .session import Session
from .stores.base import Store
from .tools import Tool, ToolContext

if TYPE_CHECKING:
    from .agent import Agent
    from .engine import Engine

__all__ = ["AgentTool", "child_session", "end_children"]

TASK = "task"
"""The id of the submission that gives a child its task: sent again after a crash, it acts once."""
PATIENCE = 4.0
"""Seconds that a child gets to end its turn when the call above it is told to end."""


class AgentTool(Tool[[str, ToolContext[Any]], Awaitable[str]]):
    """A tool that has an agent do something; see :meth:`turnstate.Agent.as_tool`."""

    def __init__(self, agent: Agent[Any], name: str, description: str, **options: Any) -> None:
        async def run(task: str, ctx: ToolContext[Any]) -> str:
            return await run_child(agent, task, ctx)

        run.__doc__ = f"{description}\n\nArgs:\n    task: What to do, with all that needs to be known for it."
        super().__init__(run, name=name, on_crash="rerun", **options)
        self.agent = agent


def child_session(session: str, call: str) -> str:
    """The id of the session in which an agent does what this call asks for.

    >>> child_session("alice", "m2.0")
    'alice/m2.0'
    """
    name = f"{session}/{call}"
    return name if len(name) <= 200 else f"{hashlib.sha256(name.encode()).hexdigest()[:32]}/{call}"


async def run_child(agent: Agent[Any], task: str, ctx: ToolContext[Any]) -> str:
    """Have the agent do the task, or go on with it, until it is done or waits for a person."""
    above: Engine[Any] | None = ctx.engine
    if above is None:
        raise InvalidInput("an agent as a tool can be run by an engine only")
    below = above.below(agent, ctx)
    try:
        async with below as engine:
            result = await _run(engine.session(child_session(ctx.session_id, ctx.call_id)), task, ctx, above)
    except StoreError:
        if above.closing:
            raise Abandoned from None
        raise
    finally:
        above.forget_below(below)
    return _text(agent, result, ctx)


async def _run(session: Session, task: str, ctx: ToolContext[Any], above: Engine[Any]) -> Result[str]:
    try:
        await _hand_down(session, ctx.nested)
        async with session.turn(task, id=TASK) as turn:
            return await turn.result(check=False)
    except trio.Cancelled:
        if not above.closing:
            with trio.move_on_after(PATIENCE, shield=True):
                await session.interrupt("the call above it was ended")
                await _ended(session)
        raise


async def _ended(session: Session) -> None:
    """Wait until the turn has ended."""
    async with session.events(after=(await session.info()).last_event) as events:
        if (await session.info()).unfinished:
            async for _ in events:
                if not (await session.info()).unfinished:
                    return


def _text(agent: Agent[Any], result: Result[str], ctx: ToolContext[Any]) -> str:
    if result.outcome == "waiting":
        raise Suspended(tuple(map(_nested, result.waiting)))
    ctx.count_usage(agent.model.name, result.usage)
    if result.outcome != "completed":
        raise ToolError(f"the agent did not complete the task ({result.outcome}): {result.reason}")
    return result.text


def _nested(call: Call) -> Nested:
    wants: Wants = "result" if call.wants == "result" else "decision"
    return Nested(call.id, call.tool, call.arguments_json, wants, call.reason, call.prompt, call.expires_at)


async def _hand_down(session: Session, nested: Iterable[Nested]) -> None:
    """Give the child the answers that were given above it; those that it had before act once."""
    for call in nested:
        decision = call.decision
        if decision is None:
            continue
        name = f"answer:{call.id}:{decision.at:.6f}"
        try:
            await _answer(session, call, name)
        except Refused:
            pass  # its request has expired meanwhile, or the child was told to end


async def _answer(session: Session, call: Nested, id: str) -> None:
    decision = call.decision
    assert decision is not None
    if decision.verdict == "provide":
        given = call.provided or {}
        await session.provide(
            call.id,
            given.get("result"),
            text=given.get("text"),
            error=bool(given.get("error")),
            artifact=given.get("artifact"),
            by=decision.by,
            id=id,
        )
        return
    await session.hand_down(call.id, decision, call.edited, id)


async def end_children(store: Store, session: str, calls: Iterable[str], now: Callable[[], float] = time.time) -> None:
    """End the turns of the children of calls that are settled, and of their children.

    A child that another engine drives at this moment is left to it.
    """
    for call in calls:
        child = child_session(session, call)
        try:
            async with claimed(store, child) as owner:
                open_calls = await _end(store, child, owner, now())
        except SessionInUse:
            continue
        await end_children(store, child, open_calls, now)


async def _end(store: Store, session: str, owner: str, now: float) -> list[str]:
    loaded = await load(store, session)
    if loaded is None:
        return []
    core = SessionCore(*loaded, Rules())
    turn = core.turn
    if turn is None or turn.final:
        return []
    open_calls = [call.id for call in turn.calls.values() if not call.settled]
    core.submit(Interrupt("above", None, "the call above it was ended"), now=now, keep=False)
    if core.stopping and turn.state != "awaiting-approval":
        core.report(Stopped(turn.id), now=now)
    commit = core.commit(now)
    if commit is not None:
        await store.commit(stored_commit(commit, owner))
    return open_calls
