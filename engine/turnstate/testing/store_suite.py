"""What every store must do, as tests that a store's author runs against it.

In a test module (pytest and pytest-trio are needed)::

    from turnstate.testing.store_suite import StoreSuite

    class TestMyStore(StoreSuite):
        def make_store(self, tmp_path):
            return MyStore(tmp_path / "sessions.db")

Call ``pytest.register_assert_rewrite("turnstate.testing.store_suite")`` in a ``conftest.py`` to see the values when a
test fails.
"""

from __future__ import annotations

import json
import os
import random
import socket
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from turnstate.stores.base import (
    LIVE_OWNERS,
    Cursor,
    InboxItem,
    Listing,
    Owner,
    SessionQuery,
    Store,
    StoredCommit,
    StoredRow,
    StoredSession,
    process_started,
)
from turnstate_states.errors import Refused, SessionInUse, StaleSession, StoreError

__all__ = ["StoreSuite", "commit_of", "owner_of_here"]

pytestmark = pytest.mark.trio


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


TITLES = {
    "percent": "100% done",
    "under": "snake_case",
    "slash": "C:\\temp",
    "koeln": "\u00c4rger in K\u00f6ln",
    "gross": "Gro\u00dfe Stra\u00dfe",
    "greek": "\u03a3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2",
    "quote": "it's",
    "empty": "",
}
SEARCHES = {
    "%": "percent",
    "_": "under",
    "\\": "slash",
    "'": "quote",
    "0% D": "percent",
    "\u00e4RGER IN": "koeln",
    "STRASSE": "gross",
    "\u00df": "gross",
    "\u03a3\u03a5\u03a6\u039f\u03a3": "greek",
    "arger": "",
    "": "empty greek gross koeln percent quote slash under",
}
"""What is searched for, and whose titles hold it."""


def _some_listing(chance: random.Random, session: str) -> Listing:
    return Listing(
        session,
        title=chance.choice(list(TITLES.values())),
        waiting=chance.random() < 0.3,
        unfinished=chance.random() < 0.4,
        updated_at=chance.choice([0.0, 3600.0, 7199.5, 1700000000.125, 1700000000.5, 1700003600.0]),
        labels=json.dumps({"n": chance.choice("123")}),
        archived=chance.random() < 0.3,
        parent=chance.choice(["", "", "s0", "s1"]),
        deadline=chance.choice([None, 1.0, 2.0]),
    )


def _some_query(chance: random.Random) -> SessionQuery:
    return SessionQuery(
        waiting=chance.random() < 0.2,
        unfinished=chance.random() < 0.2,
        archived=chance.choice([None, True, False]),
        children=chance.random() < 0.3,
        ids=chance.choice([None, None, None, ("s1", "s5", "s33", "s9")]),
        search=chance.choice(["", "", "%", "STRASSE"]),
        labels=chance.choice([{}, {}, {"n": "1"}]),
        due=chance.choice([None, None, None, 1.0, 2.0]),
        order=chance.choice(["id", "recent"]),
    )


class StoreSuite:
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
            before = await _all_of(store, "s")
            with pytest.raises(StaleSession, match="'s'"):
                await store.commit(commit_of("s", owner, after))
            assert await _all_of(store, "s") == before

    @pytest.mark.trio
    async def test_a_refused_commit_leaves_no_trace(self, tmp_path: Path) -> None:
        """Of a refused commit nothing is there: no row, no receipt, no listing, and nothing was taken."""
        async with self.claimed(tmp_path, "s") as (store, owner):
            await store.commit(commit_of("s", owner, 0))
            await store.post(InboxItem("s", "i1", b"{}"))
            before = await _all_of(store, "s")
            with pytest.raises(StaleSession):
                await store.commit(commit_of("s", owner, 5, receipts=(("i1", b"{}"),), taken=("i1",)))
            assert await store.receipt("s", "i1") is None
            assert await _all_of(store, "s") == before

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

    @asynccontextmanager
    async def listed(self, tmp_path: Path, *listings: Listing) -> AsyncGenerator[tuple[Store, Owner], None]:
        """An open store with sessions that have these listings, and the owner who has claimed them."""
        async with self.claimed(tmp_path, *(listing.session for listing in listings)) as (store, owner):
            for listing in reversed(listings):
                await store.commit(commit_of(listing.session, owner, 0, listing=listing))
            yield store, owner

    @pytest.mark.trio
    async def test_sessions_are_listed_in_pages(self, tmp_path: Path) -> None:
        """Listings come back whole, in the order of their ids, in pages, filtered."""
        listings = [
            Listing(
                *(
                    f"s{n:02}",
                    "title \u00e9",
                    "waiting",
                    n % 2 == 0,
                    n % 3 == 0,
                    n == 5,
                    n,
                    1700000000.1,
                    1.5,
                    '{"a":"b"}',
                ),
                *(n == 7, "", 1800000000.1 + n if n % 2 else None, "failed", 3 * n),
            )
            for n in range(12)
        ]
        async with self.listed(tmp_path, *listings) as (store, owner):
            assert list(await store.sessions()) == listings
            assert list(await store.sessions(after=Cursor("s03"), limit=2)) == listings[4:6]
            assert list(await store.sessions(SessionQuery(waiting=True))) == listings[::2]
            assert list(await store.sessions(SessionQuery(unfinished=True), after=Cursor("s00"))) == listings[3::3]
            both = SessionQuery(waiting=True, unfinished=True)
            assert list(await store.sessions(both)) == listings[::6]
            ended = attrs.evolve(listings[0], waiting=False, unfinished=False)
            await store.commit(commit_of("s00", owner, 1, listing=ended))
            assert list(await store.sessions(both)) == listings[6::6]
            ids = SessionQuery(ids=("s05", "s01", "nobody"))
            assert list(await store.sessions(ids)) == [listings[1], listings[5]]

    @pytest.mark.trio
    async def test_sessions_are_found_by_what_they_are(self, tmp_path: Path) -> None:
        """Archived sessions and children are listed where they are asked for, and a deadline counts up to its time."""
        own, archived = Listing("own", deadline=5.0), Listing("archived", archived=True, deadline=5.5)
        child, late = Listing("child", parent="own", deadline=1.0), Listing("late", deadline=9.0)
        async with self.listed(tmp_path, own, archived, child, late) as (store, owner):

            async def found(**asked: Any) -> str:
                return " ".join(listing.session for listing in await store.sessions(SessionQuery(**asked)))

            assert await found() == "archived late own"
            assert await found(archived=False) == "late own"
            assert await found(archived=True) == "archived"
            assert await found(children=True) == "archived child late own"
            assert await found(children=True, archived=False) == "child late own"
            assert await found(due=5.0) == "own"
            assert await found(due=5.5) == "archived own"
            assert await found(due=5.0, children=True) == "child own"
            await store.commit(commit_of("own", owner, 1, listing=Listing("own", archived=True)))
            await store.commit(commit_of("archived", owner, 1, listing=Listing("archived", deadline=2.0)))
            assert await found(archived=True) == "own"
            assert await found(archived=False, order="recent") == "archived late"
            assert await found(due=7.0) == "archived"

    @pytest.mark.trio
    async def test_sessions_are_found_by_their_titles(self, tmp_path: Path) -> None:
        """A search finds a part of a title whatever the case, in any script, and takes every character as it is."""
        async with self.listed(tmp_path, *(Listing(name, title) for name, title in TITLES.items())) as (store, owner):
            for search, expected in SEARCHES.items():
                for order in ("id", "recent"):
                    found = await store.sessions(SessionQuery(search=search, order=order))
                    assert " ".join(sorted(listing.session for listing in found)) == expected, search
            await store.commit(commit_of("percent", owner, 1, listing=Listing("percent", "Renamed")))
            assert not await store.sessions(SessionQuery(search="100"))
            assert len(await store.sessions(SessionQuery(search="rENAMED"))) == 1

    @pytest.mark.trio
    async def test_sessions_are_found_by_their_labels(self, tmp_path: Path) -> None:
        """All labels that are asked for must be there, each with exactly that text."""
        labels = {"a": {"x": "1", "y": "2"}, "b": {"x": "1"}, "c": {"x": "10", 'q"\\': "\u00fc'%"}, "d": {}}
        async with self.listed(tmp_path, *(Listing(n, labels=json.dumps(of)) for n, of in labels.items())) as (
            store,
            _,
        ):
            for asked, expected in (
                ({"x": "1"}, "a b"),
                ({"x": "1", "y": "2"}, "a"),
                ({"x": "1", "z": "2"}, ""),
                ({"X": "1"}, ""),
                ({'q"\\': "\u00fc'%"}, "c"),
                ({}, "a b c d"),
            ):
                found = await store.sessions(SessionQuery(labels=asked))
                assert " ".join(listing.session for listing in found) == expected, asked

    @pytest.mark.trio
    async def test_what_changed_last_comes_first(self, tmp_path: Path) -> None:
        """In the order ``recent`` a session moves to the front when it changes; equal times are ordered by id."""
        times = {"a": 7200.0, "b": 7199.9, "c": 1700000000.25, "d": 7200.0, "e": 0.0}
        recent = SessionQuery(order="recent", archived=False)
        async with self.listed(tmp_path, *(Listing(name, updated_at=at) for name, at in times.items())) as (
            store,
            owner,
        ):
            assert [listing.session for listing in await store.sessions(recent)] == ["c", "a", "d", "b", "e"]
            assert [listing.session for listing in await store.sessions(recent, after=Cursor("a", 7200.0), limit=2)] == [
                "d", "b"
            ]  # fmt: skip
            await store.commit(commit_of("e", owner, 1, listing=Listing("e", updated_at=1700000000.5)))
            assert [listing.session for listing in await store.sessions(recent, limit=3)] == ["e", "c", "a"]

    @pytest.mark.trio
    async def test_a_list_is_what_its_query_says(self, tmp_path: Path) -> None:
        """Whatever is asked for, the pages together hold each session that matches once, in order."""
        chance = random.Random(1)
        listings = [_some_listing(chance, f"s{number}") for number in range(60)]
        async with self.listed(tmp_path, *listings) as (store, _):
            for _ in range(200):
                query = _some_query(chance)
                expected = sorted(filter(query.matches, listings), key=query.place)
                found: list[Listing] = []
                while page := await store.sessions(query, after=Cursor.of(found[-1]) if found else None, limit=7):
                    found += page
                assert found == expected, query

    @pytest.mark.trio
    async def test_deleting_takes_the_children_along(self, tmp_path: Path) -> None:
        """A session is deleted with those that answer its calls, and theirs, together or not at all."""
        parents = {"a": "", "b": "a", "c": "b", "d": "a", "e": "", "f": "gone"}
        async with self.listed(tmp_path, *(Listing(name, parent=of) for name, of in parents.items())) as (store, owner):
            await store.post(InboxItem("c", "j", b"{}"))
            with pytest.raises(SessionInUse):
                await store.delete("a")
            await store.release("a", owner.id)
            with pytest.raises(SessionInUse, match=r"'[bcd]'"):
                await store.delete("a")
            assert len(await store.sessions(SessionQuery(children=True))) == 6
            assert sorted(await store.delete("a", owner=owner.id)) == ["a", "b", "c", "d"]
            assert [listing.session for listing in await store.sessions(SessionQuery(children=True))] == ["e", "f"]
            assert await _all_of(store, "c") == (None, [], [], [], [])
            assert await store.delete("gone", owner=owner.id) == ["f"]

    @pytest.mark.trio
    async def test_what_has_not_ended_can_be_kept(self, tmp_path: Path) -> None:
        """Deleting only what has ended is refused where a turn has not, be it a child's, and nothing is deleted."""
        async with self.listed(tmp_path, Listing("a"), Listing("b", parent="a", unfinished=True)) as (store, owner):
            with pytest.raises(Refused, match="'b'") as refused:
                await store.delete("a", owner=owner.id, unfinished=False)
            assert refused.value.code == "busy"
            assert await store.load("a") is not None
            await store.commit(commit_of("b", owner, 1, listing=Listing("b", parent="a")))
            assert sorted(await store.delete("a", owner=owner.id, unfinished=False)) == ["a", "b"]

    @pytest.mark.trio
    async def test_a_deleted_session_is_gone(self, tmp_path: Path) -> None:
        """Nothing of a deleted session is left and nothing of another is lost; its id starts anew."""
        async with self.claimed(tmp_path, "r", "s", "t") as (store, owner):
            for session in ("r", "s", "t"):
                await store.commit(commit_of(session, owner, 0, receipts=(("i", b"{}"),)))
                await store.post(InboxItem(session, "j", b"{}"))
            kept = [await _all_of(store, session) for session in ("r", "t")]
            with pytest.raises(SessionInUse):
                await store.delete("s")
            await store.release("s", owner.id)
            assert await store.delete("s")
            assert not await store.delete("s")
            assert await _all_of(store, "s") == (None, [], [], [], [])
            assert await store.receipt("s", "i") is None
            assert [await _all_of(store, session) for session in ("r", "t")] == kept
            with pytest.raises(StaleSession):
                await store.commit(commit_of("s", owner, 1))
            await store.claim("s", owner, time.time())
            await store.commit(commit_of("s", owner, 0))
            assert [row.last for row in await store.rows("s")] == [2]

    @pytest.mark.trio
    async def test_everything_outlives_the_closing(self, tmp_path: Path) -> None:
        """A store that is opened after another was closed holds everything, claims and inbox included."""
        async with self.claimed(tmp_path, "s") as (store, owner):
            await store.commit(commit_of("s", owner, 0, receipts=(("i", b"{}"),)))
            await store.post(InboxItem("s", "j", b"{}"))
            before = await _all_of(store, "s")
        async with self.another(store, tmp_path) as later:
            assert await _all_of(later, "s") == before
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


async def _all_of(
    store: Store, session: str
) -> tuple[StoredSession | None, Sequence[StoredRow], Sequence[bytes], Sequence[InboxItem], Sequence[Listing]]:
    listed = [listing for listing in await store.sessions() if listing.session == session]
    return (
        await store.load(session),
        list(await store.rows(session)),
        list(await store.messages(session)),
        list(await store.inbox([session])),
        listed,
    )
