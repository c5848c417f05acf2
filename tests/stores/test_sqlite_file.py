"""The file of a SQLite store: who may read it, what is not one, what is left of a damaged one."""

# ruff: noqa: ASYNC240 -- nothing else runs while a test looks at its files

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.stores.helpers import contents, filled
from turnstate.stores import sqlite as sqlite_store
from turnstate.stores import sqlite_file
from turnstate.stores.base import StoredRow
from turnstate.stores.sqlite import SQLiteStore
from turnstate.testing.store_suite import commit_of, owner_of_here
from turnstate_states.errors import InvalidInput, StoreError


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
    sqlite_file.prepare(str(path), "full").close()
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
            sqlite_file.prepare(str(path), "full").close()
    finally:
        if ids:
            os.setresuid(*ids)
        path.parent.chmod(0o755)
    assert str(path) in str(caught.value)


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
    cuts = sorted({*range(sizes[2], len(whole) + 1, 997), *(size + by for size in sizes.values() for by in (-1, 0, 1))})
    for cut in (cut for cut in cuts if cut >= sizes[1]):
        copy = tmp_path / f"cut-{cut}"
        copy.mkdir()
        (copy / "sessions.db").write_bytes((tmp_path / "crash" / "sessions.db").read_bytes())
        (copy / "sessions.db-wal").write_bytes(whole[:cut])
        async with SQLiteStore(copy / "sessions.db", durability="normal") as store:
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
async def test_an_opening_that_fails_leaves_nothing_open(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the second connection fails the first is closed, and the store can be opened later."""
    connect = sqlite_file.connect

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
