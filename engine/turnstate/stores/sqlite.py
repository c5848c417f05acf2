"""The embedded store: one SQLite file, durable, for any number of processes on one machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from sqlite3 import Connection
from typing import TypeVar

import attrs
import trio

from turnstate_states import checks
from turnstate_states.errors import InvalidInput

from ..paths import path as check_path
from . import sqlite_rows
from .base import (
    ALL_SESSIONS,
    ROOM,
    Cursor,
    InboxItem,
    Listing,
    Owner,
    Room,
    SessionQuery,
    Store,
    StoredCommit,
    StoredRow,
    StoredSession,
)
from .refusals import closed
from .sqlite_file import Durability, connect, failure, prepare
from .sqlite_listings import listings
from .sqlite_threads import ReaderThread, WriterThread, end

__all__ = ["SQLiteStore"]

R = TypeVar("R")


@attrs.define(eq=False)
class _Seen:
    """The last look at the inbox: as long as nobody wrote to the file it is what another would see."""

    version: int
    sessions: Sequence[str] | None
    items: Sequence[InboxItem]


class SQLiteStore(Store):
    """Keeps sessions in one file at ``path``, created at the first opening, readable by its user only.

    Any number of store objects and processes on one machine may use a file at once. It must be on a local disk. Beside
    it lie ``-wal`` and ``-shm`` files while it is open and after a crash: they belong to it, move them together.

    Args:
        path: the file. Its directory must exist.
        durability: ``"full"``: a commit survives a power failure. ``"normal"``: it survives a crash of the process; a
            power failure may take the last commits, but never leaves half of one.
    """

    poll_interval: float | None = 0.2

    def __init__(self, path: str | os.PathLike[str], *, durability: Durability = "full") -> None:
        super().__init__()
        given = check_path("path", path)
        if given in ("", ":memory:"):
            raise InvalidInput(f"path: {given!r} is not a file: give a path, or use MemoryStore()")
        checks.choice("durability", durability, ("full", "normal"))
        self.path = os.path.abspath(given)
        self.durability: Durability = durability
        self._opening = trio.Lock()
        self._writer: WriterThread | None = None
        self._reader: ReaderThread | None = None
        self._seen: _Seen | None = None

    def __repr__(self) -> str:
        return f"SQLiteStore({self.path!r}, durability={self.durability!r})"

    async def open(self) -> None:
        """Create the file or check it, connect, start the threads."""
        async with self._opening:
            if self._writer is not None:
                return
            writing, reading = await trio.to_thread.run_sync(self._connect)
            # A new connection counts versions anew.
            self._seen = None
            self._writer = WriterThread(self.path, writing, self.durability)
            self._reader = ReaderThread(self.path, reading)

    async def aclose(self) -> None:
        """Finish the writes that were asked for, end the threads, disconnect."""
        threads = [thread for thread in (self._reader, self._writer) if thread is not None]
        self._writer = self._reader = None
        await end(threads)

    async def load(self, session: str) -> StoredSession | None:
        """The session's row; None for a session that has no commit yet."""
        return await self._read(partial(sqlite_rows.load, session=session))

    async def messages(self, session: str) -> Sequence[bytes]:
        """The JSON arrays of all messages of a session, oldest first."""
        return await self._read(partial(sqlite_rows.messages, session=session))

    async def rows(self, session: str, after: int = 0, limit: int = 1000) -> Sequence[StoredRow]:
        """Rows of the log that hold an event with a number above ``after``, in order, at most ``limit``."""
        return await self._read(partial(sqlite_rows.rows, session=session, after=after, limit=limit))

    async def row_of(self, session: str, number: int) -> StoredRow | None:
        """The row that holds the event with this number."""
        if number < 1:
            return None
        found = await self.rows(session, number - 1, 1)
        return found[0] if found else None

    async def commit(self, commit: StoredCommit) -> None:
        """Write a commit whole, durably, or not at all."""
        if self._writer is None:
            raise closed(self.path)
        await self._writer.commit(commit)

    async def claim(self, session: str, owner: Owner, now: float) -> None:
        """Make ``owner`` the one that may commit to the session; it may exist or not."""
        await self._own(partial(sqlite_rows.claim, session=session, owner=owner, now=now))

    async def release(self, session: str, owner: str) -> None:
        """Give a claim up, if ``owner`` has it."""
        await self._own(partial(sqlite_rows.release, session=session, owner=owner))

    async def renew(self, owner: Owner) -> None:
        """Store the owner's lease."""
        await self._own(partial(sqlite_rows.renew, owner=owner))

    async def retire(self, owner: str) -> None:
        """Give up all claims of the owner and forget it."""
        await self._own(partial(sqlite_rows.retire, owner=owner))

    async def owner_of(self, session: str) -> Owner | None:
        """Who has the claim, alive or not."""
        return await self._read(partial(sqlite_rows.holder_of, session=session))

    async def post(self, item: InboxItem, room: Room = ROOM) -> None:
        """Keep a submission for the session's driver, if there is room."""
        await self._write(partial(sqlite_rows.post, item=item, room=room))
        self._posted(item.session)

    async def inbox(self, sessions: Sequence[str] | None = None) -> Sequence[InboxItem]:
        """What was posted and not taken yet, oldest first; for all sessions if None."""
        return await self._read(partial(self._look, sessions=None if sessions is None else tuple(sessions)))

    async def receipt(self, session: str, id: str) -> bytes | None:
        """The stored receipt of a submission."""
        return await self._read(partial(sqlite_rows.receipt, session=session, id=id))

    async def sessions(
        self, query: SessionQuery = ALL_SESSIONS, *, after: Cursor | None = None, limit: int = 100
    ) -> Sequence[Listing]:
        """The sessions that match, in the order asked for, those behind ``after``, at most ``limit``."""
        return await self._read(partial(listings, query=query, after=after, limit=limit))

    async def delete(self, session: str, *, owner: str = "", unfinished: bool = True) -> Sequence[str]:
        """Delete a session with everything of it, and all that answer its tool calls; the ids of those that existed."""
        work = partial(sqlite_rows.delete, session=session, owner=owner, unfinished=unfinished, now=time.time())
        return await self._write(work)

    def _connect(self) -> tuple[Connection, Connection]:
        writing = prepare(self.path, self.durability)
        try:
            return writing, connect(self.path, self.durability, reader=True)
        except Exception as error:
            writing.close()
            raise failure(self.path, error) from error

    def _look(self, connection: Connection, sessions: tuple[str, ...] | None) -> Sequence[InboxItem]:
        # The version is read before the rows: what is written in between is seen now, and looked for again next time.
        version = sqlite_rows.data_version(connection)
        seen = self._seen
        if seen is None or seen.version != version or seen.sessions != sessions:
            seen = self._seen = _Seen(version, sessions, sqlite_rows.inbox(connection, sessions))
        return tuple(seen.items)

    async def _read(self, work: Callable[[Connection], R]) -> R:
        if self._reader is None:
            raise closed(self.path)
        return await self._reader.run(work)

    async def _own(self, work: Callable[[Connection], object]) -> None:
        """Write who drives what. That need not outlive a power failure, which no driver outlives; so nothing is synced."""
        if self._writer is None:
            raise closed(self.path)
        await self._writer.run(work, durable=False)

    async def _write(self, work: Callable[[Connection], R]) -> R:
        if self._writer is None:
            raise closed(self.path)
        return await self._writer.run(work)
