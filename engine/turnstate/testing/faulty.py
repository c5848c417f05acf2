"""A store that fails when you tell it to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from turnstate_states import checks
from turnstate_states.errors import StoreError

from ..stores.base import (
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

__all__ = ["FaultyStore"]


class FaultyStore(Store):
    """Passes everything on to another store, but its n-th commit raises :class:`~turnstate.StoreError`.

    Args:
        store: the store behind it. It may stay open after this one is closed, and be used by another engine.
        fail_at: which commit fails, from 1; None for none.
        when: ``"before"``: nothing is written. ``"after"``: the commit is written all the same, as when the answer of a
            server is lost.

    ``commits`` counts the commits that were asked for.

    Raises:
        InvalidInput: an argument cannot be used.
    """

    def __init__(self, store: Store, fail_at: int | None = None, when: Literal["before", "after"] = "before") -> None:
        super().__init__()
        checks.instance("store", store, Store, "a Store")
        checks.optional(checks.integer, "fail_at", fail_at, least=1, expected="None or a number")
        checks.choice("when", when, ("before", "after"))
        self.store = store
        self.fail_at = fail_at
        self.when = when
        self.commits = 0
        self.poll_interval = store.poll_interval

    def __repr__(self) -> str:
        return f"FaultyStore({self.store!r}, fail_at={self.fail_at!r}, when={self.when!r})"

    async def commit(self, commit: StoredCommit) -> None:
        """Write a commit, or fail."""
        self.commits += 1
        number = self.commits
        failing = number == self.fail_at
        if failing and self.when == "before":
            raise StoreError(f"commit {number} was made to fail before it was written")
        await self.store.commit(commit)
        if failing:
            raise StoreError(f"commit {number} was made to fail after it was written")

    async def open(self) -> None:
        """Open the store behind it."""
        await self.store.__aenter__()

    async def aclose(self) -> None:
        """Close the store behind it."""
        await self.store.__aexit__(None, None, None)

    def listen(self, told: Callable[[str], None]) -> Callable[[], None]:
        """Listen to the store behind it."""
        return self.store.listen(told)

    async def load(self, session: str) -> StoredSession | None:
        """Pass it on."""
        return await self.store.load(session)

    async def messages(self, session: str) -> Sequence[bytes]:
        """Pass it on."""
        return await self.store.messages(session)

    async def rows(self, session: str, after: int = 0, limit: int = 1000) -> Sequence[StoredRow]:
        """Pass it on."""
        return await self.store.rows(session, after, limit)

    async def row_of(self, session: str, number: int) -> StoredRow | None:
        """Pass it on."""
        return await self.store.row_of(session, number)

    async def claim(self, session: str, owner: Owner, now: float) -> None:
        """Pass it on."""
        await self.store.claim(session, owner, now)

    async def release(self, session: str, owner: str) -> None:
        """Pass it on."""
        await self.store.release(session, owner)

    async def renew(self, owner: Owner) -> None:
        """Pass it on."""
        await self.store.renew(owner)

    async def retire(self, owner: str) -> None:
        """Pass it on."""
        await self.store.retire(owner)

    async def owner_of(self, session: str) -> Owner | None:
        """Pass it on."""
        return await self.store.owner_of(session)

    async def post(self, item: InboxItem, room: Room = ROOM) -> None:
        """Pass it on."""
        await self.store.post(item, room)

    async def inbox(self, sessions: Sequence[str] | None = None) -> Sequence[InboxItem]:
        """Pass it on."""
        return await self.store.inbox(sessions)

    async def receipt(self, session: str, id: str) -> bytes | None:
        """Pass it on."""
        return await self.store.receipt(session, id)

    async def sessions(
        self, query: SessionQuery = ALL_SESSIONS, *, after: Cursor | None = None, limit: int = 100
    ) -> Sequence[Listing]:
        """Pass it on."""
        return await self.store.sessions(query, after=after, limit=limit)

    async def delete(self, session: str, *, owner: str = "", unfinished: bool = True) -> Sequence[str]:
        """Pass it on."""
        return await self.store.delete(session, owner=owner, unfinished=unfinished)
