"""The SQLite store keeps the promises of stores, groups writes, and lives with other processes on its file."""

# ruff: noqa: ASYNC220, ASYNC240 -- nothing else runs while a test looks at its files

from __future__ import annotations

import gc
import os
import sqlite3
import stat
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from turnstate.stores import sqlite as sqlite_store
from turnstate.stores import sqlite_file, sqlite_rows
from turnstate.stores.base import InboxItem, Listing, Store, StoredRow
from turnstate.stores.sqlite import SQLiteStore
from turnstate.testing.store_suite import StoreSuite, commit_of, owner_of_here
from turnstate_states.errors import InvalidInput, StaleSession, StoreError


class TestSQLiteStore(StoreSuite):
    def make_store(self, tmp_path: Path) -> Store:
        return SQLiteStore(tmp_path / "a ü?#%.db")


class TestSQLiteStoreNormal(StoreSuite):
    def make_store(self, tmp_path: Path) -> Store:
        return SQLiteStore(str(tmp_path / "sessions.db"), durability="normal")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


async def filled(path: Path, commits: int = 3) -> None:
    owner = owner_of_here("owner-a")
    async with SQLiteStore(path) as store:
        await store.renew(owner)
        await store.claim("s", owner, time.time())
        for after in range(commits):
            await store.commit(commit_of("s", owner, after))


@asynccontextmanager
async def held_up(store: SQLiteStore) -> AsyncIterator[None]:
    """Hold the writer's thread in a piece of work until all tasks wait, so that what they ask is written together."""
    go_on, at_it = threading.Event(), threading.Event()

    def hold(_: sqlite3.Connection) -> None:
        at_it.set()
        assert go_on.wait(10)

    async def let_go() -> None:
        await trio.testing.wait_all_tasks_blocked()
        go_on.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(store._write, hold)  # pyright: ignore[reportPrivateUsage]
        await trio.to_thread.run_sync(at_it.wait, 10)
        nursery.start_soon(let_go)
        yield


def contents(directory: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in directory.iterdir() if file.is_file()}


@pytest.mark.trio
async def test_only_the_user_can_read_the_files(path: Path) -> None:
    """The file and those beside it have the mode 0600 whatever the umask is."""
    before = os.umask(0)
    try:
        async with SQLiteStore(path) as store:
            await store.renew(owner_of_here("owner-a"))
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(["sessions.db", "sessions.db-wal", "sessions.db-shm"], 0o600)


@pytest.mark.parametrize("wrong", ["", ":memory:"])
def test_what_is_no_file_is_refused_at_once(wrong: str) -> None:
    """SQLite's names for databases without a file are refused, with what to use instead."""
    with pytest.raises(InvalidInput, match="MemoryStore"):
        SQLiteStore(wrong)


def test_an_unknown_durability_is_refused() -> None:
    """Only the two durabilities are accepted."""
    with pytest.raises(InvalidInput, match="durability"):
        SQLiteStore("x.db", durability="none")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def another_database(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE session (key INTEGER)")
    connection.close()


def newer_store(path: Path) -> None:
    sqlite_file.prepare(str(path))
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()


WRONG_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a directory": (lambda path: path.mkdir(), "directory"),
    "not a database": (lambda path: path.write_bytes(b"# notes\n" * 500), "not a turnstate store"),
    "a short text": (lambda path: path.write_bytes(b"x"), "not a turnstate store"),
    "another program's": (another_database, "another program"),
    "a newer schema": (newer_store, "newer turnstate"),
}


@pytest.mark.trio
@pytest.mark.parametrize("kind", WRONG_FILES)
async def test_a_wrong_file_is_refused_and_not_changed(path: Path, kind: str) -> None:
    """What is not a store of ours is one clear line that names the file, and stays as it is."""
    make, expected = WRONG_FILES[kind]
    make(path)
    before = contents(path.parent)
    with pytest.raises(StoreError, match=expected) as caught:
        await SQLiteStore(path).open()
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)
    assert contents(path.parent) == before


@pytest.mark.trio
async def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    """A path in a directory that does not exist says to create it."""
    with pytest.raises(StoreError, match="missing does not exist: create it"):
        await SQLiteStore(tmp_path / "missing" / "s.db").open()


@pytest.mark.trio
@pytest.mark.parametrize("what", ["directory", "file"])
async def test_what_cannot_be_written_is_named(path: Path, what: str) -> None:
    """Without the permission to write the file or its directory the opening fails and says so."""
    if what == "file":
        await filled(path)
        path.chmod(0o444)
    path.parent.chmod(0o555)
    ids = os.getresuid() if os.geteuid() == 0 else None
    if ids:
        for directory in path.parent.parents[:3]:
            directory.chmod(directory.stat().st_mode | 0o011)
        os.setresuid(-1, 65534, -1)
    try:
        with pytest.raises(StoreError, match="writ") as caught:
            sqlite_file.prepare(str(path))
    finally:
        if ids:
            os.setresuid(*ids)
        path.parent.chmod(0o755)
    assert str(path) in str(caught.value)


@pytest.mark.trio
async def test_closing_leaves_nothing_open(path: Path) -> None:
    """After the closing there is no thread, no open file and no log left."""
    files = set(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else set()
    await filled(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gc.collect()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("turnstate")]
    if files:
        assert set(os.listdir("/proc/self/fd")) <= files
    assert [file.name for file in path.parent.iterdir()] == ["sessions.db"]


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


EXIT = """
import sys, trio
from turnstate.stores.sqlite import SQLiteStore
async def main():
    await SQLiteStore(sys.argv[1]).open()
trio.run(main)
"""


def test_a_store_that_nobody_closed_does_not_hold_up_the_exit(path: Path) -> None:
    """A program that forgets to close the store still ends."""
    assert subprocess.run([sys.executable, "-c", EXIT, str(path)], timeout=15, check=False).returncode == 0


@pytest.mark.trio
async def test_two_stores_on_one_file_see_each_other(path: Path) -> None:
    """What one store object posts or commits another on the same file reads at its next look."""
    owner = owner_of_here("owner-a")
    async with SQLiteStore(path) as one, SQLiteStore(path) as two:
        assert list(await two.inbox(["s"])) == []
        for id in ("1", "2", "3"):
            await one.post(InboxItem("s", id, b"{}"))
            assert [item.id for item in await two.inbox(["s"])][-1] == id
            assert await two.inbox(["s"]) == await one.inbox(["s"]) == await one.inbox()
            assert list(await two.inbox(["t"])) == []
        await two.renew(owner)
        await one.claim("s", owner, time.time())
        await two.commit(commit_of("s", owner, 0, taken=("1", "3")))
        assert [item.id for item in await one.inbox()] == ["2"]


@pytest.mark.trio
async def test_an_unchanged_inbox_is_not_read_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking at the inbox again reads rows only when something was written in between, by this store or another."""
    looked: list[object] = []
    read = sqlite_rows.inbox

    def counted(connection: sqlite3.Connection, sessions: tuple[str, ...] | None) -> list[InboxItem]:
        looked.append(sessions)
        return read(connection, sessions)

    monkeypatch.setattr(sqlite_rows, "inbox", counted)
    async with SQLiteStore(path) as one, SQLiteStore(path) as two:
        for _ in range(3):
            await one.inbox(["s"])
        assert len(looked) == 1
        for poster in (one, two):
            await poster.post(InboxItem("s", repr(poster), b""))
            for _ in range(3):
                await one.inbox(["s"])
        assert len(looked) == 3


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
        bad = {
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
async def test_a_lock_held_for_a_short_time_is_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While another connection writes, a commit waits, and is written after."""
    monkeypatch.setattr(sqlite_file, "BUSY_SECONDS", 0.01)
    await filled(path)
    owner = owner_of_here("owner-a")
    other = sqlite3.connect(path, isolation_level=None)
    async with SQLiteStore(path) as store:
        other.execute("BEGIN IMMEDIATE")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.commit, commit_of("s", owner, 3))
            await trio.testing.wait_all_tasks_blocked(0.05)
            other.execute("COMMIT")
        other.close()
        stored = await store.load("s")
        assert stored is not None
        assert stored.sequence == 4


@pytest.mark.trio
async def test_a_lock_held_for_ever_is_a_clear_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When another process never stops writing, the commit fails after a bounded time, names the file, and may be sent
    again.
    """
    monkeypatch.setattr(sqlite_file, "BUSY_SECONDS", 0.01)
    monkeypatch.setattr(sqlite_file, "PATIENCE_SECONDS", 0.05)
    await filled(path)
    owner = owner_of_here("owner-a")
    other = sqlite3.connect(path, isolation_level=None)
    async with SQLiteStore(path) as store:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="another process kept writing") as caught:
            await store.commit(commit_of("s", owner, 3))
        assert str(path) in str(caught.value)
        assert "locked" not in str(caught.value)
        other.execute("ROLLBACK")
        other.close()
        await store.commit(commit_of("s", owner, 3))


@pytest.mark.trio
async def test_the_disk_is_full(path: Path) -> None:
    """A commit for which there is no room fails with a clear line, and later ones are written when there is."""
    await filled(path)
    owner = owner_of_here("owner-a")

    def set_most_pages(connection: sqlite3.Connection, most: int) -> None:
        connection.execute(f"PRAGMA max_page_count = {most}")

    async with SQLiteStore(path) as store:
        await store._write(lambda connection: set_most_pages(connection, 1))  # pyright: ignore[reportPrivateUsage]
        big = commit_of("s", owner, 3, checkpoint=b"x" * 100_000)
        with pytest.raises(StoreError, match="disk is full"):
            await store.commit(big)
        stored = await store.load("s")
        assert stored is not None
        assert stored.sequence == 3
        await store._write(lambda connection: set_most_pages(connection, 100_000))  # pyright: ignore[reportPrivateUsage]
        await store.commit(big)


async def crashed_copy(path: Path, target: Path) -> dict[int, int]:
    """Copy the files while the store is open, as a crash leaves them; the size of the log after each sequence."""
    owner = owner_of_here("owner-a")
    sizes: dict[int, int] = {}
    async with SQLiteStore(path) as store:
        await store.renew(owner)
        await store.claim("s", owner, time.time())
        for after in range(6):
            await store.commit(commit_of("s", owner, after))
            sizes[after + 1] = os.stat(f"{path}-wal").st_size
        target.mkdir()
        for name in ("sessions.db", "sessions.db-wal"):
            (target / name).write_bytes((path.parent / name).read_bytes())
    return sizes


@pytest.mark.trio
async def test_a_torn_log_loses_only_what_was_being_written(path: Path, tmp_path: Path) -> None:
    """Cut the log anywhere: all commits before the cut are there, and the next one is written and read."""
    sizes = await crashed_copy(path, tmp_path / "crash")
    owner = owner_of_here("owner-a")
    whole = (tmp_path / "crash" / "sessions.db-wal").read_bytes()
    cuts = sorted({*range(sizes[2], len(whole) + 1, 331), *(size + by for size in sizes.values() for by in (-1, 0, 1))})
    for cut in (cut for cut in cuts if cut >= sizes[1]):
        copy = tmp_path / f"cut-{cut}"
        copy.mkdir()
        (copy / "sessions.db").write_bytes((tmp_path / "crash" / "sessions.db").read_bytes())
        (copy / "sessions.db-wal").write_bytes(whole[:cut])
        async with SQLiteStore(copy / "sessions.db") as store:
            stored = await store.load("s")
            assert stored is not None
            assert stored.sequence == max(sequence for sequence, size in sizes.items() if size <= cut)
            assert [row.last for row in await store.rows("s")] == [2 * n + 2 for n in range(stored.sequence)]
            await store.commit(commit_of("s", owner, stored.sequence))
            assert len(await store.rows("s")) == stored.sequence + 1


@pytest.mark.trio
async def test_a_cut_file_is_reported(path: Path, tmp_path: Path) -> None:
    """Cut the file itself anywhere: the error names the file, which stays as it is; never a part of it in silence."""
    await filled(path, 40)
    whole = path.read_bytes()
    for cut in {1, 15, 16, 50, 99, 100, 101, 511, 2047, 2048, *range(3000, len(whole), 1777), len(whole) - 1}:
        copy = tmp_path / f"cut-{cut}.db"
        copy.write_bytes(whole[:cut])
        with pytest.raises(StoreError) as caught:
            await SQLiteStore(copy).open()
        assert str(copy) in str(caught.value)
        assert copy.read_bytes() == whole[:cut]


@pytest.mark.trio
async def test_an_emptied_file_beside_its_log_is_reported(path: Path, tmp_path: Path) -> None:
    """A file of no bytes beside a log is not taken for a new one, and the log stays."""
    await crashed_copy(path, tmp_path / "crash")
    copy = tmp_path / "crash" / "sessions.db"
    copy.write_bytes(b"")
    before = contents(copy.parent)
    with pytest.raises(StoreError, match="cut"):
        await SQLiteStore(copy).open()
    assert contents(copy.parent) == before


RACE = """
import os, socket, sys, time, trio
from turnstate.stores.base import LIVE_OWNERS, Owner, process_started
from turnstate.stores.sqlite import SQLiteStore
from turnstate_states.errors import SessionInUse

async def main():
    owner = Owner(sys.argv[2], socket.gethostname(), os.getpid(), process_started(os.getpid()), time.time() + 60)
    LIVE_OWNERS.add(owner.id)
    won = []
    print("ready", flush=True)
    sys.stdin.readline()
    async with SQLiteStore(sys.argv[1]) as store:
        await store.renew(owner)
        for number in range(100):
            try:
                await store.claim(f"s{number}", owner, time.time())
            except SessionInUse:
                continue
            won.append(str(number))
        print(" ".join(won), flush=True)
        sys.stdin.readline()

trio.run(main)
"""


def test_two_processes_claim_the_same_sessions_at_once(path: Path) -> None:
    """Of two processes that create the file and claim a hundred sessions at once exactly one gets each."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RACE, str(path), name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in ("a", "b")
    ]
    won: list[str] = []
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        assert process.stdout is not None
        won += process.stdout.readline().split()
    for process in processes:
        process.communicate("end\n", timeout=15)
        assert process.returncode == 0
    assert sorted(won) == sorted(str(number) for number in range(100))


@pytest.mark.trio
async def test_a_killed_process_is_replaced(path: Path) -> None:
    """When the process that has a claim is killed, another takes the session over at once."""
    with subprocess.Popen(
        [sys.executable, "-c", RACE, str(path), "a"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        process.stdout.readline()
        process.stdout.readline()
        owner = owner_of_here("heir")
        async with SQLiteStore(path) as store:
            await store.renew(owner)
            with pytest.raises(StoreError, match=str(process.pid)):
                await store.claim("s0", owner, time.time())
            process.kill()
            process.wait()
            await store.claim("s0", owner, time.time())
            await store.commit(commit_of("s0", owner, 0))


@pytest.mark.trio
async def test_the_file_grows_with_what_is_said(path: Path) -> None:
    """Twice the commits make about twice the file: none of them stores the history again."""
    owner = owner_of_here("owner-a")
    sizes: list[int] = []
    done = 0
    for total in (200, 400, 800):
        async with SQLiteStore(path, durability="normal") as store:
            await store.renew(owner)
            await store.claim("s", owner, time.time())
            for after in range(done, total):
                row = StoredRow(after + 1, b"m" * 1000, b"[]")
                await store.commit(commit_of("s", owner, after, row=row, checkpoint=b"c" * 1000))
        done = total
        sizes.append(path.stat().st_size)
    assert sizes[1] / sizes[0] < 2.1
    assert sizes[2] / sizes[1] < 2.1
    assert sizes[2] < 800 * 2600


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


@pytest.mark.trio
async def test_an_opening_that_fails_leaves_nothing_open(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the second connection fails the first is closed, and the store can be opened later."""
    connect = sqlite_store.connect

    def fail(path: str, durability: sqlite_file.Durability, *, reader: bool = False) -> sqlite3.Connection:
        if reader:
            raise sqlite3.OperationalError("no more files")
        return connect(path, durability, reader=reader)

    store = SQLiteStore(path)
    with monkeypatch.context() as patch:
        patch.setattr(sqlite_store, "connect", fail)
        with pytest.raises(StoreError, match="no more files"):
            await store.open()
    async with store:
        assert await store.load("s") is None
