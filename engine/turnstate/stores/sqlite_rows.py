"""What a SQLite store reads, and writes beside commits. Those functions that write run inside a transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from .base import InboxItem, Owner, Room, StoredRow, StoredSession
from .refusals import busy, full, in_use, unknown_owner
from .sqlite_commits import EVENTS_BITS

ROWS_AT_ONCE = 1000

BIG = 32 * 1024
"""Bytes from which on a body of the log is read by itself."""

FORGET_OWNERS_AFTER = 24 * 60 * 60

_HOLDER = """SELECT owner.id, owner.host, owner.pid, owner.process_started, owner.expires
 FROM session JOIN owner ON owner.id = session.owner WHERE session.session = ?"""

_RANGE = "SELECT place, length({0}) AS size, {1} FROM log WHERE place > ? AND place < ? ORDER BY place LIMIT ?"

_TREE = """WITH RECURSIVE tree (name) AS (VALUES (?) UNION
 SELECT child.session FROM tree JOIN session AS child ON child.parent = tree.name WHERE child.parent <> '')
 SELECT key, session, checkpoint IS NOT NULL, unfinished FROM tree JOIN session ON session = name"""


def claim(connection: sqlite3.Connection, session: str, owner: Owner, now: float) -> None:
    """Put the owner into the session's row, which may be one without a checkpoint: that one exists for claims only."""
    if connection.execute("SELECT 1 FROM owner WHERE id = ?", (owner.id,)).fetchone() is None:
        raise unknown_owner(owner.id)
    holder = holder_of(connection, session)
    if holder is not None:
        if holder.id == owner.id:
            return
        if holder.alive(now):
            raise in_use(session, holder)
    connection.execute(
        "INSERT INTO session (session, owner) VALUES (?, ?) ON CONFLICT (session) DO UPDATE SET owner = excluded.owner",
        (session, owner.id),
    )


def release(connection: sqlite3.Connection, session: str, owner: str) -> None:
    """Give one claim up."""
    values = (session, owner)
    connection.execute("DELETE FROM session WHERE session = ? AND owner = ? AND checkpoint IS NULL", values)
    connection.execute("UPDATE session SET owner = NULL WHERE session = ? AND owner = ?", values)


def renew(connection: sqlite3.Connection, owner: Owner) -> None:
    """Store the lease. A new owner also sweeps up those that ended long ago without a word and have no session."""
    changed = connection.execute(
        "UPDATE owner SET host = ?, pid = ?, process_started = ?, expires = ? WHERE id = ?", _owner_values(owner)
    )
    if changed.rowcount == 0:
        connection.execute(
            "INSERT INTO owner (host, pid, process_started, expires, id) VALUES (?, ?, ?, ?, ?)", _owner_values(owner)
        )
        connection.execute(
            "DELETE FROM owner WHERE expires < ? AND id NOT IN (SELECT owner FROM session WHERE owner IS NOT NULL)",
            (owner.expires - FORGET_OWNERS_AFTER,),
        )


def retire(connection: sqlite3.Connection, owner: str) -> None:
    """Give all claims of the owner up and forget it."""
    connection.execute("DELETE FROM session WHERE owner = ? AND checkpoint IS NULL", (owner,))
    connection.execute("UPDATE session SET owner = NULL WHERE owner = ?", (owner,))
    connection.execute("DELETE FROM owner WHERE id = ?", (owner,))


def post(connection: sqlite3.Connection, item: InboxItem, room: Room) -> None:
    """Keep a submission, if there is room; one with the same id keeps its place in the line."""
    (items, size) = connection.execute(
        "SELECT count(*), total(length(body)) FROM inbox WHERE session = ? AND id <> ?", (item.session, item.id)
    ).fetchone()
    if items + 1 > room.items or size + len(item.body) > room.size:
        raise full(item.session, items)
    connection.execute(
        "INSERT INTO inbox (session, id, body) VALUES (?, ?, ?)"
        " ON CONFLICT (session, id) DO UPDATE SET body = excluded.body",
        (item.session, item.id, item.body),
    )


def delete(connection: sqlite3.Connection, session: str, owner: str, unfinished: bool, now: float) -> list[str]:
    """Delete everything of a session and of its children, if nobody else drives one of them; those that existed."""
    found = connection.execute(_TREE, (session,)).fetchall()
    for _, name, _, open_ in found:
        holder = holder_of(connection, name)
        if holder is not None and holder.id != owner and holder.alive(now):
            raise in_use(name, holder)
        if open_ and not unfinished:
            raise busy(name)
    connection.execute("DELETE FROM inbox WHERE session = ?", (session,))
    for key, name, _, _ in found:
        connection.execute("DELETE FROM inbox WHERE session = ?", (name,))
        connection.execute("DELETE FROM log WHERE place > ? AND place < ?", _places(key))
        connection.execute("DELETE FROM receipt WHERE session = ?", (key,))
        connection.execute("DELETE FROM session WHERE key = ?", (key,))
    return [name for _, name, existed, _ in found if existed]


def holder_of(connection: sqlite3.Connection, session: str) -> Owner | None:
    """The owner in the session's row, as long as it is not forgotten."""
    found = connection.execute(_HOLDER, (session,)).fetchone()
    return None if found is None else Owner(*found)


def load(connection: sqlite3.Connection, session: str) -> StoredSession | None:
    """The session's row."""
    found = connection.execute(
        "SELECT sequence, checkpoint FROM session WHERE session = ? AND checkpoint IS NOT NULL", (session,)
    ).fetchone()
    return None if found is None else StoredSession(session, *found)


def messages(connection: sqlite3.Connection, session: str) -> list[bytes]:
    """The messages of all rows that have any."""
    found: list[bytes] = []
    start, end = _places(_key(connection, session))
    while True:
        places, bodies = _bodies(connection, "messages", start, end, ROWS_AT_ONCE)
        found += filter(None, bodies)
        if len(places) < ROWS_AT_ONCE:
            return found
        start = places[-1]


def rows(connection: sqlite3.Connection, session: str, after: int, limit: int) -> list[StoredRow]:
    """Rows of the log, in order."""
    start, end = _places(_key(connection, session))
    after = start + max(after, 0)
    places, events = _bodies(connection, "events", after, end, limit)
    if not places:
        return []
    _, messages = _bodies(connection, "messages", after, places[-1] + 1, limit)
    return [StoredRow(place - start, *bodies) for place, *bodies in zip(places, messages, events, strict=True)]


def _bodies(
    connection: sqlite3.Connection, column: str, after: int, end: int, limit: int
) -> tuple[list[int], list[bytes]]:
    """One column of many rows of the log, with the rows' places."""
    found = _joined(connection, column, after, end, limit)
    if found is None:
        rows = connection.execute(_RANGE.format(column, f"{column} AS body"), (after, end, limit)).fetchall()
        return [place for place, _, _ in rows], [body for _, _, body in rows]
    places, sizes, joined = found
    bodies: list[bytes] = []
    start = 0
    for place, size in zip(places, sizes, strict=True):
        if size >= BIG:
            bodies.append(_big(connection, column, place))
            continue
        bodies.append(joined[start : start + size])
        start += size
    return places, bodies


def _joined(
    connection: sqlite3.Connection, column: str, after: int, end: int, limit: int
) -> tuple[list[int], list[int], bytes] | None:
    """Places, sizes and bodies as one row, since Python's lock is given away at each row that is read.

    Big bodies are left out: reading them by themselves spares copies. Joining ends at a null byte or at SQLite's largest
    value; then it is None.
    """
    inner = _RANGE.format(column, f"iif(length({column}) < {BIG}, {column}, x'') AS body")
    statement = f"SELECT CAST(group_concat(body, '') AS BLOB), group_concat(size), group_concat(place) FROM ({inner})"
    try:
        joined, sizes, places = connection.execute(statement, (after, end, limit)).fetchone()
    except sqlite3.DataError:
        return None
    if places is None:
        return [], [], b""
    numbers = [int(size) for size in sizes.split(",")]
    if sum(size for size in numbers if size < BIG) != len(joined or b""):
        return None
    return [int(place) for place in places.split(",")], numbers, joined or b""


def _big(connection: sqlite3.Connection, column: str, place: int) -> bytes:
    with connection.blobopen("log", column, place, readonly=True) as blob:
        return blob.read()


def receipt(connection: sqlite3.Connection, session: str, id: str) -> bytes | None:
    """The receipt of a submission."""
    found = connection.execute(
        "SELECT body FROM receipt WHERE session = (SELECT key FROM session WHERE session = ?) AND id = ?", (session, id)
    ).fetchone()
    return None if found is None else bytes(found[0])


def inbox(connection: sqlite3.Connection, sessions: Sequence[str] | None) -> list[InboxItem]:
    """What was posted, oldest first."""
    if sessions is None:
        found = connection.execute("SELECT session, id, body FROM inbox ORDER BY number")
    elif connection.execute("SELECT 1 FROM inbox LIMIT 1").fetchone() is None:
        return []
    else:
        found = connection.execute(
            "SELECT session, id, body FROM inbox WHERE session IN (SELECT value FROM json_each(?)) ORDER BY number",
            (json.dumps(list(sessions)),),
        )
    return [InboxItem(*item) for item in found]


def data_version(connection: sqlite3.Connection) -> int:
    """A number that changes when any other connection, here or in another process, wrote to the file."""
    (version,) = connection.execute("PRAGMA data_version").fetchone()
    return int(version)


def _key(connection: sqlite3.Connection, session: str) -> int:
    """The session's number; -1 for one that does not exist, which has no rows."""
    found = connection.execute("SELECT key FROM session WHERE session = ?", (session,)).fetchone()
    return -1 if found is None else int(found[0])


def _places(key: int) -> tuple[int, int]:
    """What lies before and after all rows of a session in the log."""
    return key << EVENTS_BITS, (key + 1) << EVENTS_BITS


def _owner_values(owner: Owner) -> tuple[str, int, str, float, str]:
    return owner.host, owner.pid, owner.process_started, owner.expires, owner.id
