"""What an engine holds of a store: the lease under which it drives sessions, and the look at what others posted to them."""

from __future__ import annotations

import logging
import os
import socket
import uuid
from typing import TYPE_CHECKING, Any

import attrs
import trio

from turnstate_states.errors import StoreError

from .stores.base import LIVE_OWNERS, Owner, process_started

if TYPE_CHECKING:
    from .engine import Engine

__all__ = ["LEASE", "Claims", "new_owner"]

log = logging.getLogger("turnstate")
LEASE = 30.0
"""Seconds after which the claims of an owner that does not renew them lapse."""


def new_owner(now: float) -> Owner:
    """An owner of this process that nobody knows yet, with its lease from now on."""
    pid = os.getpid()
    return Owner(uuid.uuid4().hex, socket.gethostname(), pid, process_started(pid), now + LEASE)


class Claims:
    """The claims of one engine that is open: one lease for all its sessions, renewed in one write."""

    def __init__(self, engine: Engine[Any]) -> None:
        self._engine = engine
        self._store = engine.store
        self.owner = new_owner(engine.clock.now())
        self._stored = False
        self._storing = trio.Lock()
        self._fetching = trio.Lock()
        LIVE_OWNERS.add(self.owner.id)
        self._unlisten = self._store.listen(self._told)

    async def begin(self) -> None:
        """Store the owner and keep its lease, before the first claim."""
        async with self._storing:
            if self._stored:
                return
            await self._renew()
            self._stored = True
        if self._engine.closing:
            return
        self._engine.start(self._keep)
        if self._store.poll_interval is not None:
            self._engine.start(self._poll, self._store.poll_interval)

    async def give_up(self) -> None:
        """Give up all claims; where that fails they lapse."""
        self._unlisten()
        LIVE_OWNERS.discard(self.owner.id)
        try:
            if self._stored:
                await self._store.retire(self.owner.id)
        except StoreError as error:
            log.warning("the claims of this engine were not given up; they lapse in %g s: %s", LEASE, error)

    async def _renew(self) -> None:
        self.owner = attrs.evolve(self.owner, expires=self._engine.clock.now() + LEASE)
        await self._store.renew(self.owner)

    async def _keep(self) -> None:
        while True:
            await trio.sleep(LEASE / 3)
            try:
                await self._renew()
            except StoreError as error:
                log.warning("the claims were not renewed; trying again: %s", error)

    async def _poll(self, interval: float) -> None:
        while True:
            await trio.sleep(interval)
            await self._fetch(list(self._engine.sessions_driven))

    def _told(self, session: str) -> None:
        if self._engine.driven(session) is not None and self._engine.may_start:
            self._engine.start(self._fetch, [session])

    async def _fetch(self, sessions: list[str]) -> None:
        """Hand what other processes posted to the drivers."""
        driven = self._engine.driven
        async with self._fetching:
            # What a driver dealt with before this look is found again only if it was sent again.
            for session in sessions:
                driver = driven(session)
                if driver is not None:
                    driver.forget_taken()
            try:
                items = await self._store.inbox(sessions) if sessions else ()
            except StoreError as error:
                log.warning("the inbox was not read; trying again: %s", error)
                return
            for item in items:
                driver = driven(item.session)
                if driver is not None:
                    driver.post(item)
