"""One turn, killed at each of its commits in turn."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Literal

import trio

from turnstate_states import checks
from turnstate_states.content import UserPart, as_parts
from turnstate_states.errors import InvalidInput, Refused, StoreError
from turnstate_states.turn import Call

from ..agent import Agent
from ..deps import check_deps
from ..engine import Engine
from ..models.base import Model
from ..results import Result, SessionInfo
from ..session import Session
from ..stores.base import Store, StoredCommit
from ..stores.memory import MemoryStore
from .faulty import FaultyStore

__all__ = ["CrashRun", "Crashes", "crashes"]

SESSION = "crashes"

When = Literal["before", "after"]
Approve = bool | Callable[[Call], bool]
LONGEST = 200
"""Characters of :attr:`CrashRun.at`."""
THREADS = 10.0
"""Seconds that functions in threads get to end after a crash."""


def crashes(
    agent: Agent[Any],
    message: str | Iterable[UserPart],
    *,
    store: Callable[[], Store] = MemoryStore,
    deps: Callable[[SessionInfo], Any] | None = None,
    approve: Approve = True,
    limit: int = 500,
) -> Crashes:
    """Kill a turn before and after each of its commits, in turn; ``async for crash in crashes(agent, "go")``.

    In each round :meth:`CrashRun.finish` runs a fresh session on a fresh store up to that commit, where it dies, and goes
    on from what is stored in a new engine. Nothing runs before you call it, so clear what your tools left behind first.

    Args:
        agent: the agent. A model that has ``fresh()``, such as :class:`ScriptedModel`, starts anew in each round; any
            other must reply by what the request holds. Tools, middleware and policy are shared by all rounds.
        message: the message that starts the turn.
        store: makes the store of a round.
        deps: as for :class:`~turnstate.Engine`.
        approve: the answer to calls that wait for a person.
        limit: the most commits that the turn may have.

    Raises:
        InvalidInput: an argument cannot be used; raised at once.
        AssertionError: the turn has more commits than ``limit``; raised by the loop.
    """
    if not isinstance(agent, Agent):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"agent: expected an Agent, got {checks.shown(agent)}")
    if not callable(store):
        raise InvalidInput(
            f"store: expected a function that makes a store, such as MemoryStore, got {checks.shown(store)}"
        )
    if not isinstance(approve, bool) and not callable(approve):
        raise InvalidInput(f"approve: expected True, False or a function of the call, got {checks.shown(approve)}")
    checks.integer("limit", limit, least=1)
    if deps is not None:
        check_deps(deps)
    kept = as_parts(message)
    return Crashes(Round(agent, kept, store, deps, approve), limit)


class Round:
    """What is the same in all rounds."""

    def __init__(
        self,
        agent: Agent[Any],
        message: str | Sequence[UserPart],
        store: Callable[[], Store],
        deps: Callable[[SessionInfo], Any] | None,
        approve: Approve,
    ) -> None:
        self.agent = agent
        self.message = message
        self.store = store
        self.deps = deps
        self.approve = approve

    def own_agent(self) -> Agent[Any]:
        """The agent with a model of its own, where the model can be had anew."""
        fresh: Callable[[], Model] | None = getattr(self.agent.model, "fresh", None)
        if fresh is None:
            return self.agent
        own = copy.copy(self.agent)
        own.model = fresh()
        return own

    def engine(self, agent: Agent[Any], store: Store) -> Engine[Any]:
        """An engine that is left as if its process died."""
        if self.deps is None:
            return Engine(agent, store, grace=0)
        return Engine(agent, store, deps=self.deps, grace=0)

    async def drive(self, session: Session, *, check: bool = False) -> Result[str]:
        """Run the turn, or go on with it, and answer what it asks."""
        async with session.turn(self.message, id="crashes") as turn:
            while (found := await turn.result(check=False)).outcome == "waiting":
                for call in found.waiting:
                    try:
                        await self._answer(session, call)
                    except Refused:  # settled meanwhile, by its deadline or an interrupt
                        await trio.lowlevel.checkpoint()
            return await turn.result(check=check)

    async def _answer(self, session: Session, call: Call) -> None:
        if self.approve if isinstance(self.approve, bool) else self.approve(call):
            await session.approve(call)
        else:
            await session.deny(call)


class _Dying(FaultyStore):
    """Dies at a commit: that one fails, and so does every later one. It remembers what that commit held."""

    def __init__(self, store: Store, at: int, when: When) -> None:
        super().__init__(store, at, when)
        self.last: StoredCommit | None = None

    async def commit(self, commit: StoredCommit) -> None:
        if self.last is not None:
            raise StoreError("the process is dead")
        if self.commits + 1 == self.fail_at:
            self.last = commit
        await super().commit(commit)


class CrashRun:
    """One round: a session that dies at one commit and goes on.

    ``agent`` is the round's own: its model holds the requests of this round. ``store`` is the store behind the crash.
    """

    def __init__(self, shared: Round, number: int, when: When) -> None:
        self._shared = shared
        self._number = number
        self._when: When = when
        self.agent = shared.own_agent()
        self.store = shared.store()
        self._dying = _Dying(self.store, number, when)
        self._ran = False

    def __repr__(self) -> str:
        return f"<CrashRun {self.at}>"

    @property
    def at(self) -> str:
        """Where it dies, in words: ``before commit 3: CallStarted charge``; the events are known once it has died."""
        where = f"{self._when} commit {self._number}"
        if self.died:
            assert self._dying.last is not None
            told = _told(self._dying.last)
            return _bounded(f"{where}: {told or 'nothing told'}")
        return f"{where}: never reached" if self._ran else where

    @property
    def died(self) -> bool:
        """Whether it came to its commit."""
        return self._dying.last is not None

    @property
    def last(self) -> bool:
        """Whether there is nothing after this to die at."""
        commit = self._dying.last
        ended = commit is not None and commit.session == SESSION and not commit.listing.unfinished
        return commit is None or (self._when == "after" and ended)

    async def die(self) -> None:
        """Run up to the commit and die there. :meth:`finish` does it where you did not."""
        if self._ran:
            return
        self._ran = True
        async with self._shared.engine(self.agent, self._dying) as engine:
            try:
                await self._shared.drive(engine.session(SESSION))
            except StoreError:
                if not self.died:
                    raise
        # A process takes its threads along; here they end before the next one begins.
        with trio.move_on_after(THREADS):
            while engine.threads.running:  # noqa: ASYNC110 - a thread that ends tells nobody
                await trio.sleep(0.01)

    async def finish(self, *, check: bool = True) -> Result[str]:
        """Die, go on in a new engine until the turn ends, and give its result.

        Raises:
            TurnIncomplete: it did not complete. With ``check=False`` the result is returned whatever the outcome.
        """
        await self.die()
        async with self._shared.engine(self.agent, self.store) as engine:
            return await self._shared.drive(engine.session(SESSION), check=check)


class Crashes(AsyncIterator[CrashRun]):
    """The rounds of :func:`crashes`."""

    def __init__(self, shared: Round, limit: int) -> None:
        self._shared = shared
        self._limit = limit
        self._current: CrashRun | None = None
        self._number = 1
        self._when: When = "before"

    def __aiter__(self) -> Crashes:
        return self

    async def __anext__(self) -> CrashRun:
        before = self._current
        if before is not None:
            await before.die()
            if before.last:
                raise StopAsyncIteration
            self._number, self._when = (
                (self._number, "after") if self._when == "before" else (self._number + 1, "before")
            )
        if self._number > self._limit:
            raise AssertionError(f"the turn has more than {self._limit} commits; raise 'limit' if that is right")
        self._current = CrashRun(self._shared, self._number, self._when)
        return self._current


def _told(commit: StoredCommit) -> str:
    """The events of a commit in words."""
    if commit.row is None or not commit.row.events:
        return ""
    names: list[str] = []
    for event in json.loads(commit.row.events):
        name = "".join(word.capitalize() for word in event["type"].split("-"))
        tool = event.get("call", {}).get("tool", "") if isinstance(event.get("call"), dict) else ""
        names.append(f"{name} {tool}" if tool else name)
    return ", ".join(names)


def _bounded(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
