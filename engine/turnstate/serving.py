"""A worker: it drives every stored session that has something to do, beside other workers on the same store."""

from __future__ import annotations

import logging
import signal
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import trio

from turnstate_states.errors import SessionInUse, TurnstateError

from .stores.listing import Cursor, Listing, SessionQuery

if TYPE_CHECKING:
    from .engine import Engine

__all__ = ["Worker"]

log = logging.getLogger("turnstate")
PAGE = 200


class Worker:
    """Looks for work and has the engine drive it.

    Work is a session with something in its inbox, or with a turn that has not ended and does not wait for a person, or
    waits for one who did not answer by the deadline. A session that another engine drives is left to it until that one's
    claim has lapsed, and one that answers a tool call of another session to whoever drives that one.
    """

    def __init__(self, engine: Engine[Any], sessions: int, interval: float) -> None:
        self._engine = engine
        self._sessions = sessions
        self._interval = interval
        self._wake = trio.Event()
        self._broken: set[str] = set()

    async def run(self) -> None:
        """Work until SIGTERM comes or this is cancelled."""
        unlisten = self._engine.store.listen(lambda session: self._wake.set())
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._until_told, nursery.cancel_scope)
                await self._look_for_ever()
        finally:
            unlisten()

    async def _until_told(self, scope: trio.CancelScope) -> None:
        """End at SIGTERM. Signals can be had only in the main thread; elsewhere the host cancels."""
        try:
            with trio.open_signal_receiver(signal.SIGTERM) as signals:
                async for _ in signals:
                    scope.cancel()
                    return
        except RuntimeError:
            await trio.sleep_forever()

    async def _look_for_ever(self) -> None:
        while True:
            self._wake = trio.Event()
            try:
                await self._look()
            except TurnstateError as error:
                log.warning("the store was not read; trying again: %s", error)
            with trio.move_on_after(self._interval):
                await self._wake.wait()

    async def _look(self) -> None:
        for session in await self._candidates():
            if len(self._engine.sessions_driven) >= self._sessions:
                return
            if self._engine.driven(session) is None:
                await self._take(session)

    async def _candidates(self) -> list[str]:
        """Sessions with something to do: those that somebody wrote to first, then those whose deadline has passed."""
        store = self._engine.store
        found = dict.fromkeys(item.session for item in await store.inbox())
        if found:
            # What answers a tool call is driven by whoever runs that call.
            async for row in self._all(SessionQuery(ids=tuple(found), children=True)):
                if row.parent:
                    del found[row.session]
        async for row in self._all(SessionQuery(due=self._engine.clock.now())):
            found[row.session] = None
        async for row in self._all(SessionQuery(unfinished=True)):
            if row.state != "awaiting-approval":
                found[row.session] = None
        return list(found)

    async def _all(self, query: SessionQuery) -> AsyncIterator[Listing]:
        after: Cursor | None = None
        while True:
            page = await self._engine.store.sessions(query, after=after, limit=PAGE)
            for row in page:
                yield row
            if len(page) < PAGE:
                return
            after = Cursor.of(page[-1])

    async def _take(self, session: str) -> None:
        try:
            await self._engine.drive(session)
        except SessionInUse:
            pass
        except TurnstateError as error:
            if session not in self._broken:
                log.error("session %s cannot be driven: %s", session, error)
            self._broken.add(session)
        else:
            self._broken.discard(session)
