"""The threads that talk to SQLite: one writes, and groups what waits into one transaction; one reads."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from queue import Empty, SimpleQueue
from typing import TypeVar, cast

import attrs
import trio
import trio.lowlevel

from turnstate_states.errors import Refused, StoreError

from .base import StoredCommit
from .sqlite_commits import write_commits
from .sqlite_file import Durability, failure, patiently, set_durability

__all__ = ["ReaderThread", "WriterThread", "end"]

R = TypeVar("R")

Work = Callable[[sqlite3.Connection], object]

MOST_TOGETHER = 256
"""The most that one transaction takes: what waits behind it must not wait for ever."""


@attrs.define(eq=False)
class _Asked:
    """One piece of work and the task that waits for it; without a task nobody waits any more."""

    work: Work | StoredCommit
    task: trio.lowlevel.Task | None
    durable: bool = True
    value: object = None
    error: BaseException | None = None


class _Thread:
    """A thread with one connection and a queue. It is a daemon: a store that nobody closed must not hold up the exit.

    That loses nothing which was told to be written, for a commit is told only when it is on the disk.
    """

    def __init__(self, name: str, path: str, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        self._token = trio.lowlevel.current_trio_token()
        self._queue: SimpleQueue[_Asked | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"turnstate {name} {path}", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Have it do what was asked so far and close the connection; wait until it has ended."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            while group := self._next():
                self._do(group)
                try:
                    self._token.run_sync_soon(_hand_back, group)
                except trio.RunFinishedError:
                    pass
        finally:
            self._connection.close()

    def _next(self) -> Sequence[_Asked]:
        raise NotImplementedError

    def _do(self, group: Sequence[_Asked]) -> None:
        raise NotImplementedError


async def end(threads: Sequence[_Thread]) -> None:
    """Have threads end, and wait until they have. Cannot be cancelled.

    One after the other: the last connection that is closed writes the log into the file and removes it, and of two that
    are closed at once each may take the other for the last.
    """

    def end_all() -> None:
        for thread in threads:
            thread.end()

    with trio.CancelScope(shield=True):
        await trio.to_thread.run_sync(end_all, limiter=trio.CapacityLimiter(1))


class WriterThread(_Thread):
    """Does pieces of work in transactions, as many in one as wait.

    A piece may refuse by raising StoreError or Refused before its first write: that concerns it alone. With any other
    error all is taken back and done again one by one, so that it hits only the piece that causes it.
    """

    def __init__(self, path: str, connection: sqlite3.Connection, durability: Durability) -> None:
        self._ended = False
        self._durability: Durability = durability
        self._now: Durability = durability
        super().__init__("writer", path, connection)

    async def run(self, work: Callable[[sqlite3.Connection], R], *, durable: bool = True) -> R:
        """Have ``work`` done in a transaction; returns when that is durable, if it must be. Cannot be cancelled.

        What is not durable is seen by all at once, whole, and lost at most in a power failure.
        """
        return cast(R, await self._ask(work, durable))

    async def commit(self, commit: StoredCommit) -> None:
        """Have a commit written; those that wait together are written together. Cannot be cancelled."""
        await self._ask(commit)

    async def _ask(self, work: Work | StoredCommit, durable: bool = True) -> object:
        asked = _Asked(work, trio.lowlevel.current_task(), durable)
        self._queue.put(asked)
        await trio.lowlevel.wait_task_rescheduled(_never)
        return _result(asked)

    def _next(self) -> Sequence[_Asked]:
        group: list[_Asked] = []
        if self._ended:
            return group
        asked = self._queue.get()
        try:
            while asked is not None:
                group.append(asked)
                if len(group) == MOST_TOGETHER:
                    return group
                asked = self._queue.get_nowait()
            self._ended = True
        except Empty:
            pass
        return group

    def _do(self, group: Sequence[_Asked]) -> None:
        try:
            self._be_durable(any(asked.durable for asked in group))
            patiently(self._path, lambda: self._connection.execute("BEGIN IMMEDIATE"))
        except BaseException as error:
            for asked in group:
                asked.error = failure(self._path, error)
            return
        try:
            self._transaction(group)
        except BaseException as error:
            _end(self._connection, "ROLLBACK")
            if len(group) > 1:
                for asked in group:
                    self._do([asked])
            else:
                group[0].error = _told(self._path, error)

    def _be_durable(self, durable: bool) -> None:
        wanted: Durability = self._durability if durable else "normal"
        if wanted != self._now:
            set_durability(self._connection, wanted)
            self._now = wanted

    def _transaction(self, group: Sequence[_Asked]) -> None:
        for is_commit, run in groupby(group, key=_is_commit):
            if is_commit:
                self._commits(list(run))
            else:
                self._others(run)
        self._connection.execute("COMMIT")

    def _commits(self, group: Sequence[_Asked]) -> None:
        refused = write_commits(self._connection, [cast(StoredCommit, asked.work) for asked in group])
        for asked, error in zip(group, refused, strict=True):
            asked.error = error

    def _others(self, group: Iterable[_Asked]) -> None:
        for asked in group:
            asked.value = asked.error = None
            try:
                asked.value = cast(Work, asked.work)(self._connection)
            except (StoreError, Refused) as refused:
                asked.error = refused


class ReaderThread(_Thread):
    """Reads, one after another, beside the writer."""

    def __init__(self, path: str, connection: sqlite3.Connection) -> None:
        super().__init__("reader", path, connection)

    async def run(self, work: Callable[[sqlite3.Connection], R]) -> R:
        """Have ``work`` done. A cancelled task goes on at once, its answer is dropped."""
        asked = _Asked(work, trio.lowlevel.current_task())

        def forget(_: object) -> trio.lowlevel.Abort:
            asked.task = None
            return trio.lowlevel.Abort.SUCCEEDED

        self._queue.put(asked)
        await trio.lowlevel.wait_task_rescheduled(forget)
        return cast(R, _result(asked))

    def _next(self) -> Sequence[_Asked]:
        asked = self._queue.get()
        return () if asked is None else (asked,)

    def _do(self, group: Sequence[_Asked]) -> None:
        (asked,) = group
        if asked.task is None:
            return
        try:
            asked.value = patiently(self._path, lambda: self._snapshot(cast(Work, asked.work)))
        except BaseException as error:
            asked.error = _told(self._path, error)

    def _snapshot(self, work: Work) -> object:
        """All statements of one piece of work see the same state."""
        self._connection.execute("BEGIN")
        try:
            return work(self._connection)
        finally:
            _end(self._connection, "COMMIT")


def _end(connection: sqlite3.Connection, how: str) -> None:
    # A full disk or a failed read or write may have ended the transaction already.
    try:
        if connection.in_transaction:
            connection.execute(how)
    except sqlite3.Error:
        pass


def _is_commit(asked: _Asked) -> bool:
    return isinstance(asked.work, StoredCommit)


def _never(_: object) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.FAILED


def _hand_back(group: Sequence[_Asked]) -> None:
    for asked in group:
        if asked.task is not None:
            trio.lowlevel.reschedule(asked.task)


def _result(asked: _Asked) -> object:
    if asked.error is None:
        return asked.value
    # The traceback of the error holds this frame, and so would hold the error for ever.
    try:
        raise asked.error
    finally:
        del asked


def _told(path: str, error: BaseException) -> BaseException:
    """Errors of the medium and of values it cannot hold are StoreErrors; anything else is a bug and stays as it is."""
    if not isinstance(error, (sqlite3.Error, OSError, UnicodeError, OverflowError)):
        return error
    told = failure(path, error)
    told.__cause__ = error
    return told
