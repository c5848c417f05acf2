"""An agent as a tool of another one: a session below the call, driven by an engine of its own on the same store.

A call that has to wait for a person in there is suspended: its task ends, what the person is asked surfaces in the session
above, and an answer begins the call again, which hands the answer down and goes on. That is also what happens after a
crash, so that there is one way to go on.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import trio

from turnstate_states import checks, codec
from turnstate_states.checkpoint import Checkpoint
from turnstate_states.content import as_parts
from turnstate_states.core import SessionCore
from turnstate_states.errors import CheckpointError, InvalidInput, Refused, SessionInUse, StoreError, ToolError
from turnstate_states.reports import Stopped
from turnstate_states.rules import Rules
from turnstate_states.submissions import Answer, Interrupt, Provide, Send
from turnstate_states.transcript import Transcript
from turnstate_states.turn import Call, Decision, Nested, Wants

from .beginning import claimed
from .inputs import checked
from .reading import load
from .records import stored_commit
from .results import Result
from .running import Abandoned, Suspended
from .session import Session
from .stores.base import Store
from .tools import Tool, ToolContext
from .turns import Turn, TurnManager

if TYPE_CHECKING:
    from .agent import Agent
    from .engine import Engine

__all__ = ["AgentTool", "child_session", "delete_session", "end_children", "hand_down"]

log = logging.getLogger("turnstate")
TASK = "task"
"""The id of the submission that gives a child its task: sent again after a crash, it acts once."""
ENDED = "the call above it was ended"
PATIENCE = 4.0
"""Seconds that a child gets to end its turn when the call above it is told to end."""
AGAIN = 0.5
"""Seconds between looks at a child that somebody else still holds."""


class AgentTool(Tool[[str, ToolContext[Any]], Awaitable[str]]):
    """A tool that has an agent do something; see :meth:`turnstate.Agent.as_tool`."""

    def __init__(self, agent: Agent[Any], name: str, description: str, **options: Any) -> None:
        async def run(task: str, ctx: ToolContext[Any]) -> str:
            if ctx.engine is None:
                raise InvalidInput("an agent as a tool can be run by an engine only")
            try:
                return await ChildRun(agent, task, ctx).text()
            except InvalidInput as error:  # about the task, which is the model's own
                raise ToolError(str(error)) from error

        run.__doc__ = f"{description}\n\nArgs:\n    task: What to do, with all that needs to be known for it."
        super().__init__(run, name=name, on_crash="rerun", **options)
        self.agent = agent
        self.spec = attrs.evolve(self.spec, agent=True)


def child_session(session: str, call: str) -> str:
    """The id of the session in which an agent does what this call asks for.

    >>> child_session("alice", "m2.0")
    'alice/m2.0'
    """
    name = f"{checks.identifier('session', session)}/{checks.text('call', call, filled=True)}"
    return name if len(name) <= 200 else f"{hashlib.sha256(name.encode()).hexdigest()[:32]}/{call}"


class ChildRun:
    """One go at a child's turn: from the beginning of the call above it to its end, or to what a person must answer."""

    def __init__(self, agent: Agent[Any], task: str, ctx: ToolContext[Any]) -> None:
        self._agent = agent
        self._task = task
        self._ctx = ctx
        self._above: Engine[Any] = ctx.engine
        self._begun_by = self._above.driven(ctx.session_id)
        self._id = child_session(ctx.session_id, ctx.call_id)
        self._faults: dict[str, str] = {}

    async def text(self) -> str:
        """Have the agent do the task, or go on with it, and give its answer.

        Raises:
            Suspended: it waits for a person.
            Abandoned: it was cut off, and goes on when the call begins again.
            ToolError: it did not complete.
        """
        below = self._above.below(self._agent, self._ctx)
        try:
            async with below as engine:
                result = await self._result(engine)
        except CheckpointError:
            raise
        except StoreError as error:
            raise Abandoned(None if self._above.closing else error) from error
        finally:
            self._above.forget_below(below)
        if result.outcome == "completed":
            return result.text
        if result.waiting:
            raise Suspended(tuple(map(self._nested, result.waiting)))
        # The text of an error may be a server's, and this one's model may be somebody else's: it reads the kind alone.
        why = result.reason if result.error is None else result.error.kind
        raise ToolError(f"the agent did not complete the task ({result.outcome}): {why}")

    async def _result(self, engine: Engine[Any]) -> Result[str]:
        while True:
            try:
                await self._hand_down(engine.store)
                result = await self._drive(engine, engine.session(self._id))
            except SessionInUse:
                await self._check_parent(engine.store)
            else:
                if result.outcome != "waiting":
                    await self._count_usage(engine.store)
                return result
            # Those that began it before are on their way out, or their process is gone and their lease will lapse.
            await trio.sleep(AGAIN)

    async def _check_parent(self, store: Store) -> None:
        checkpoint = await _checkpoint(store, self._id)
        if checkpoint is not None and checkpoint.parent != self._ctx.session_id:
            raise InvalidInput(f"session {self._id} exists and does not belong to this call; delete or rename it")

    async def _drive(self, engine: Engine[Any], session: Session) -> Result[str]:
        task = Send(TASK, as_parts(self._task), author="agent")
        async with TurnManager[str](engine, session.id, checked(task), explicit=True) as turn:
            try:
                return await turn.result(check=False)
            except trio.Cancelled:
                ended: Result[str] | None = None
                with trio.move_on_after(PATIENCE, shield=True):
                    ended = await self._end(session, turn)
                if ended is None:
                    raise
                return ended

    async def _end(self, session: Session, turn: Turn[str]) -> Result[str] | None:
        """End the turn with the call above it; its result, if it had come to an end in the same instant."""
        if self._above.closing or self._above.driven(self._ctx.session_id) is not self._begun_by:
            return None  # the call is not ended: it begins again
        self._ctx.cancel()
        try:
            await session.interrupt(ENDED)
            result = await turn.result(check=False)
            if result.outcome == "completed":
                return result
            await self._count_usage(self._above.store)
        except StoreError as error:
            log.warning("the child session %s was not ended with the call above it: %s", self._id, error)
        return None

    async def _count_usage(self, store: Store) -> None:
        with trio.CancelScope(shield=True):  # what the child came to is known by now
            checkpoint = await _checkpoint(store, self._id)
            for model, usage in () if checkpoint is None else checkpoint.usage.items():
                self._ctx.count_usage(model, usage)

    def _nested(self, call: Call) -> Nested:
        wants: Wants = "result" if call.wants == "result" else "decision"
        reason = self._faults.get(call.id, call.reason)
        return Nested(
            call.id,
            call.tool,
            call.arguments_json,
            wants,
            reason,
            call.prompt,
            call.expires_at,
            agent=f"{self._ctx.tool}/{call.agent}" if call.agent else self._ctx.tool,
            filled=call.filled,
            permissions=call.permissions,
            covers=call.covers,
            digest=call.digest,
            changed=call.changed,
        )

    async def _hand_down(self, store: Store) -> None:
        """Give the child the answers that were given above it; those that it had before change nothing.

        They count from when they were given: what has expired since then had been answered in time.
        """
        answers = sorted(
            ((call.decision, call) for call in self._ctx.nested if call.decision is not None),
            key=lambda answer: answer[0].at,
        )
        if not answers:
            return
        async with claimed(store, self._id) as owner:
            loaded = await load(store, self._id)
            if loaded is None or loaded[0].parent != self._ctx.session_id:
                return
            core = SessionCore(*loaded, self._agent.rules)
            core.resume(answers[0][0].at)
            for decision, call in answers:
                self._submit(core, call, decision)
            commit = core.commit(answers[-1][0].at, decide=False)
            if commit is not None:
                await store.commit(stored_commit(commit, owner))

    def _submit(self, core: SessionCore, call: Nested, decision: Decision) -> None:
        try:
            core.submit(_said(call, decision), now=decision.at, keep=False)
        except Refused:
            pass  # it had this answer before, or it came too late for it
        except InvalidInput as error:  # a person is asked again
            self._faults[call.id] = str(error)


def hand_down(engine: Engine[Any], ctx: ToolContext[Any]) -> None:
    """Give a child that is driven at this moment the answers that came while it worked.

    One that does not get them has them handed down when its call begins again.
    """
    driver = engine.driven(child_session(ctx.session_id, ctx.call_id))
    if driver is None:
        return
    for call in ctx.nested:
        if call.late and call.decision is not None:
            driver.submit(_said(call, call.decision))


def _said(call: Nested, decision: Decision) -> Answer | Provide:
    """An answer as it was given above."""
    id = f"answer:{call.id}"
    if decision.verdict == "provide":
        return Provide(id, call.id, by=decision.by, digest=call.digest, given=decision.at, **(call.provided or {}))
    return Answer(
        id,
        (call.id,),
        decision.verdict,
        call.edited,
        decision.for_session,
        decision.reason,
        decision.end_turn,
        decision.by,
        decision.option,
        decision.text,
        decision.answers,
        {call.id: call.digest} if call.digest else {},
        given=decision.at,
    )


async def _checkpoint(store: Store, session: str) -> Checkpoint | None:
    stored = await store.load(session)
    return None if stored is None else codec.decode_checkpoint(stored.checkpoint)


async def end_children(
    store: Store, session: str, calls: Iterable[str], now: Callable[[], float] = time.time
) -> list[str]:
    """End what still runs or waits in the children of calls that are settled, and in their children.

    Returns:
        The calls whose children could not be ended now: somebody holds them, or the store failed.
    """
    left: list[str] = []
    for call in calls:
        child = child_session(session, call)
        try:
            checkpoint = await _checkpoint(store, child)
            if checkpoint is not None and checkpoint.parent == session and not _over(checkpoint):
                async with claimed(store, child) as owner:
                    await _end(store, child, owner, now)
        except SessionInUse:
            left.append(call)
        except StoreError as error:
            log.warning("the child session %s was not ended with the call above it: %s", child, error)
            left.append(call)
    return left


def _over(checkpoint: Checkpoint) -> bool:
    return checkpoint.turn is None or checkpoint.turn.closed


async def _end(store: Store, session: str, owner: str, now: Callable[[], float]) -> None:
    loaded = await load(store, session)
    if loaded is None or _over(loaded[0]):
        return
    core = SessionCore(*loaded, Rules())
    turn = core.turn
    if turn is not None and not turn.final:
        await end_children(store, session, [call.id for call in turn.calls.values() if not call.settled], now)
        core.submit(Interrupt("above", None, ENDED), now=now(), keep=False)
        if turn.state != "awaiting-approval":
            core.report(Stopped(turn.id), now=now())
    commit = core.commit(now())
    if commit is not None:
        await store.commit(stored_commit(commit, owner))


async def delete_session(store: Store, session: str, *, owner: str = "") -> Sequence[str]:
    """Delete a session and its children; the ids of those that existed.

    Raises:
        Refused: ``busy``: a turn of it has not ended.
        SessionInUse: another engine drives one of them.
    """
    try:
        return await store.delete(session, owner=owner, unfinished=False)
    except Refused:
        loaded = await load(store, session)
        if loaded is None or not _over(loaded[0]):
            raise
    # A process that died between the end of a call and that of its child left the child behind.
    await _end_all_below(store, session, loaded[1])
    return await store.delete(session, owner=owner, unfinished=False)


async def _end_all_below(store: Store, session: str, transcript: Transcript) -> None:
    """End all children, also those of children that are over."""
    calls = [part.id for message in transcript.all() for part in message.calls]
    await end_children(store, session, calls)
    for child in (child_session(session, call) for call in calls):
        loaded = await load(store, child)
        if loaded is not None and loaded[0].parent == session:
            await _end_all_below(store, child, loaded[1])
