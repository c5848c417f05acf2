"""What every store must do to list, find and delete sessions: a part of ``StoreSuite``."""

from __future__ import annotations

import json
import random
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from turnstate.stores.base import (
    Cursor,
    InboxItem,
    Listing,
    Owner,
    SessionQuery,
    Store,
    StoredRow,
    StoredSession,
)
from turnstate_states.errors import Refused, SessionInUse, StaleSession

from .store_case import StoreCase, commit_of

__all__ = ["ListSuite", "all_of"]


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


class ListSuite(StoreCase):
    """Lists and deletions."""

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
            assert await all_of(store, "c") == (None, [], [], [], [])
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
            kept = [await all_of(store, session) for session in ("r", "t")]
            with pytest.raises(SessionInUse):
                await store.delete("s")
            await store.release("s", owner.id)
            assert await store.delete("s")
            assert not await store.delete("s")
            assert await all_of(store, "s") == (None, [], [], [], [])
            assert await store.receipt("s", "i") is None
            assert [await all_of(store, session) for session in ("r", "t")] == kept
            with pytest.raises(StaleSession):
                await store.commit(commit_of("s", owner, 1))
            await store.claim("s", owner, time.time())
            await store.commit(commit_of("s", owner, 0))
            assert [row.last for row in await store.rows("s")] == [2]


async def all_of(
    store: Store, session: str
) -> tuple[StoredSession | None, Sequence[StoredRow], Sequence[bytes], Sequence[InboxItem], Sequence[Listing]]:
    """Everything that a store holds of a session."""
    listed = [listing for listing in await store.sessions() if listing.session == session]
    return (
        await store.load(session),
        list(await store.rows(session)),
        list(await store.messages(session)),
        list(await store.inbox([session])),
        listed,
    )
