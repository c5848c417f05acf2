"""Beginning a session with messages from elsewhere."""

from __future__ import annotations

import os
import socket
import time
import uuid
from typing import Any

import trio

from turnstate_states.errors import Refused, SessionInUse, StaleSession
from turnstate_states.thread import Thread, begin_session

from .records import stored_commit
from .stores.base import LIVE_OWNERS, Owner, Store, process_started

__all__ = ["begin"]

LEASE = 30.0


async def begin(store: Store, session: str, thread: Thread, *, source: str = "", parent: str = "") -> None:
    """Write the first commit of a session, under a claim of its own.

    Raises:
        Refused: the session exists already.
        StoreError: it could not be written.
    """
    now = time.time()
    pid = os.getpid()
    owner = Owner(uuid.uuid4().hex, socket.gethostname(), pid, process_started(pid), now + LEASE)
    metadata: dict[str, Any] = {"forked_from": source} if source else {}
    commit = begin_session(session, thread, now=now, source=source, metadata=metadata)
    commit.checkpoint.parent = parent
    with trio.CancelScope(shield=True):
        LIVE_OWNERS.add(owner.id)
        try:
            await store.renew(owner)
            await store.claim(session, owner, now)
            await store.commit(stored_commit(commit, owner.id))
        except (StaleSession, SessionInUse):
            raise Refused("conflict", f"session {session} exists already; choose another id") from None
        finally:
            LIVE_OWNERS.discard(owner.id)
            await store.retire(owner.id)
