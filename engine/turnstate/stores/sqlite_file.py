"""The file of a SQLite store: recognise it, create it, connect to it, and say plainly what is wrong with it."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Literal, TypeVar
from urllib.parse import quote

from turnstate_states.errors import StoreError

from .sqlite_schema import SCHEMA_VERSION, check_ours, create, is_empty, migrate, version_of

__all__ = ["Durability", "connect", "failure", "patiently", "prepare", "set_durability"]

T = TypeVar("T")

Durability = Literal["full", "normal"]

HEADER_BYTES = 100

NOT_OURS = "it is not a turnstate store (not a SQLite database): give another path"

BUSY_SECONDS = 5.0
"""How long SQLite itself waits for a lock."""

PATIENCE_SECONDS = 15.0
"""How long a lock is waited for in all before it is given up."""

# Closing any descriptor of a file drops all of this process's locks on it, those of SQLite's connections too.
# So the file is only ever opened by SQLite, except to create it, and then nobody else here may be opening it.
_OPENING = threading.Lock()


def prepare(path: str, durability: Durability) -> sqlite3.Connection:
    """Have a file of ours at ``path``: create it, or check that it is one. What is not ours stays as it is.

    Returns:
        A connection to it, as :func:`connect` gives.

    Raises:
        StoreError: one line that names the file and says what to do.
    """
    with _OPENING:
        try:
            _check_place(path)
            _check_header(path)
            connection = connect(path, "full")
            try:
                patiently(path, lambda: _create(connection, path))
                patiently(path, lambda: _use_wal(connection, path))
                set_durability(connection, durability)
            except BaseException:
                connection.close()
                raise
            return connection
        except (sqlite3.Error, OSError, UnicodeError) as error:
            raise failure(path, error) from error


def connect(path: str, durability: Durability, *, reader: bool = False) -> sqlite3.Connection:
    """A connection for one thread at a time, in autocommit."""
    connection = sqlite3.connect(
        _uri(path, "rw"), uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        set_durability(connection, durability)
        _set_up(connection, reader=reader)
    except BaseException:
        connection.close()
        raise
    return connection


def set_durability(connection: sqlite3.Connection, durability: Durability) -> None:
    """Say what the transactions from now on survive; not inside one."""
    connection.execute(f"PRAGMA synchronous = {durability}")


def _set_up(connection: sqlite3.Connection, *, reader: bool) -> None:
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA secure_delete = FAST").close()
    connection.execute(f"PRAGMA journal_size_limit = {16 * 1024 * 1024}").close()
    # Most pages of a busy session are written again and again: at 8 MB of log each goes into the file more seldom.
    connection.execute("PRAGMA wal_autocheckpoint = 4000").close()
    if reader:
        connection.execute("PRAGMA query_only = ON")


def patiently(path: str, work: Callable[[], T]) -> T:
    """Do ``work`` again while another process holds the file, for a bounded time."""
    end = time.monotonic() + PATIENCE_SECONDS
    pause = 0.001
    while True:
        try:
            return work()
        except sqlite3.OperationalError as error:
            if not _busy(error) or time.monotonic() >= end:
                raise
        # Some locks are refused at once, without SQLite's own waiting.
        time.sleep(pause)
        pause = min(2 * pause, 0.1)


def failure(path: str, error: BaseException) -> StoreError:
    """What went wrong with the file, as one line that names it."""
    if isinstance(error, StoreError):
        return error
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        text = f"another process kept writing to it for {PATIENCE_SECONDS:.0f} seconds: try again, or end that process"
    elif code == sqlite3.SQLITE_FULL:
        text = "the disk is full: nothing was written, make room and try again"
    elif code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        text = "it or its directory cannot be written: make both writable, or give another path"
    elif code == sqlite3.SQLITE_CANTOPEN:
        text = "it cannot be opened: check that the file and its directory can be read and written"
    elif code == sqlite3.SQLITE_NOTADB:
        text = NOT_OURS
    elif code == sqlite3.SQLITE_CORRUPT:
        text = "the file is damaged: put a copy back, or save what can be read with the sqlite3 shell's .recover"
    elif isinstance(error, OSError):
        text = f"{error.strerror or error}: give a path in a directory that can be written"
    else:
        text = f"{type(error).__name__}: {error}"
    return StoreError(f"{path}: {text}")


def _busy(error: sqlite3.Error) -> bool:
    return (getattr(error, "sqlite_errorcode", 0) & 0xFF) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _uri(path: str, mode: str) -> str:
    return f"file:{quote(path)}?mode={mode}"


def _check_place(path: str) -> None:
    if os.path.isdir(path):
        raise StoreError(f"{path}: it is a directory: give the path of a file")
    directory = os.path.dirname(path)
    if not os.path.isdir(directory):
        raise StoreError(f"{path}: the directory {directory} does not exist: create it, or give another path")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        return
    # The new name must outlive a power failure as the first commit does. Not every system can sync a directory.
    if os.name == "posix":
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _check_header(path: str) -> None:
    """Refuse what is not ours before anything could touch it: even opening runs another program's recovery."""
    size = os.stat(path).st_size
    if size == 0:
        if _size(f"{path}-wal") > 0:
            raise StoreError(f"{path}: it is empty, but {path}-wal is not: the file was cut, put a copy back")
        return
    if size < HEADER_BYTES:
        raise StoreError(f"{path}: {NOT_OURS}")
    # What another process is just writing may look cut for a moment; what is cut stays so.
    tries = 5
    while not _whole(path):
        tries -= 1
        if tries == 0:
            raise StoreError(f"{path}: the end of the file is missing: put a copy back")
        time.sleep(0.01)


def _whole(path: str) -> bool:
    """Whether the file is ours and has the length that it tells, as far as that can be seen from the file alone."""
    connection = sqlite3.connect(_uri(path, "ro") + "&immutable=1", uri=True)
    try:
        check_ours(connection, path)
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        (page_size,) = connection.execute("PRAGMA page_size").fetchone()
    except sqlite3.DatabaseError as error:
        # In the middle of a checkpoint the file alone may be shorter than it says. The log completes it.
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_CORRUPT:
            raise
        return True
    finally:
        connection.close()
    return _size(path) >= pages * page_size or max(_size(f"{path}-wal"), _size(f"{path}-journal")) > 0


def _size(path: str) -> int:
    return os.stat(path).st_size if os.path.exists(path) else 0


def _create(connection: sqlite3.Connection, path: str) -> None:
    """Have the tables of this version: in an empty file, and in one of an earlier version.

    An empty file gets them without WAL, so that the file itself always tells whose it is.
    """
    connection.execute("PRAGMA page_size = 2048")
    if version_of(connection) != SCHEMA_VERSION:
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Another process may have been quicker.
            if is_empty(connection):
                create(connection)
            elif version_of(connection) != SCHEMA_VERSION:
                check_ours(connection, path)
                migrate(connection)
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
    check_ours(connection, path)


def _use_wal(connection: sqlite3.Connection, path: str) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StoreError(f"{path}: its file system cannot hold a write-ahead log: put it on a local disk")
