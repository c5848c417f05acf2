"""What every store must do, as tests that a store's author runs against it.

In a test module (pytest and pytest-trio are needed)::

    from turnstate.testing.store_suite import StoreSuite

    class TestMyStore(StoreSuite):
        def make_store(self, tmp_path):
            return MyStore(tmp_path / "sessions.db")

Call ``pytest.register_assert_rewrite("turnstate.testing")`` in a ``conftest.py`` to see the values when a
test fails.
"""

from __future__ import annotations

import time
from pathlib import Path

import attrs
import pytest
import trio

from turnstate.stores.base import (
    LIVE_OWNERS,
    InboxItem,
    Owner,
    Room,
    StoredRow,
    StoredSession,
)
from turnstate_states.errors import Refused, SessionInUse, StaleSession, StoreError

from .store_case import commit_of, owner_of_here
from .store_suite_lists import ListSuite, all_of

__all__ = ["StoreSuite", "commit_of", "owner_of_here"]


class StoreSuite(ListSuite):
    """Derive a class whose name starts with ``Test`` and say how the store is made."""

    @pytest.mark.trio
    async def test_a_commit_is_read_back(self, tmp_path: Path) -> None:
        """What was committed is loaded byte for byte, and an unknown session is None."""
        async with self.claimed(tmp_path, "s") as (store, owner):
            assert await store.load("s") is None
            commit = commit_of("s", owner, 0, checkpoint='{"text":"\u00e9\U0001f600 \\u0000"}'.encode())
            await store.commit(commit)
            assert await store.load("s") == StoredSession("s", 1, commit.checkpoint)
            assert await store.load("other") is None
            assert await store.rows("s") == [commit.row]

    @pytest.mark.trio
    async def test_a_commit_without_a_row_adds_none(self, tmp_path: Path) -> None:
        """A commit that tells no event changes the checkpoint and leaves the log."""
        async with self.claimed(tmp_path, "s") as (store, owner):
            await store.commit(commit_of("s", owner, 0))
            await store.commit(commit_of("s", owner, 1, row=None, checkpoint=b"{}"))
            assert await store.load("s") == StoredSession("s", 2, b"{}")
            assert [row.last for row in await store.rows("s")] == [2]

    @pytest.mark.trio
    @pytest.mark.parametrize("after", [0, 2, 7])
    async def test_a_commit_on_another_sequence_is_stale(self, tmp_path: Path, after: int) -> None:
        """A commit that builds on another sequence than the stored one is refused."""
        async with self.claimed(tmp_path, "s") as (store, owner):
            await store.commit(commit_of("s", owner, 0))
            before = await all_of(store, "s")
            with pytest.raises(StaleSession, match="'s'"):
                await store.commit(commit_of("s", owner, after))
            assert await all_of(store, "s") == before

    @pytest.mark.trio
    async def test_a_refused_commit_leaves_no_trace(self, tmp_path: Path) -> None:
        """Of a refused commit nothing is there: no row, no receipt, no listing, and nothing was taken."""
        async with self.claimed(tmp_path, "s") as (store, owner):
            await store.commit(commit_of("s", owner, 0))
            await store.post(InboxItem("s", "i1", b"{}"))
            before = await all_of(store, "s")
            with pytest.raises(StaleSession):
                await store.commit(commit_of("s", owner, 5, receipts=(("i1", b"{}"),), taken=("i1",)))
            assert await store.receipt("s", "i1") is None
            assert await all_of(store, "s") == before

    @pytest.mark.trio
    async def test_a_commit_needs_the_claim(self, tmp_path: Path) -> None:
        """Without the claim, of another or of nobody, a commit is stale."""
        async with self.claimed(tmp_path, "s") as (store, owner):
            other = owner_of_here("owner-b")
            await store.renew(other)
            for session, who in (("s", other), ("never claimed", owner)):
                with pytest.raises(StaleSession):
                    await store.commit(commit_of(session, who, 0))
                assert await store.load(session) is None

    @pytest.mark.trio
    async def test_messages_are_in_order(self, tmp_path: Path) -> None:
        """All messages come oldest first; rows without any are left out."""
        async with self.claimed(tmp_path, "s", "t") as (store, owner):
            for after in range(30):
                row = StoredRow(after + 1, b"" if after % 3 == 1 else b"[%d]" % after, b"[{}]")
                await store.commit(commit_of("s", owner, after, row=row))
            await store.commit(commit_of("t", owner, 0))
            assert list(await store.messages("s")) == [b"[%d]" % n for n in range(30) if n % 3 != 1]
            assert list(await store.messages("nobody")) == []

    @pytest.mark.trio
    async def test_rows_are_read_in_pages(self, tmp_path: Path) -> None:
        """Reading on after the last event that was read gives each row once; events of one row stay together."""
        async with self.claimed(tmp_path, "s", "t") as (store, owner):
            for after in range(7):
                await store.commit(commit_of("s", owner, after))
                await store.commit(commit_of("t", owner, after))
            seen: list[int] = []
            while page := await store.rows("s", seen[-1] if seen else 0, 3):
                seen += [row.last for row in page]
            assert seen == [2, 4, 6, 8, 10, 12, 14]
            assert [row.last for row in await store.rows("s", 3, 1)] == [4]
            assert list(await store.rows("s", 14)) == []
            assert list(await store.rows("nobody")) == []

    @pytest.mark.trio
    async def test_the_row_of_an_event(self, tmp_path: Path) -> None:
        """Each event's number finds the row that holds it; a number that no event has finds none."""
        async with self.claimed(tmp_path, "s", "t") as (store, owner):
            for after in range(3):
                await store.commit(commit_of("s", owner, after))
            await store.commit(commit_of("t", owner, 0))
            found = [await store.row_of("s", number) for number in range(8)]
            assert [row and row.last for row in found] == [None, 2, 2, 4, 4, 6, 6, None]
            assert await store.row_of("nobody", 1) is None

    @pytest.mark.trio
    async def test_a_claim_is_exclusive(self, tmp_path: Path) -> None:
        """While an owner is alive another gets SessionInUse and nothing changes; the owner may claim again."""
        async with self.claimed(tmp_path, "s") as (store, owner):
            other = owner_of_here("owner-b")
            await store.renew(other)
            with pytest.raises(SessionInUse, match="'s'"):
                await store.claim("s", other, time.time())
            await store.claim("s", owner, time.time())
            assert await store.owner_of("s") == owner
            await store.commit(commit_of("s", owner, 0))

    @pytest.mark.trio
    async def test_a_claimed_session_without_a_commit_is_not_there(self, tmp_path: Path) -> None:
        """A claim alone makes no session: nothing is loaded, listed or deleted."""
        async with self.claimed(tmp_path, "s") as (store, owner):
            assert await store.load("s") is None
            assert list(await store.sessions()) == []
            await store.release("s", owner.id)
            assert await store.owner_of("s") is None
            assert not await store.delete("s")

    @pytest.mark.trio
    async def test_an_owner_must_be_stored_before_it_claims(self, tmp_path: Path) -> None:
        """A claim of an owner whose lease is not stored is refused, for nobody could tell whether it is alive."""
        async with self.make_store(tmp_path) as store:
            with pytest.raises(StoreError, match="renew"):
                await store.claim("s", owner_of_here("unknown"), time.time())
            assert await store.owner_of("s") is None

    @pytest.mark.trio
    @pytest.mark.parametrize("why", ["expired", "process gone", "engine gone"])
    async def test_a_dead_owner_is_replaced(self, tmp_path: Path, why: str) -> None:
        """A claim whose owner is gone is taken over, and the earlier owner can write nothing more."""
        async with self.claimed(tmp_path, "s") as (store, owner):
            await store.commit(commit_of("s", owner, 0))
            now = time.time()
            if why == "expired":
                now = owner.expires + 1
            elif why == "process gone":
                await store.renew(attrs.evolve(owner, process_started="another time"))
            else:
                LIVE_OWNERS.discard(owner.id)
            heir = attrs.evolve(owner_of_here("owner-b"), expires=now + 60)
            await store.renew(heir)
            await store.claim("s", heir, now)
            assert await store.owner_of("s") == heir
            with pytest.raises(StaleSession):
                await store.commit(commit_of("s", owner, 1))
            await store.commit(commit_of("s", heir, 1))
            with pytest.raises(StaleSession):
                await store.commit(commit_of("s", owner, 2))

    @pytest.mark.trio
    async def test_renewing_extends_the_lease(self, tmp_path: Path) -> None:
        """One renewal holds for all sessions of the owner."""
        async with self.claimed(tmp_path, "s", "t") as (store, owner):
            later = attrs.evolve(owner, expires=owner.expires + 1000)
            await store.renew(later)
            other = attrs.evolve(owner_of_here("owner-b"), expires=later.expires + 1000)
            await store.renew(other)
            for session in ("s", "t"):
                assert await store.owner_of(session) == later
                with pytest.raises(SessionInUse):
                    await store.claim(session, other, owner.expires + 1)

    @pytest.mark.trio
    async def test_a_released_session_is_free(self, tmp_path: Path) -> None:
        """Only the owner's own release frees a session; after it that owner's commits are stale."""
        async with self.claimed(tmp_path, "s") as (store, owner):
            await store.commit(commit_of("s", owner, 0))
            other = owner_of_here("owner-b")
            await store.renew(other)
            await store.release("s", other.id)
            assert await store.owner_of("s") == owner
            await store.release("s", owner.id)
            await store.release("nobody", owner.id)
            assert await store.owner_of("s") is None
            with pytest.raises(StaleSession):
                await store.commit(commit_of("s", owner, 1))
            await store.claim("s", other, time.time())
            await store.commit(commit_of("s", other, 1))

    @pytest.mark.trio
    async def test_a_retired_owner_has_nothing(self, tmp_path: Path) -> None:
        """Retiring frees all sessions of that owner and of no other."""
        async with self.claimed(tmp_path, "s", "t") as (store, owner):
            other = owner_of_here("owner-b")
            await store.renew(other)
            await store.claim("u", other, time.time())
            await store.commit(commit_of("s", owner, 0))
            await store.retire(owner.id)
            assert await store.owner_of("s") is None
            assert await store.owner_of("t") is None
            assert await store.owner_of("u") == other
            assert await store.load("s") is not None

    @pytest.mark.trio
    async def test_the_inbox_keeps_the_order(self, tmp_path: Path) -> None:
        """Submissions come oldest first, per session and for all; one posted again is replaced, not doubled."""
        async with self.make_store(tmp_path) as store:
            told: list[str] = []
            stop = store.listen(told.append)
            for session, id in (("s", "3"), ("t", "1"), ("s", "2"), ("s", "1")):
                await store.post(InboxItem(session, id, b"old"))
            await store.post(InboxItem("s", "2", b"new"))
            stop()
            await store.post(InboxItem("u", "1", b""))
            mine = [(item.id, item.body) for item in await store.inbox(["s", "x"])]
            assert sorted(mine) == [("1", b"old"), ("2", b"new"), ("3", b"old")]
            assert [id for id, _ in mine if id != "2"] == ["3", "1"]
            assert {(item.session, item.id) for item in await store.inbox()} == {
                ("s", "3"), ("t", "1"), ("s", "2"), ("s", "1"), ("u", "1")
            }  # fmt: skip
            assert list(await store.inbox([])) == []
            assert told == ["s", "t", "s", "s", "s"]

    @pytest.mark.trio
    @pytest.mark.parametrize("room", [Room(items=3), Room(size=30)])
    async def test_the_inbox_has_room_for_so_many(self, tmp_path: Path, room: Room) -> None:
        """What does not fit is refused and leaves no trace, in items and in bytes, for each session by itself."""
        async with self.claimed(tmp_path, "s", "t") as (store, owner):
            for id in ("1", "2", "3"):
                await store.post(InboxItem("s", id, b"x" * 10), room)
            told: list[str] = []
            stop = store.listen(told.append)
            before = await all_of(store, "s")
            with pytest.raises(Refused) as caught:
                await store.post(InboxItem("s", "4", b"x" * 10), room)
            stop()
            assert (caught.value.code, told) == ("full", [])
            assert "'s'" in str(caught.value)
            assert await all_of(store, "s") == before
            await store.post(InboxItem("t", "4", b"x" * 10), room)
            await store.post(InboxItem("s", "2", b"y" * 10), room)  # in the place of what was there
            if room.items == 3:
                await store.post(InboxItem("s", "4", b""))  # for which there is more room
            await store.commit(commit_of("s", owner, 0, taken=("1", "2", "3", "4")))
            for id in ("5", "6", "7"):
                await store.post(InboxItem("s", id, b"x" * 10), room)
            await store.release("s", owner.id)
            await store.delete("s")
            for id in ("5", "6", "8"):
                await store.post(InboxItem("s", id, b"x" * 10), room)

    @pytest.mark.trio
    async def test_what_a_commit_takes_is_gone_from_the_inbox(self, tmp_path: Path) -> None:
        """A commit removes what it applied, of its own session only, and keeps the receipt."""
        async with self.claimed(tmp_path, "s", "t") as (store, owner):
            for session, id in (("s", "1"), ("s", "2"), ("t", "1")):
                await store.post(InboxItem(session, id, b"{}"))
            receipts = (("1", b'{"ok":true}'), ("direct", b"{}"))
            await store.commit(commit_of("s", owner, 0, taken=("1",), receipts=receipts))
            assert [(item.session, item.id) for item in await store.inbox()] == [("s", "2"), ("t", "1")]
            assert await store.receipt("s", "1") == b'{"ok":true}'
            assert await store.receipt("s", "direct") == b"{}"
            assert await store.receipt("t", "1") is None
            assert await store.receipt("nobody", "1") is None

    @pytest.mark.trio
    async def test_everything_outlives_the_closing(self, tmp_path: Path) -> None:
        """A store that is opened after another was closed holds everything, claims and inbox included."""
        async with self.claimed(tmp_path, "s") as (store, owner):
            await store.commit(commit_of("s", owner, 0, receipts=(("i", b"{}"),)))
            await store.post(InboxItem("s", "j", b"{}"))
            before = await all_of(store, "s")
        async with self.another(store, tmp_path) as later:
            assert await all_of(later, "s") == before
            assert await later.receipt("s", "i") == b"{}"
            assert await later.owner_of("s") == owner
            await later.commit(commit_of("s", owner, 1))

    @pytest.mark.trio
    async def test_a_closed_store_says_so(self, tmp_path: Path) -> None:
        """Before the opening and after the closing every use is a StoreError."""
        store = self.make_store(tmp_path)
        with pytest.raises(StoreError, match="not open"):
            await store.load("s")
        async with store, store:
            await store.load("s")
        with pytest.raises(StoreError, match="not open"):
            await store.post(InboxItem("s", "i", b""))

    @pytest.mark.trio
    async def test_fifty_sessions_at_once(self, tmp_path: Path) -> None:
        """Tasks that commit at the same time do not disturb each other, nor do those that read meanwhile."""
        names = [f"s{number}" for number in range(50)]

        async def drive(session: str) -> None:
            for after in range(8):
                await store.commit(commit_of(session, owner, after, receipts=((f"i{after}", b"{}"),)))
                assert [row.last for row in await store.rows(session)] == list(range(2, 2 * after + 3, 2))

        async with self.claimed(tmp_path, *names) as (store, owner):
            async with trio.open_nursery() as nursery:
                for name in names:
                    nursery.start_soon(drive, name)
            for name in names:
                stored = await store.load(name)
                assert stored is not None
                assert stored.sequence == 8

    @pytest.mark.trio
    async def test_only_one_of_many_wins_a_claim(self, tmp_path: Path) -> None:
        """Of many that claim a session at once exactly one gets it."""
        won: list[Owner] = []

        async def try_it(owner: Owner) -> None:
            try:
                await store.claim("s", owner, time.time())
            except SessionInUse:
                return
            won.append(owner)

        async with self.make_store(tmp_path) as store:
            owners = [owner_of_here(f"owner-{number}") for number in range(20)]
            async with trio.open_nursery() as nursery:
                for owner in owners:
                    await store.renew(owner)
                    nursery.start_soon(try_it, owner)
            assert len(won) == 1
            assert await store.owner_of("s") == won[0]

    @pytest.mark.trio
    async def test_a_commit_cannot_be_cancelled(self, tmp_path: Path) -> None:
        """A commit of a cancelled task is done, and returns as done."""
        async with self.claimed(tmp_path, "s") as (store, owner):
            returned = False
            with trio.CancelScope() as scope:
                scope.cancel()
                await store.commit(commit_of("s", owner, 0))
                returned = True
            assert returned
            assert await store.load("s") is not None
