"""What the suites of stores share: how the store is made, and what they put into it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs

from turnstate.stores.base import (
    LIVE_OWNERS,
    Listing,
    Owner,
    Store,
    StoredCommit,
    StoredRow,
    process_started,
)

__all__ = ["StoreCase", "commit_of", "owner_of_here"]


def owner_of_here(id: str, *, lease: float = 3600.0) -> Owner:
    """An owner in this process that is alive until its lease ends, or until ``LIVE_OWNERS`` is told otherwise."""
    LIVE_OWNERS.add(id)
    pid = os.getpid()
    return Owner(id, socket.gethostname(), pid, process_started(pid), time.time() + lease)


def commit_of(session: str, owner: Owner, after: int, **changes: object) -> StoredCommit:
    """A commit that adds two events and a message; ``changes`` replace its fields."""
    number = after + 1
    commit = StoredCommit(
        session=session,
        owner=owner.id,
        after=after,
        sequence=number,
        checkpoint=b'{"sequence":%d}' % number,
        listing=Listing(session, f"title {number}", created_at=1700000000.125, updated_at=1700000000.25 + number),
        row=StoredRow(2 * number, b'[{"id":"m%d"}]' % number, b'[{"number":%d},{}]' % (2 * number - 1)),
    )
    return attrs.evolve(commit, **changes) if changes else commit  # type: ignore[arg-type]


class StoreCase:
    """Derive a class whose name starts with ``Test`` and say how the store is made."""

    shared = True
    """Whether two objects from :meth:`make_store` with one path are two views of the same data."""

    def make_store(self, tmp_path: Path) -> Store:
        """A store that is not open yet; the first one with a ``tmp_path`` is empty."""
        raise NotImplementedError

    def another(self, store: Store, tmp_path: Path) -> Store:
        """What an engine that starts later uses: a new object where there can be one, else the same."""
        return self.make_store(tmp_path) if self.shared else store

    @asynccontextmanager
    async def claimed(self, tmp_path: Path, *sessions: str) -> AsyncGenerator[tuple[Store, Owner], None]:
        """An open store and an owner who has claimed the sessions."""
        owner = owner_of_here("owner-a")
        async with self.make_store(tmp_path) as store:
            await store.renew(owner)
            for session in sessions:
                await store.claim(session, owner, time.time())
            yield store, owner
