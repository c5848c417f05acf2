"""What the tests of the SQLite store share."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import trio
import trio.testing

from turnstate.stores.sqlite import SQLiteStore
from turnstate.testing.store_suite import commit_of, owner_of_here


async def filled(path: Path, commits: int = 3) -> None:
    """Make a file whose session ``s`` has so many commits."""
    owner = owner_of_here("owner-a")
    async with SQLiteStore(path) as store:
        await store.renew(owner)
        await store.claim("s", owner, time.time())
        for after in range(commits):
            await store.commit(commit_of("s", owner, after))


@asynccontextmanager
async def held_up(store: SQLiteStore) -> AsyncGenerator[None, None]:
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
    """The files of a directory."""
    return {file.name: file.read_bytes() for file in directory.iterdir() if file.is_file()}


def open_files() -> set[str]:
    """The descriptors of this process, where the system tells."""
    return set(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else set[str]()
