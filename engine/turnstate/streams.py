"""Following a session: what is stored, then what happens."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING

import trio

from turnstate_states.errors import StoreError
from turnstate_states.events import Event, Lagged

from .feed import Subscription
from .reading import read_events
from .shown import Shown
from .stores.base import Store

if TYPE_CHECKING:
    from .driver import Driver

__all__ = ["EventStream"]

POLL = 0.1
"""Seconds between looks at the log of a session that another process drives."""


class EventStream(AbstractAsyncContextManager[AsyncIterator[Event]]):
    """Numbered events after a number, each once and in order, without end; live where this process drives the session."""

    def __init__(
        self,
        store: Store,
        session: str,
        after: int,
        shown: Shown,
        driven: Callable[[str], Driver | None] = lambda session: None,
    ) -> None:
        self._store = store
        self._session = session
        self._last = after
        self._shown = shown
        self._driven = driven
        self._live: Subscription | None = None
        self._driver: Driver | None = None
        self._ready: deque[Event] = deque()

    async def __aenter__(self) -> AsyncIterator[Event]:
        self._follow()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.close()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    def _follow(self) -> None:
        """Stand in line with a driver of this process, if there is one; what came before is in the log."""
        self._driver = self._driven(self._session)
        self._live = None if self._driver is None else self._driver.feed.subscribe()
        self._behind = True

    async def _catch_up(self) -> None:
        up_to = None if self._live is None else self._live.upto
        if up_to is None or up_to > self._last:
            self._ready.extend(await read_events(self._store, self._session, self._last, up_to))

    async def __anext__(self) -> Event:
        while True:
            if self._ready:
                event = self._ready.popleft()
                if event.number is not None:
                    self._last = event.number
                    self._shown.note_event(event)
                return event
            if self._behind:
                self._behind = False
                await self._catch_up()
            elif self._live is not None:
                await self._next_live(self._live)
            else:
                await self._look_again()

    async def _next_live(self, live: Subscription) -> None:
        try:
            event = await live.__anext__()
        except (StopAsyncIteration, StoreError):
            # The driver is gone, in peace or not; the log tells what is true, and perhaps another driver comes.
            live.close()
            self._live = None
            self._behind = True
            return
        if isinstance(event, Lagged):
            self._behind = True
        elif event.number is None or event.number > self._last:
            self._ready.append(event)

    async def _look_again(self) -> None:
        if self._driven(self._session) is not None:
            self._follow()
            return
        await trio.sleep(POLL)
        await self._catch_up()
