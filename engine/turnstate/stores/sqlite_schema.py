"""The tables of a SQLite store: whose they are, how they are made, and made from those of earlier versions."""

from __future__ import annotations

import sqlite3

from turnstate_states import codec
from turnstate_states.errors import CheckpointError, StoreError

from ..records import listing_of
from .listing import Listing

__all__ = ["SCHEMA_VERSION", "check_ours", "create", "hour_of", "is_empty", "migrate", "version_of"]

APPLICATION_ID = 0x7455726E
SCHEMA_VERSION = 2

HOUR = 3600.0

# The checkpoint is the last column: what stands before it is read without the pages that only the checkpoint fills.
# `folded` is the title as it is searched. `hour` is that of `updated_at`: an index on the time itself would be written
# with each commit.
SESSION = """
CREATE TABLE session (
  key INTEGER PRIMARY KEY,
  session TEXT NOT NULL UNIQUE,
  sequence INTEGER DEFAULT 0,
  owner TEXT,
  waiting INTEGER DEFAULT 0,
  unfinished INTEGER DEFAULT 0,
  deadline REAL,
  archived INTEGER DEFAULT 0,
  parent TEXT DEFAULT '',
  hour INTEGER DEFAULT 0,
  held INTEGER DEFAULT 0,
  queued INTEGER DEFAULT 0,
  last_event INTEGER DEFAULT 0,
  created_at REAL DEFAULT 0,
  updated_at REAL DEFAULT 0,
  state TEXT DEFAULT '',
  outcome TEXT DEFAULT '',
  title TEXT DEFAULT '',
  folded TEXT DEFAULT '',
  labels TEXT DEFAULT '{}',
  checkpoint BLOB
);
CREATE INDEX session_waiting ON session (session) WHERE waiting;
CREATE INDEX session_unfinished ON session (session) WHERE unfinished;
CREATE INDEX session_owner ON session (owner) WHERE owner IS NOT NULL;
CREATE INDEX session_deadline ON session (deadline) WHERE deadline IS NOT NULL;
CREATE INDEX session_recent ON session (archived, hour) WHERE parent = '';
CREATE INDEX session_parent ON session (parent) WHERE parent <> ''"""

OTHERS = """
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
) WITHOUT ROWID"""

SESSION_1 = (
    "key, session, sequence, owner, waiting, unfinished, held, queued, created_at, updated_at, state, title, labels"
)
"""The columns that a session had in version 1, beside its checkpoint."""


def is_empty(connection: sqlite3.Connection) -> bool:
    """Whether there is no table yet."""
    return connection.execute("SELECT 1 FROM sqlite_master").fetchone() is None


def version_of(connection: sqlite3.Connection) -> int:
    """The version of the tables."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    assert isinstance(version, int), "user_version of SQLite is an integer"
    return version


def check_ours(connection: sqlite3.Connection, path: str) -> None:
    """Refuse the tables of another program, or of a later version.

    Raises:
        StoreError: they are not ours to write.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION_ID:
        raise StoreError(f"{path}: it is a database of another program: give another path")
    version = version_of(connection)
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{path}: it was written by a newer turnstate (store version {version}, this one reads {SCHEMA_VERSION}): "
            "update turnstate"
        )


def create(connection: sqlite3.Connection) -> None:
    """Make the tables, inside a transaction."""
    _run(connection, SESSION)
    _run(connection, OTHERS)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the tables of version 1 to this one, inside a transaction.

    The table of sessions is made anew, because a column that is added to it would stand behind the checkpoint.
    """
    connection.execute("ALTER TABLE session RENAME TO session_1")
    for index in ("session_waiting", "session_unfinished", "session_owner"):
        connection.execute(f"DROP INDEX {index}")
    _run(connection, SESSION)
    columns = f"{SESSION_1}, checkpoint"
    connection.execute(f"INSERT INTO session ({columns}) SELECT {columns} FROM session_1")
    old = "SELECT key, session, title, updated_at, checkpoint FROM session_1 WHERE checkpoint IS NOT NULL"
    for key, session, title, updated_at, checkpoint in connection.execute(old):
        found = _listing_of(session, checkpoint)
        connection.execute(
            "UPDATE session SET folded = ?, hour = ?, deadline = ?, outcome = ?, last_event = ? WHERE key = ?",
            (title.casefold(), hour_of(updated_at), found.deadline, found.outcome, found.last_event, key),
        )
    connection.execute("DROP TABLE session_1")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _listing_of(session: str, checkpoint: bytes) -> Listing:
    """What version 1 did not keep beside the checkpoint. One that cannot be read is listed all the same."""
    try:
        return listing_of(codec.decode_checkpoint(checkpoint))
    except CheckpointError:
        return Listing(session)


def hour_of(updated_at: float) -> int:
    """The hour of a time, as a whole number; it never goes down when the time goes up."""
    return int(updated_at / HOUR)


def _run(connection: sqlite3.Connection, statements: str) -> None:
    for statement in statements.split(";\n"):
        connection.execute(statement)
