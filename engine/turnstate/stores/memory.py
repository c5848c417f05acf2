"""A store that keeps everything in this process, for tests and for what need not outlive it."""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from heapq import nsmallest
from operator import attrgetter

import attrs
import trio

from turnstate_states.errors import StoreError

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
from .refusals import busy, closed, full, in_use, stale, unknown_owner

__all__ = ["MemoryStore"]

_last = attrgetter("last")


@attrs.define(eq=False)
class _Kept:
    """A session. ``stored`` is None as long as it is only claimed."""

    owner: str | None = None
    stored: StoredSession | None = None
    listing: Listing | None = None
    rows: list[StoredRow] = attrs.Factory(list[StoredRow])
    receipts: dict[str, bytes] = attrs.Factory(dict[str, bytes])

    @property
    def sequence(self) -> int:
        return 0 if self.stored is None else self.stored.sequence


class MemoryStore(Store):
    """Keeps everything as long as the object lives, also while it is closed: what opens it again finds it all.

    It is as strict as a store on a disk, so that an engine can be stopped and another started on the same object.
    """

    def __init__(self) -> None:
        super().__init__()
        self._open = False
        self._kept: dict[str, _Kept] = {}
        self._owners: dict[str, Owner] = {}
        self._inbox: dict[tuple[str, str], InboxItem] = {}
        self._sizes: dict[str, dict[str, int]] = {}

    def __repr__(self) -> str:
        return f"MemoryStore({len(self._kept)} sessions)"

    async def open(self) -> None:
        """Let it be used."""
        await trio.lowlevel.checkpoint()
        self._open = True

    async def aclose(self) -> None:
        """Let it be used no more, until it is opened again. The data stays."""
        self._open = False
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def load(self, session: str) -> StoredSession | None:
        """The session's row; None for a session that has no commit yet."""
        await self._reading()
        kept = self._kept.get(session)
        return None if kept is None else kept.stored

    async def messages(self, session: str) -> Sequence[bytes]:
        """The JSON arrays of all messages of a session, oldest first."""
        await self._reading()
        kept = self._kept.get(session)
        return [] if kept is None else [row.messages for row in kept.rows if row.messages]

    async def rows(self, session: str, after: int = 0, limit: int = 1000) -> Sequence[StoredRow]:
        """Rows of the log that hold an event with a number above ``after``, in order, at most ``limit``."""
        await self._reading()
        kept = self._kept.get(session)
        if kept is None:
            return []
        start = bisect_right(kept.rows, after, key=_last)
        return kept.rows[start : start + limit]

    async def row_of(self, session: str, number: int) -> StoredRow | None:
        """The row that holds the event with this number."""
        await self._reading()
        kept = self._kept.get(session)
        if kept is None or number < 1:
            return None
        place = bisect_left(kept.rows, number, key=_last)
        return kept.rows[place] if place < len(kept.rows) else None

    async def commit(self, commit: StoredCommit) -> None:
        """Write a commit whole or not at all."""
        self._check_open()
        kept = self._kept.get(commit.session)
        sequence = None if kept is None else kept.sequence
        owned = kept is not None and kept.owner == commit.owner
        if kept is None or not owned or sequence != commit.after:
            raise stale(commit.session, owned=owned, after=commit.after, sequence=sequence)
        if commit.row is not None:
            if kept.rows and commit.row.last <= kept.rows[-1].last:
                raise StoreError(f"session {commit.session!r} has an event {commit.row.last} already")
            kept.rows.append(commit.row)
        kept.stored = StoredSession(commit.session, commit.sequence, commit.checkpoint)
        kept.listing = commit.listing
        kept.receipts.update(commit.receipts)
        for id in commit.taken:
            self._take(commit.session, id)
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def claim(self, session: str, owner: Owner, now: float) -> None:
        """Make ``owner`` the one that may commit to the session; it may exist or not."""
        self._check_open()
        if owner.id not in self._owners:
            raise unknown_owner(owner.id)
        kept = self._kept.get(session)
        if kept is None:
            kept = self._kept[session] = _Kept()
        elif kept.owner is not None and kept.owner != owner.id:
            holder = self._owners.get(kept.owner)
            if holder is not None and holder.alive(now):
                raise in_use(session, holder)
        kept.owner = owner.id
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def release(self, session: str, owner: str) -> None:
        """Give a claim up, if ``owner`` has it."""
        self._check_open()
        kept = self._kept.get(session)
        if kept is not None and kept.owner == owner:
            self._give_up(session, kept)
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def renew(self, owner: Owner) -> None:
        """Store the owner's lease."""
        self._check_open()
        self._owners[owner.id] = owner
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def retire(self, owner: str) -> None:
        """Give up all claims of the owner and forget it."""
        self._check_open()
        self._owners.pop(owner, None)
        for session, kept in tuple(self._kept.items()):
            if kept.owner == owner:
                self._give_up(session, kept)
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def owner_of(self, session: str) -> Owner | None:
        """Who has the claim, alive or not."""
        await self._reading()
        kept = self._kept.get(session)
        return None if kept is None or kept.owner is None else self._owners.get(kept.owner)

    async def post(self, item: InboxItem, room: Room = ROOM) -> None:
        """Keep a submission for the session's driver, if there is room."""
        self._check_open()
        others = self._sizes.get(item.session, {}) | {item.id: 0}
        if len(others) > room.items or sum(others.values()) + len(item.body) > room.size:
            raise full(item.session, len(others) - 1)
        self._inbox[item.session, item.id] = item
        self._sizes.setdefault(item.session, {})[item.id] = len(item.body)
        await trio.lowlevel.cancel_shielded_checkpoint()
        self._posted(item.session)

    async def inbox(self, sessions: Sequence[str] | None = None) -> Sequence[InboxItem]:
        """What was posted and not taken yet, oldest first; for all sessions if None."""
        await self._reading()
        if sessions is None:
            return list(self._inbox.values())
        wanted = frozenset(sessions)
        return [item for item in self._inbox.values() if item.session in wanted]

    async def receipt(self, session: str, id: str) -> bytes | None:
        """The stored receipt of a submission."""
        await self._reading()
        kept = self._kept.get(session)
        return None if kept is None else kept.receipts.get(id)

    async def sessions(
        self, query: SessionQuery = ALL_SESSIONS, *, after: Cursor | None = None, limit: int = 100
    ) -> Sequence[Listing]:
        """The sessions that match, in the order asked for, those behind ``after``, at most ``limit``."""
        await self._reading()
        found = [kept.listing for kept in self._kept.values() if kept.listing and query.matches(kept.listing)]
        if after is not None:
            found = [listing for listing in found if query.place(listing) > query.place(after)]
        return nsmallest(limit, found, key=query.place)

    async def delete(self, session: str, *, owner: str = "", unfinished: bool = True) -> Sequence[str]:
        """Delete a session with everything of it, and all that answer its tool calls; the ids of those that existed."""
        self._check_open()
        names = self._with_children(session)
        for name in names:
            self._check_free(name, owner, unfinished)
        existed = [name for name in names if (kept := self._kept.pop(name, None)) is not None and kept.stored]
        for key in [(name, id) for name in names for id in self._sizes.get(name, ())]:
            self._take(*key)
        await trio.lowlevel.cancel_shielded_checkpoint()
        return existed

    def _take(self, session: str, id: str) -> None:
        if self._inbox.pop((session, id), None) is not None:
            del self._sizes[session][id]
            if not self._sizes[session]:
                del self._sizes[session]

    def _with_children(self, session: str) -> dict[str, None]:
        children: dict[str, list[str]] = {}
        for name, kept in self._kept.items():
            if kept.listing is not None and kept.listing.parent:
                children.setdefault(kept.listing.parent, []).append(name)
        names: dict[str, None] = {}
        left = [session]
        while left:
            name = left.pop()
            if name not in names:
                names[name] = None
                left += children.get(name, ())
        return names

    def _check_free(self, session: str, owner: str, unfinished: bool) -> None:
        kept = self._kept.get(session)
        if kept is None:
            return
        holder = self._owners.get(kept.owner or "")
        if holder is not None and holder.id != owner and holder.alive(time.time()):
            raise in_use(session, holder)
        if kept.listing is not None and kept.listing.unfinished and not unfinished:
            raise busy(session)

    def _give_up(self, session: str, kept: _Kept) -> None:
        kept.owner = None
        if kept.stored is None:
            del self._kept[session]

    def _check_open(self) -> None:
        if not self._open:
            raise closed("the memory store")

    async def _reading(self) -> None:
        self._check_open()
        await trio.lowlevel.checkpoint()
