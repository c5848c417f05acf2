"""Several store objects and processes on one file."""

# ruff: noqa: ASYNC220 -- nothing else runs while a test looks at its files

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
import trio
import trio.testing

from tests.stores.helpers import filled
from turnstate.stores import sqlite_file, sqlite_rows
from turnstate.stores.base import InboxItem
from turnstate.stores.sqlite import SQLiteStore
from turnstate.testing.store_suite import commit_of, owner_of_here
from turnstate_states.errors import StoreError


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
        for id, poster in (("1", one), ("2", two)):
            await poster.post(InboxItem("s", id, b""))
            for _ in range(3):
                await one.inbox(["s"])
        assert len(looked) == 3


@pytest.mark.trio
async def test_an_inbox_is_read_anew_after_an_opening(path: Path) -> None:
    """What another store posted while this one was closed is seen at the first look."""
    store = SQLiteStore(path)
    for number in range(3):
        async with store:
            assert len(await store.inbox(["s"])) == number
        async with SQLiteStore(path) as other:
            await other.post(InboxItem("s", str(number), b""))


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


ACKNOWLEDGE = """
import sys, time, trio
from turnstate.stores.sqlite import SQLiteStore
from turnstate.testing.store_suite import commit_of, owner_of_here

async def main():
    owner = owner_of_here("owner-a")
    async with SQLiteStore(sys.argv[1]) as store:
        await store.renew(owner)
        await store.claim("s", owner, time.time())
        for after in range(100_000):
            await store.commit(commit_of("s", owner, after))
            print(after + 1, flush=True)

trio.run(main)
"""


@pytest.mark.trio
async def test_what_was_told_before_a_kill_is_there(path: Path) -> None:
    """A commit that returned is there after the process was killed, and at most one more, whole."""
    with subprocess.Popen([sys.executable, "-c", ACKNOWLEDGE, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(50):
            process.stdout.readline()
        process.kill()
        told = 50 + len(process.stdout.readlines())
    async with SQLiteStore(path) as store:
        stored = await store.load("s")
        assert stored is not None
        assert stored.sequence in (told, told + 1)
        assert [row.last for row in await store.rows("s", limit=10**6)] == [2 * n + 2 for n in range(stored.sequence)]
