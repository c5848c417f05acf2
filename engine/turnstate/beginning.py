"""Beginning a session with messages from elsewhere, and holding a claim for a moment."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import trio

from turnstate_states.errors import Refused, SessionInUse, StaleSession
from turnstate_states.thread import Thread, begin_session

from .claims import new_owner
from .inputs import new_life
from .records import stored_commit
from .stores.base import LIVE_OWNERS, Store

__all__ = ["begin", "claimed"]


@asynccontextmanager
async def claimed(store: Store, session: str) -> AsyncGenerator[str, None]:
    """Hold the claim on a session for a moment, without an engine; gives the owner's id.

    Raises:
        SessionInUse: an engine drives it.
    """
    now = time.time()
    owner = new_owner(now)
    with trio.CancelScope(shield=True):
        LIVE_OWNERS.add(owner.id)
        await store.renew(owner)
    try:
        await store.claim(session, owner, now)
        yield owner.id
    finally:
        with trio.CancelScope(shield=True):
            LIVE_OWNERS.discard(owner.id)
            await store.retire(owner.id)


async def begin(store: Store, session: str, thread: Thread, *, source: str = "") -> None:
    """Write the first commit of a session, under a claim of its own.

    Raises:
        Refused: the session exists already.
        StoreError: it could not be written.
    """
    metadata: dict[str, Any] = {"forked_from": source} if source else {}
    commit = begin_session(session, thread, now=time.time(), source=source, metadata=metadata, life=new_life())
    try:
        async with claimed(store, session) as owner:
            await store.commit(stored_commit(commit, owner))
    except (StaleSession, SessionInUse):
        raise Refused("conflict", f"session {session} exists already; choose another id") from None
