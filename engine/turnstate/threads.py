"""The threads in which functions of tools run, and who gets one.

A function in a thread cannot be ended, and one that hangs keeps its thread. So no session may take what others need: there
is a pool that all share, each session has a few places of its own besides, and none gets more than half of the pool. What
nobody waits for any more gives its place back, or a tool that hangs would stop its session for good; but a session that
left too many behind gets no further ones before some of them end.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import trio

__all__ = ["LEFT", "Place", "ThreadList"]

POOL = 40
"""Functions that run at once, besides those in the sessions' own places."""

OWN = 2
"""Functions that each session may run whatever the others do."""

MOST = 20
"""Functions that one session may have in the pool."""

LEFT = 32
"""Functions of one session that nobody waits for and that still run; with so many of them no other one begins."""


class Place:
    """The right to run one function in a thread."""

    def __init__(self, threads: ThreadList, session: str) -> None:
        self._threads: ThreadList | None = threads
        self._session = session

    def give_back(self) -> None:
        """Let another one have it; doing it again is fine."""
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.leave(self._session)


class ThreadList:
    """The threads in which functions run, and those that nobody waits for any more.

    Args:
        pool: places that all sessions share.
        own: places of each session besides.
        most: places that one session may have in the pool.
    """

    def __init__(self, pool: int = POOL, own: int = OWN, most: int = MOST) -> None:
        self._pool, self._own, self._most = pool, own, most
        self._taken: Counter[str] = Counter()
        self._shared = 0
        self._waiting: dict[str, dict[trio.Event, None]] = {}
        self._unlimited = trio.CapacityLimiter(math.inf)
        self._lock = threading.Lock()
        self._running: dict[object, str] = {}
        self._left: Counter[str] = Counter()

    @property
    def running(self) -> list[str]:
        """Names of the calls whose function still runs."""
        with self._lock:
            return list(self._running.values())

    # ---- places

    async def enter(self, session: str) -> Place | None:
        """Wait for a place.

        Returns:
            The place; None if the session left so many functions behind that it gets none.
        """
        with self._lock:
            if self._left[session] >= LEFT:
                return None
        if session not in self._waiting and self._free_for(session):
            self._take(session)
            return Place(self, session)
        mine = trio.Event()
        self._waiting.setdefault(session, {})[mine] = None
        try:
            await mine.wait()  # whoever sets it has taken the place
        except trio.Cancelled:
            if mine.is_set():  # given a place after it was cancelled, and before it came to know
                self.leave(session)
            else:
                self._wait_no_more(session, mine)
            raise
        return Place(self, session)

    def leave(self, session: str) -> None:
        """Give a place back, first to its own session where that may have more of its own, then to who waited longest."""
        if self._taken[session] > self._own:
            self._shared -= 1
        self._taken[session] -= 1
        if not self._taken[session]:
            del self._taken[session]
        if self._taken[session] < self._own:
            self._admit(session)
        # Those that are passed over have as much of the pool as one may have, so they are few.
        for name in list(self._waiting) if self._shared < self._pool else ():
            self._admit(name)
            if self._shared >= self._pool:
                return

    def _free_for(self, session: str) -> bool:
        taken = self._taken[session]
        return taken < self._own or (taken < self._own + self._most and self._shared < self._pool)

    def _take(self, session: str) -> None:
        self._taken[session] += 1
        if self._taken[session] > self._own:
            self._shared += 1

    def _admit(self, session: str) -> None:
        if session not in self._waiting or not self._free_for(session):
            return
        first = next(iter(self._waiting[session]))
        self._wait_no_more(session, first)
        if session in self._waiting:  # the next one of it comes after those of others
            self._waiting[session] = self._waiting.pop(session)
        self._take(session)
        first.set()

    def _wait_no_more(self, session: str, event: trio.Event) -> None:
        waiting = self._waiting[session]
        del waiting[event]
        if not waiting:
            del self._waiting[session]

    # ---- threads

    async def run(
        self, session: str, name: str, function: Callable[[], Any], begins: Callable[[], None] = lambda: None
    ) -> Any:
        """Run a function in a thread. Cancelling leaves the thread alone, and it stays listed until it ends.

        Args:
            session: whose it is.
            name: what it is, for people.
            function: what to run.
            begins: called in the thread just before its first instruction; never called if it never begins.
        """
        token = object()
        state: list[str] = []

        def body() -> Any:
            with self._lock:
                if state:
                    return None  # nobody waits any more, and it did not begin
                state.append("began")
                begins()
            try:
                return function()
            finally:
                with self._lock:
                    self._running.pop(token, None)
                    if "left" in state:
                        self._left[session] -= 1
                    state.append("ended")

        with self._lock:
            self._running[token] = name
        try:
            return await trio.to_thread.run_sync(body, abandon_on_cancel=True, limiter=self._unlimited)
        except trio.Cancelled:
            with self._lock:
                if not state:  # cancelled before its thread came to begin: it will never run
                    state.append("given up")
                    self._running.pop(token, None)
                elif "ended" not in state:
                    state.append("left")
                    self._left[session] += 1
            raise
