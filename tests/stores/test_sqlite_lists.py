"""Lists of the SQLite store cost what they show, and keeping them costs commits next to nothing."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from typing import Any

import attrs
import pytest

from turnstate.stores.base import Cursor, Listing, SessionQuery, StoredRow
from turnstate.stores.sqlite import SQLiteStore
from turnstate.stores.sqlite_listings import listings
from turnstate.testing.store_suite import commit_of, owner_of_here

PLANS = [
    (SessionQuery(), "sqlite_autoindex_session_1 (session>?)"),
    (SessionQuery(archived=False), "sqlite_autoindex_session_1 (session>?)"),
    (SessionQuery(archived=False, order="recent"), "session_recent (archived=? AND hour<?)"),
    (SessionQuery(archived=True, order="recent", search="a"), "session_recent (archived=? AND hour<?)"),
    (SessionQuery(waiting=True), "session_waiting (session>?)"),
    (SessionQuery(unfinished=True, labels={"a": "b"}), "session_unfinished (session>?)"),
    (SessionQuery(due=1.0, archived=False), "session_deadline (deadline<?)"),
    (SessionQuery(ids=("a", "b"), children=True), "sqlite_autoindex_session_1 (session=?)"),
]


@pytest.mark.trio
@pytest.mark.parametrize(("query", "index"), PLANS)
async def test_a_list_goes_through_an_index(path: Path, query: SessionQuery, index: str) -> None:
    """A list looks at no more sessions than those of its index, and sorts none that come in order."""
    said: list[str] = []

    def explained(connection: sqlite3.Connection) -> list[str]:
        connection.set_trace_callback(said.append)
        listings(connection, query, Cursor("s", 5.0), 10)
        connection.set_trace_callback(None)
        return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {said[-1]}")]

    async with SQLiteStore(path) as store:
        plan = await store._read(explained)  # pyright: ignore[reportPrivateUsage]
    assert next(step for step in plan if "INDEX" in step and "session" in step).endswith(f"INDEX {index}")
    assert not any(step.startswith("SCAN session") for step in plan)
    assert ("USE TEMP B-TREE FOR ORDER BY" in plan) == ("deadline" in index)


@pytest.mark.trio
async def test_a_commit_leaves_the_indexes_alone(path: Path) -> None:
    """A commit that changes only what was said writes as many pages as if there were no lists."""
    owner = owner_of_here("owner-a")
    async with SQLiteStore(path) as store:
        await store.renew(owner)
        for number in range(300):
            await store.claim(f"s{number}", owner, time.time())
            await store.commit(
                commit_of(f"s{number}", owner, 0, listing=Listing(f"s{number}", updated_at=3600.0 * number))
            )
        pages: dict[str, int] = {}
        listing = Listing("s7", updated_at=7 * 3600.0)
        changes: dict[str, dict[str, Any]] = {
            "said": {"updated_at": 7.5 * 3600},
            "hour": {"updated_at": 9 * 3600.0},
            "archived": {"archived": True},
        }
        for after, (what, change) in enumerate(changes.items(), 1):
            listing = attrs.evolve(listing, last_event=2 * after, title=what, **change)
            before = os.stat(f"{path}-wal").st_size
            await store.commit(commit_of("s7", owner, after, listing=listing, row=StoredRow(2 * after + 2, b"", b"[]")))
            pages[what] = (os.stat(f"{path}-wal").st_size - before) // (2048 + 24)
    # A page of the table, one of the log, and where indexed columns changed some of the indexes.
    assert pages["said"] == 2
    assert pages["hour"] > 2
    assert pages["archived"] > 2
