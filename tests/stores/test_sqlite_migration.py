"""Files of earlier versions of the SQLite store are brought to this one when they are opened."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import attrs
import pytest
import trio

from turnstate.stores import sqlite_file
from turnstate.stores.base import InboxItem, Listing, SessionQuery, StoredRow, StoredSession
from turnstate.stores.sqlite import SQLiteStore
from turnstate.testing.store_suite import commit_of, owner_of_here
from turnstate_states import codec
from turnstate_states.checkpoint import Checkpoint
from turnstate_states.errors import StoreError
from turnstate_states.turn import Call, TurnState

VERSION_1 = """
PRAGMA page_size = 2048;
CREATE TABLE session (
  key INTEGER PRIMARY KEY,
  session TEXT NOT NULL UNIQUE,
  sequence INTEGER DEFAULT 0,
  owner TEXT,
  waiting INTEGER DEFAULT 0,
  unfinished INTEGER DEFAULT 0,
  held INTEGER DEFAULT 0,
  queued INTEGER DEFAULT 0,
  created_at REAL DEFAULT 0,
  updated_at REAL DEFAULT 0,
  state TEXT DEFAULT '',
  title TEXT DEFAULT '',
  labels TEXT DEFAULT '{}',
  checkpoint BLOB
);
CREATE INDEX session_waiting ON session (session) WHERE waiting;
CREATE INDEX session_unfinished ON session (session) WHERE unfinished;
CREATE INDEX session_owner ON session (owner) WHERE owner IS NOT NULL;
CREATE TABLE log (
  place INTEGER PRIMARY KEY,
  messages BLOB,
  events BLOB
);
CREATE TABLE receipt (
  session INTEGER NOT NULL,
  id TEXT NOT NULL,
  body BLOB,
  PRIMARY KEY (session, id)
) WITHOUT ROWID;
CREATE TABLE inbox (
  number INTEGER PRIMARY KEY,
  session TEXT NOT NULL,
  id TEXT NOT NULL,
  body BLOB NOT NULL,
  UNIQUE (session, id)
);
CREATE TABLE owner (
  id TEXT PRIMARY KEY,
  host TEXT NOT NULL,
  pid INTEGER NOT NULL,
  process_started TEXT NOT NULL,
  expires REAL NOT NULL
) WITHOUT ROWID;
PRAGMA application_id = 1951756910;
PRAGMA user_version = 1;
PRAGMA journal_mode = WAL;
"""

CALLS = {f"m2.{n}": Call(f"m2.{n}", "pay", "asked", expires_at=at) for n, at in enumerate((None, 900.5, 800.5))}
TURN = TurnState("t1", "s1", 1.0, state="awaiting-approval", calls=CALLS)
CHECKPOINT = Checkpoint("asks", 1.0, sequence=4, updated_at=7300.5, events=9, turn=TURN, title="Gro\u00dfe Fahrt")

LISTED = [
    Listing(
        *("asks", "Gro\u00dfe Fahrt", "awaiting-approval", True, True, True, 2, 1.0, 7300.5, '{"a": "b"}'),
        deadline=800.5,
        last_event=9,
    ),
    Listing("broken", "old", "complete", updated_at=7200.0),
]


def version_1(path: Path) -> None:
    """A file as version 1 left it."""
    connection = sqlite3.connect(path)
    connection.executescript(VERSION_1)
    owner = owner_of_here("owner-a")
    rows = [
        (3, "broken", 2, None, 0, 0, 0, 0, 0.0, 7200.0, "complete", "old", "{}", b'{"sequence":2}'),
        (5, "asks", 4, "owner-a", 1, 1, 1, 2, 1.0, 7300.5, "awaiting-approval", CHECKPOINT.title, '{"a": "b"}',
         codec.encode_checkpoint(CHECKPOINT)),
        (6, "claimed", 0, "owner-a", 0, 0, 0, 0, 0.0, 0.0, "", "", "{}", None),
    ]  # fmt: skip
    with connection:
        connection.executemany(f"INSERT INTO session VALUES ({', '.join('?' * 14)})", rows)
        connection.execute("INSERT INTO log VALUES (?, ?, ?)", (5 << 32 | 9, b"[]", b"[{}]"))
        connection.execute("INSERT INTO receipt VALUES (5, 'i', x'7b7d')")
        connection.execute("INSERT INTO inbox VALUES (1, 'asks', 'j', x'7b7d')")
        connection.execute(
            "INSERT INTO owner VALUES (?, ?, ?, ?, ?)",
            (owner.id, owner.host, owner.pid, owner.process_started, owner.expires),
        )
    connection.close()


def tables(path: Path) -> dict[str, str]:
    """The tables and indexes of a file with what defines them."""
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    connection.close()
    return {name: sql.replace('"', "") for name, sql in found}


@pytest.mark.trio
async def test_a_file_of_version_1_is_opened(path: Path) -> None:
    """All that a file of version 1 holds is there, and its lists show what only the checkpoints told then."""
    version_1(path)
    async with SQLiteStore(path) as store:
        assert list(await store.sessions()) == LISTED
        assert await store.load("asks") == StoredSession("asks", 4, codec.encode_checkpoint(CHECKPOINT))
        assert await store.load("claimed") is None
        assert list(await store.rows("asks")) == [StoredRow(9, b"[]", b"[{}]")]
        assert await store.receipt("asks", "i") == b"{}"
        assert list(await store.inbox()) == [InboxItem("asks", "j", b"{}")]
        for query, expected in (
            (SessionQuery(order="recent", archived=False), LISTED),
            (SessionQuery(search="GROSSE f"), LISTED[:1]),
            (SessionQuery(due=800.5), LISTED[:1]),
            (SessionQuery(waiting=True), LISTED[:1]),
        ):
            assert list(await store.sessions(query)) == expected
        owner = owner_of_here("owner-a")
        holder = await store.owner_of("asks")
        assert holder is not None
        assert attrs.evolve(holder, expires=owner.expires) == owner
        await store.commit(commit_of("asks", owner, 4, row=StoredRow(10, b"", b"[]")))
        await store.claim("broken", owner, time.time())
        await store.commit(commit_of("broken", owner, 2))
        assert [row.last for row in await store.rows("asks")] == [9, 10]
        assert await store.delete("asks", owner=owner.id) == ["asks"]


@pytest.mark.trio
async def test_a_migrated_file_is_like_a_new_one(path: Path, tmp_path: Path) -> None:
    """After the opening a file of version 1 has the tables, the indexes and the version of a new one."""
    version_1(path)
    sqlite_file.prepare(str(path), "full").close()
    sqlite_file.prepare(str(tmp_path / "new.db"), "full").close()
    assert tables(path) == tables(tmp_path / "new.db")
    for file in (path, tmp_path / "new.db"):
        connection = sqlite3.connect(file)
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.close()


@pytest.mark.trio
async def test_two_that_open_an_old_file_at_once(path: Path) -> None:
    """Two stores that open a file of version 1 at the same time both find it migrated, once."""
    version_1(path)
    stores = [SQLiteStore(path), SQLiteStore(path)]
    async with trio.open_nursery() as nursery:
        for store in stores:
            nursery.start_soon(store.open)
    for store in stores:
        assert list(await store.sessions()) == LISTED
        await store.aclose()


@pytest.mark.trio
async def test_a_migration_that_fails_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the process fails amid a migration the file is as it was, and is migrated at the next opening."""

    def fail(_: float) -> int:
        raise OSError("broken")

    version_1(path)
    before = tables(path)
    with monkeypatch.context() as patch:
        patch.setattr("turnstate.stores.sqlite_schema.hour_of", fail)
        with pytest.raises(StoreError):
            await SQLiteStore(path).open()
    assert tables(path) == before
    async with SQLiteStore(path) as store:
        assert list(await store.sessions()) == LISTED
