"""The engine: it owns the tasks, claims sessions and drives them."""

from __future__ import annotations

import importlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Unpack, overload

import trio
from typing_extensions import TypeVar

from turnstate_states import checks, codec
from turnstate_states.errors import InvalidInput, StaleSession, StoreError
from turnstate_states.stepping import compiled

from .agent import Agent, agents_of
from .claims import Claims
from .clock import Clock
from .deps import check_deps, made_deps
from .failures import ends_host, failure_in, without_cancelled
from .middleware.base import Middleware
from .models.base import Model
from .policy.base import Policy
from .reading import SessionFilter, query_of, read_session_page, read_sessions
from .results import SessionInfo, SessionPage
from .running import GRACE, ThreadList
from .serving import Worker
from .session import Session
from .stores.base import Owner, Store
from .tools import ToolContext

if TYPE_CHECKING:
    from .driver import Driver

__all__ = ["Engine"]

D = TypeVar("D", default=None)
log = logging.getLogger("turnstate")


class Engine(Generic[D]):
    """Drives sessions of one agent on one store. Use it as an asynchronous context manager.

    Args:
        agent: what runs.
        store: where sessions are kept; the engine opens it, and closes it unless others still use it.
        deps: a plain function, called with a :class:`~turnstate.SessionInfo` when a turn begins or goes on; what it returns
            is ``ctx.deps`` in tools and hooks. Never stored. If it raises, the turn fails with that error, and no model
            hears of it.
        grace: seconds that running tools get when the engine is left.

    Leaving it starts nothing new and aborts nothing: what runs gets its grace, then it is suspended, and the next engine
    goes on from there, as after a crash.

    Raises:
        InvalidInput: an argument cannot be used.
        StoreError: the store cannot be opened.
    """

    @overload
    def __init__(self: Engine[None], agent: Agent[None], store: Store, *, grace: float = 10) -> None: ...
    @overload
    def __init__(
        self, agent: Agent[D], store: Store, *, deps: Callable[[SessionInfo], D], grace: float = 10
    ) -> None: ...
    def __init__(
        self,
        agent: Agent[Any],
        store: Store,
        *,
        deps: Callable[[SessionInfo], Any] | None = None,
        grace: float = 10,
    ) -> None:
        if not isinstance(agent, Agent):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"agent: expected an Agent, got {checks.shown(agent)}")
        if not isinstance(store, Store):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"store: expected a Store such as SQLiteStore(path), got {checks.shown(store)}")
        checks.number("grace", grace, least=0, expected="seconds")
        if deps is not None:
            check_deps(deps)
        self.agent: Agent[Any] = agent
        self.store = store
        self.make_deps = deps
        self.grace = grace
        self.linger = 1.0
        self.closing = False
        self.serving = False
        self.clock: Clock
        self.threads: ThreadList
        self._drivers: dict[str, Driver] = {}
        self._opening: dict[str, trio.Lock] = {}
        self._manager: Any = None
        self._nursery: trio.Nursery
        self._left: trio.Event
        self._kept: trio.Event
        self._claims: Claims
        self.parent = ""
        self._above: Engine[Any] | None = None
        self._call: ToolContext[Any] | None = None
        self._below: list[Engine[Any]] = []

    async def __aenter__(self) -> Engine[D]:
        if self._manager is not None:
            raise InvalidInput("this engine is open already; make another Engine for the same store instead")
        load_parts()
        above = self._above
        self.closing = above is not None and above.closing
        self.clock = Clock() if above is None else above.clock
        self.threads = ThreadList() if above is None else above.threads
        await self.store.__aenter__()
        self._claims = Claims(self)
        self._left, self._kept = trio.Event(), trio.Event()
        self._manager = trio.open_nursery()
        host: trio.Nursery = await self._manager.__aenter__()
        with trio.CancelScope(shield=True):
            self._nursery = await host.start(self._keep)
        return self

    async def _keep(self, task_status: trio.TaskStatus[trio.Nursery]) -> None:
        """Hold the tasks: they end by the engine's own rules when it is left, also where the host was cancelled.

        They are in a nursery of their own, since a shield around the host's code would keep that from being cancelled.
        """
        try:
            with trio.CancelScope(shield=True):
                async with trio.open_nursery() as nursery:
                    task_status.started(nursery)
                    await self._left.wait()
                    nursery.cancel_scope.cancel()
        finally:
            self._kept.set()

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        failed: BaseException | None = None
        with trio.CancelScope(shield=True):
            try:
                await self._suspend()
            except BaseException as error:  # a second Ctrl-C, for one: what still runs is cancelled now
                failed = error
            self._left.set()
            await self._kept.wait()
        manager, self._manager = self._manager, None
        try:
            await manager.__aexit__(None, None, None)
        except BaseException as error:
            failed = without_cancelled(error) or failed
        finally:
            with trio.CancelScope(shield=True):
                await self._give_up_store()
        if failed is None:
            return
        # What the engine told the host's code when it broke is no reason to keep the cause back.
        own = None if value is None else without_cancelled(value)
        if own is None or isinstance(own, StoreError) or ends_host(failed):
            raise failed
        log.error("the engine failed as well", exc_info=failed)

    async def _suspend(self) -> None:
        """Let running tools end within the grace, then cancel them and wait until all drivers are gone."""
        self._close_soon()
        with trio.move_on_after(self.grace):
            await self._all_gone()
        for driver in tuple(self._drivers.values()):
            driver.calls.cancel_all()
            driver.wake()
        with trio.move_on_after(GRACE + 1):
            await self._all_gone()
        await self._wait_for_threads()

    def _close_soon(self) -> None:
        """Start nothing any more, here and in the engines below."""
        self.closing = True
        for driver in tuple(self._drivers.values()):
            driver.wake()
        for engine in self._below:
            engine._close_soon()

    def below(self, agent: Agent[Any], ctx: ToolContext[Any]) -> Engine[Any]:
        """An engine for the children of a call of this one's sessions, on the same store; it closes with this one."""
        engine: Engine[Any] = Engine(agent, self.store, deps=lambda info: ctx.deps, grace=0)
        engine.parent = ctx.session_id
        engine._above, engine._call = self, ctx
        self._below.append(engine)
        return engine

    @property
    def told_to_end(self) -> bool:
        """Whether a call above this engine was told to end: what it drives will be told soon, and may start nothing more."""
        if self._above is None or self._call is None:
            return False
        return self._call.cancelled or self._above.told_to_end

    def answered(self, call: ToolContext[Any]) -> None:
        """Calls nested in one that runs were answered: tell what is below it, where that can hear it already."""
        from .nested import hand_down

        for engine in self._below:
            if call is engine._call:
                hand_down(engine, call)

    def call_ends(self, call: ToolContext[Any]) -> None:
        """A call was told to end: have what runs below it start nothing more, before its turn there is told as well."""
        for engine in self._below:
            if call is engine._call:
                engine._hold()

    def _hold(self) -> None:
        for driver in self._drivers.values():
            if driver.holds:
                driver.activities.cancel()
        for engine in self._below:
            engine._hold()

    def forget_below(self, engine: Engine[Any]) -> None:
        """An engine below is gone."""
        self._below.remove(engine)

    async def _all_gone(self) -> None:
        for driver in tuple(self._drivers.values()):
            await driver.gone.wait()

    async def _wait_for_threads(self) -> None:
        if self._above is not None:
            return  # they are waited for with those of the engine above
        with trio.move_on_after(self.grace):
            while self.threads.running:  # noqa: ASYNC110 - the thread that ends last cannot set an event of a loop that is gone
                await trio.sleep(0.02)
        if self.threads.running:
            log.warning(
                "these functions still run in threads that nobody can end: %s", ", ".join(sorted(self.threads.running))
            )

    async def _give_up_store(self) -> None:
        try:
            await self._claims.give_up()
        finally:
            await self._close_agent()
            await self.store.__aexit__(None, None, None)

    async def _close_agent(self) -> None:
        """Close what the agent's parts have open; one that fails keeps no other from it.

        The agents of engines below are closed with this one: their connections serve one call after the other.
        """
        if self._above is None:
            for agent in agents_of(self.agent):
                await self._close_parts(agent)

    async def _close_parts(self, agent: Agent[Any]) -> None:
        parts: list[Model | Policy[Any] | Middleware[Any]] = [
            agent.model,
            agent.policy,
            *agent.middleware,
        ]
        for part in parts:
            try:
                await part.aclose()
            except BaseException as raised:
                error = failure_in(raised)
                log.error("%s did not close its connections", type(part).__name__, exc_info=error)

    def deps_for(self, info: SessionInfo) -> Any:
        """What the host's ``deps`` gives for a session; None without it. Raises HookError where it raises."""
        return None if self.make_deps is None else made_deps(self.make_deps, info)

    # ---- sessions

    def session(self, id: str) -> Session:
        """A session by its id; nothing is read or written, and it need not exist.

        Raises:
            InvalidInput: the id is empty, longer than 200 characters or holds control characters.
        """
        return Session(self, check_id(id))

    def sessions(self, **only: Unpack[SessionFilter]) -> AsyncIterator[SessionInfo]:
        """All stored sessions, or those that are asked for with the keywords of :class:`~turnstate.SessionFilter`.

        In the order ``recent`` a session that changes meanwhile moves to the front, and may so be left out.

        Raises:
            InvalidInput: a value cannot be used.
        """
        return read_sessions(self.store, query_of(only))

    async def session_page(
        self, *, limit: int = 50, after: str | None = None, **only: Unpack[SessionFilter]
    ) -> SessionPage:
        """One page of what :meth:`sessions` gives.

        Args:
            limit: how many sessions at most, 1 to 1000.
            after: the ``next`` of the page before, in the same order; None for the first page.
            only: the keywords of :class:`~turnstate.SessionFilter`.

        Raises:
            InvalidInput: a value cannot be used.
        """
        return await read_session_page(self.store, query_of(only), limit, after)

    async def delete(self, session: str) -> bool:
        """Delete a session for ever, with those that answer its tool calls; whether there was one.

        Raises:
            Refused: ``busy``: a turn of it, or of one of those, has not ended.
            SessionInUse: another engine drives it, or one of those.
        """
        mine = "" if self._manager is None else self.owner.id
        from .nested import delete_session

        deleted = await delete_session(self.store, check_id(session), owner=mine)
        for driver in [self._drivers[id] for id in {session, *deleted} & self._drivers.keys()]:
            driver.leaving = True
            driver.stop(StaleSession(f"session {driver.session!r} was deleted"))
            await driver.gone.wait()
        return bool(deleted)

    async def import_session(self, id: str, data: bytes) -> Session:
        """Begin a session with what :meth:`SessionHandle.export` gave, or something like it.

        Messages may stand in any order; those whose parent is missing are left out, and a
        :class:`~turnstate.Warned` in the session's log names them. Nothing is run: a call without a result stays without.

        Raises:
            InvalidInput: it is not an exported thread; the text says where and why.
            Refused: the session exists already.
        """
        thread = checks.instance("data", data, bytes, "what export() gave, bytes")
        from .beginning import begin
        from .sizes import read_import

        name = check_id(id)
        # In a thread, since other sessions need not wait for a long one.
        await begin(self.store, name, await trio.to_thread.run_sync(read_import, thread))
        return self.session(id)

    async def serve(self, *, sessions: int = 100, interval: float = 0.5) -> None:
        """Drive every stored session that has something to do, until SIGTERM comes or this is cancelled.

        Other workers may do the same on the same store: each session is driven by one of them, and those of a worker that
        died are taken over. SIGTERM makes it return; leaving the engine then gives running tools their grace.

        Args:
            sessions: how many are driven at once.
            interval: seconds between looks for work of other processes; what comes through this store object is seen at
                once.

        Raises:
            InvalidInput: an argument cannot be used.
        """
        checks.integer("sessions", sessions, least=1)
        checks.finite("interval", interval, above=0, expected="seconds")
        self.serving = True
        try:
            await Worker(self, sessions, interval).run()
        finally:
            self.serving = False

    @property
    def sessions_driven(self) -> tuple[str, ...]:
        """The ids of the sessions that this engine drives now."""
        return tuple(self._drivers)

    @property
    def owner(self) -> Owner:
        """Who this engine is to the store, while it is open."""
        return self._claims.owner

    @property
    def may_start(self) -> bool:
        """Whether it is open and does not close."""
        return not self.closing and self._manager is not None

    def start(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Start a task in the engine's nursery."""
        self._nursery.start_soon(function, *args)

    def driven(self, session: str) -> Driver | None:
        """The driver of a session, if this engine drives it."""
        driver = self._drivers.get(session)
        return None if driver is None or driver.leaving else driver

    async def drive(self, session: str) -> Driver:
        """The driver of a session; claims and loads it if this engine does not drive it yet.

        Raises:
            SessionInUse: another engine drives it.
            StoreError: it cannot be read, or the engine is closed.
        """
        if not self.may_start:
            raise StoreError("the engine is closed; use it inside 'async with Engine(...)'")
        driver = self.driven(session)
        if driver is not None:
            return driver
        lock = self._opening.setdefault(session, trio.Lock())
        try:
            async with lock:
                return self.driven(session) or await self._open(session)
        finally:
            if session not in self._drivers:
                self._forget_lock(session)

    async def _open(self, session: str) -> Driver:
        leaving = self._drivers.get(session)
        if leaving is not None:
            await leaving.gone.wait()
        await self._claims.begin()
        from .driver import Driver

        driver = Driver(self, session)
        await driver.open()
        if self.closing:
            await driver.release()
            raise StoreError("the engine is closed; use it inside 'async with Engine(...)'")
        self._drivers[session] = driver
        self.start(driver.run)
        return driver

    def forget(self, driver: Driver) -> None:
        """A driver is gone."""
        if self._drivers.get(driver.session) is driver:
            del self._drivers[driver.session]
            self._forget_lock(driver.session)

    def _forget_lock(self, session: str) -> None:
        lock = self._opening.get(session)
        if lock is not None and not lock.locked():
            del self._opening[session]


def load_parts() -> None:
    """Import and make what driving a session needs, so that the first turn does not wait for it."""
    importlib.import_module(".driver", __package__)
    codec.converter()
    compiled()


def check_id(id: str) -> str:
    """A session id that can be used."""
    return checks.identifier("session id", id)
