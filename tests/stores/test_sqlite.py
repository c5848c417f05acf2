"""The SQLite store keeps the promises of stores; it groups writes, and only the guilty one of a group fails."""

# ruff: noqa: ASYNC240 -- nothing else runs while a test looks at its files

from __future__ import annotations

import gc
import sqlite3
import threading
import time
import warnings
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from tests.stores.helpers import filled, held_up, open_files
from turnstate.stores import sqlite_rows
from turnstate.stores.base import Listing, Store, StoredRow
from turnstate.stores.sqlite import SQLiteStore
from turnstate.stores.sqlite_file import Durability
from turnstate.testing.store_suite import StoreSuite, commit_of, owner_of_here
from turnstate_states.errors import StaleSession, StoreError


class TestSQLiteStore(StoreSuite):
    def make_store(self, tmp_path: Path) -> Store:
        return SQLiteStore(tmp_path / "a ü?#%.db")


class TestSQLiteStoreNormal(StoreSuite):
    def make_store(self, tmp_path: Path) -> Store:
        return SQLiteStore(str(tmp_path / "sessions.db"), durability="normal")


@pytest.mark.trio
async def test_closing_leaves_nothing_open(path: Path) -> None:
    """After the closing there is no thread, no open file and no log left."""
    files = open_files()
    await filled(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gc.collect()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("turnstate")]
    assert open_files() <= files
    assert [file.name for file in path.parent.iterdir()] == ["sessions.db"]


@pytest.mark.trio
async def test_two_tasks_that_open_at_once_open_it_once(path: Path) -> None:
    """A store that two tasks open at the same time has one pair of threads, and works."""
    store = SQLiteStore(path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.open)
        nursery.start_soon(store.open)
    assert len([thread for thread in threading.enumerate() if str(path) in thread.name]) == 2
    await store.aclose()


@pytest.mark.trio
async def test_closing_finishes_what_was_asked(path: Path) -> None:
    """Commits that wait when the store is closed are written, and their tasks are told."""
    done: list[str] = []
    owner = owner_of_here("owner-a")
    store = SQLiteStore(path)
    await store.open()
    await store.renew(owner)
    names = [f"s{number}" for number in range(20)]
    for name in names:
        await store.claim(name, owner, time.time())

    async def commit(name: str) -> None:
        await store.commit(commit_of(name, owner, 0))
        done.append(name)

    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(commit, name)
        await trio.testing.wait_all_tasks_blocked()
        await store.aclose()
    assert sorted(done) == sorted(names)
    async with store:
        assert len(await store.sessions()) == 20


@pytest.mark.trio
async def test_of_a_group_only_the_stale_are_refused(path: Path) -> None:
    """Among commits that are written together each stale one is refused alone."""
    owner = owner_of_here("owner-a")
    refused: list[str] = []
    async with SQLiteStore(path) as store:
        await store.renew(owner)
        for number in range(150):
            await store.claim(f"s{number}", owner, time.time())

        async def commit(number: int) -> None:
            name = f"s{number}"
            try:
                await store.commit(commit_of(name, owner, 1 if number % 50 == 7 else 0))
            except StaleSession:
                refused.append(name)

        async with held_up(store), trio.open_nursery() as nursery:
            for number in range(150):
                nursery.start_soon(commit, number)
        assert sorted(refused) == ["s107", "s57", "s7"]
        assert len(await store.sessions(limit=1000)) == 147


@pytest.mark.trio
async def test_a_failing_commit_of_a_group_fails_alone(path: Path) -> None:
    """When a statement of one commit fails, the others of its group are written all the same."""
    owner = owner_of_here("owner-a")
    failed: dict[str, StoreError] = {}
    async with SQLiteStore(path) as store:
        await store.renew(owner)
        bad: dict[str, dict[str, object]] = {
            "s3": {"row": StoredRow(2, b"", b"[]")},
            "s5": {"listing": Listing("s5", title="\ud800")},
            "s8": {"sequence": 2**70},
        }
        for number in range(10):
            await store.claim(f"s{number}", owner, time.time())
            await store.commit(commit_of(f"s{number}", owner, 0))

        async def commit(name: str) -> None:
            try:
                await store.commit(commit_of(name, owner, 1, **bad.get(name, {})))
            except StoreError as error:
                failed[name] = error

        async with held_up(store), trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(commit, f"s{number}")
        assert set(failed) == set(bad)
        assert all(str(path) in str(error) for error in failed.values())
        for number in range(10):
            stored = await store.load(f"s{number}")
            assert stored is not None
            assert stored.sequence == (1 if f"s{number}" in bad else 2)


@pytest.mark.trio
async def test_commits_of_one_session_in_one_group_build_on_each_other(path: Path) -> None:
    """Two commits of a session that wait together are checked one after the other."""
    owner = owner_of_here("owner-a")
    outcomes: list[str] = []
    async with SQLiteStore(path) as store:
        await store.renew(owner)
        await store.claim("s", owner, time.time())

        async def commit() -> None:
            try:
                await store.commit(commit_of("s", owner, 0))
            except StaleSession:
                outcomes.append("stale")
            else:
                outcomes.append("written")

        async with held_up(store), trio.open_nursery() as nursery:
            nursery.start_soon(commit)
            nursery.start_soon(commit)
        assert sorted(outcomes) == ["stale", "written"]


@pytest.mark.trio
async def test_reading_goes_on_during_a_long_write(path: Path) -> None:
    """While a transaction is being written everything before it can be read."""
    await filled(path)
    async with SQLiteStore(path) as store:
        writing, go_on = threading.Event(), threading.Event()

        def write_slowly(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM session")
            writing.set()
            assert go_on.wait(10)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(store._write, write_slowly)  # pyright: ignore[reportPrivateUsage]
            await trio.to_thread.run_sync(writing.wait, 10)
            with trio.fail_after(5):
                stored = await store.load("s")
            go_on.set()
        assert stored is not None
        assert await store.load("s") is None


@pytest.mark.trio
async def test_bodies_with_null_bytes_are_read(path: Path) -> None:
    """Bodies come back byte for byte even where they are not JSON, and whether read one by one or together."""
    owner = owner_of_here("owner-a")
    async with SQLiteStore(path) as store:
        await store.renew(owner)
        await store.claim("s", owner, time.time())
        rows = [StoredRow(1, b"", b""), StoredRow(2, b"a\x00b", b"\xff"), StoredRow(3, b"", b"\x00")]
        for after, row in enumerate(rows):
            await store.commit(commit_of("s", owner, after, row=row))
        assert list(await store.rows("s")) == rows
        assert list(await store.rows("s", limit=1)) == rows[:1]
        assert list(await store.messages("s")) == [b"a\x00b"]


@pytest.mark.trio
async def test_big_bodies_are_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies of any size come back byte for byte and in order, big ones beside small ones."""
    monkeypatch.setattr(sqlite_rows, "BIG", 3000)
    owner = owner_of_here("owner-a")
    sizes = [2999, 3000, 0, 1, 50_000, 3001, 7, 2998]
    async with SQLiteStore(path) as store:
        await store.renew(owner)
        await store.claim("s", owner, time.time())
        rows = [StoredRow(n, bytes([65 + n]) * size, b"x" * (3000 * (n % 2))) for n, size in enumerate(sizes, 1)]
        for after, row in enumerate(rows):
            await store.commit(commit_of("s", owner, after, row=row))
        assert list(await store.rows("s")) == rows
        assert list(await store.rows("s", 1, 3)) == rows[1:4]
        assert list(await store.messages("s")) == [row.messages for row in rows if row.messages]


@pytest.mark.trio
@pytest.mark.parametrize(("durability", "synced"), [("full", 2), ("normal", 1)])
async def test_only_what_must_be_durable_is_synced(path: Path, durability: Durability, synced: int) -> None:
    """What is written is synced, but not what is only about who drives; together with something else it is."""

    def level(connection: sqlite3.Connection) -> int:
        return int(connection.execute("PRAGMA synchronous").fetchone()[0])

    levels: list[int] = []
    async with SQLiteStore(path, durability=durability) as store:
        writer = store._writer  # pyright: ignore[reportPrivateUsage]
        assert writer is not None

        async def ask(durable: bool) -> None:
            levels.append(await writer.run(level, durable=durable))

        for durable in (True, False, False, True):
            await ask(durable)
        assert levels == [synced, 1, 1, synced]
        async with held_up(store), trio.open_nursery() as nursery:
            for durable in (False, True, False):
                nursery.start_soon(ask, durable)
        assert levels[4:] == [synced] * 3


@pytest.mark.trio
async def test_more_messages_than_are_read_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A history longer than one piece of reading comes whole."""
    monkeypatch.setattr(sqlite_rows, "ROWS_AT_ONCE", 4)
    for commits in (3, 4, 9):
        path.unlink(missing_ok=True)
        await filled(path, commits)
        async with SQLiteStore(path) as store:
            assert len(await store.messages("s")) == commits


@pytest.mark.trio
async def test_owners_that_ended_long_ago_are_forgotten(path: Path) -> None:
    """A new owner sweeps up leases that ended long before its own and hold no session, and no others."""
    old = owner_of_here("old", lease=-90_000)
    holding = attrs.evolve(old, id="holding")
    async with SQLiteStore(path) as store:
        await store.renew(old)
        await store.renew(holding)
        await store.claim("s", holding, time.time())
        await store.renew(owner_of_here("new", lease=60))
        assert await store.owner_of("s") == holding
        with pytest.raises(StoreError, match="not stored"):
            await store.claim("t", old, time.time())


@pytest.mark.trio
async def test_a_bug_is_not_taken_for_the_medium(path: Path) -> None:
    """An error that is neither SQLite's nor a value's comes out as it is, and the store works on."""

    def wrong(_: sqlite3.Connection) -> None:
        raise ZeroDivisionError

    async with SQLiteStore(path) as store:
        for ask in (store._read, store._write):  # pyright: ignore[reportPrivateUsage]
            with pytest.raises(ZeroDivisionError):
                await ask(wrong)
        assert await store.load("s") is None


@pytest.mark.trio
async def test_a_cancelled_read_returns_at_once(path: Path) -> None:
    """A reader that is cancelled does not wait for its answer, and the next read gets its own."""
    async with SQLiteStore(path) as store:
        begun, go_on = threading.Event(), threading.Event()

        def read_slowly(_: sqlite3.Connection) -> None:
            begun.set()
            assert go_on.wait(10)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(store._read, read_slowly)  # pyright: ignore[reportPrivateUsage]
            await trio.to_thread.run_sync(begun.wait, 10)
            nursery.cancel_scope.cancel()
        go_on.set()
        assert list(await store.inbox()) == []
