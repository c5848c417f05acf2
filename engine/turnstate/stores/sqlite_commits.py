"""How a SQLite store writes commits: many in a few statements.

Around each statement Python's lock is given away, and a busy program takes up to five milliseconds to give it back.
Written one by one, the commits of a group would wait for each other's statements.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain

from turnstate_states.errors import StaleSession

from .base import StoredCommit
from .refusals import stale
from .sqlite_schema import hour_of

__all__ = ["EVENTS_BITS", "write_commits"]

EVENTS_BITS = 32
"""A row of the log is found by one integer: the session's key, then the number of its last event in so many bits."""

MOST_IN_A_STATEMENT = 64

_FOUND = """SELECT json_group_array(json_array(session, key, sequence, owner, waiting, unfinished, deadline, archived, parent,
 hour)) FROM session WHERE session IN (SELECT value FROM json_each(?))"""


def _upsert(*columns: str) -> tuple[str, str]:
    """Around the rows of a statement that sets these columns of sessions."""
    changes = ", ".join(f"{column} = excluded.{column}" for column in columns)
    return (
        f"INSERT OR FAIL INTO session (session, {', '.join(columns)}) VALUES ",
        f" ON CONFLICT (session) DO UPDATE SET {changes}",
    )


# OR FAIL, and columns that may be null: else SQLite keeps a journal of its own for each statement of many rows. The
# whole transaction is taken back anyway.
_SESSIONS = _upsert(
    "sequence", "held", "queued", "last_event", "created_at", "updated_at", "state", "outcome", "title", "folded",
    "labels", "checkpoint",
)  # fmt: skip
# Setting an indexed column writes its index even when the value stays. So these are set only where one has changed:
# some twice a turn, the others hardly ever.
_OPEN = _upsert("waiting", "unfinished", "deadline")
_PLACE = _upsert("archived", "parent", "hour")
_LOG = ("INSERT OR FAIL INTO log (place, messages, events) VALUES ", "")
_RECEIPTS = ("INSERT OR REPLACE INTO receipt (session, id, body) VALUES ", "")
_TAKEN = ("DELETE FROM inbox WHERE (session, id) IN (VALUES ", ")")

_Values = tuple[object, ...]
_Found = tuple[int, int, str | None, int, int, float | None, int, str, int]


def write_commits(connection: sqlite3.Connection, commits: Sequence[StoredCommit]) -> list[StaleSession | None]:
    """Write those commits that build on what is stored, inside a transaction; for each of the others why not."""
    refused: list[StaleSession | None] = []
    for batch in _batches(commits):
        refused += _write_batch(connection, batch)
    return refused


def _batches(commits: Sequence[StoredCommit]) -> Iterator[list[StoredCommit]]:
    """In the same order, with no session twice in one: the second builds on what the first makes."""
    batch: list[StoredCommit] = []
    names: set[str] = set()
    for commit in commits:
        if commit.session in names or len(batch) == MOST_IN_A_STATEMENT:
            yield batch
            batch, names = [], set()
        batch.append(commit)
        names.add(commit.session)
    yield batch


def _write_batch(connection: sqlite3.Connection, batch: Sequence[StoredCommit]) -> list[StaleSession | None]:
    (found,) = connection.execute(_FOUND, (json.dumps([commit.session for commit in batch]),)).fetchone()
    stored: dict[str, _Found] = {session: tuple(values) for session, *values in json.loads(found)}
    refused = [_refusal(commit, stored.get(commit.session)) for commit in batch]
    good = [commit for commit, no in zip(batch, refused, strict=True) if no is None]
    if good:
        _write(connection, good, stored)
    return refused


def _refusal(commit: StoredCommit, found: _Found | None) -> StaleSession | None:
    if found is None:
        return stale(commit.session, owned=False, after=commit.after, sequence=None)
    _, sequence, owner, *_ = found
    if owner == commit.owner and sequence == commit.after:
        return None
    return stale(commit.session, owned=owner == commit.owner, after=commit.after, sequence=sequence)


def _write(connection: sqlite3.Connection, commits: Sequence[StoredCommit], stored: dict[str, _Found]) -> None:
    opened: list[_Values] = []
    placed: list[_Values] = []
    log: list[_Values] = []
    receipts: list[_Values] = []
    taken: list[_Values] = []
    for commit in commits:
        key, _, _, *was = stored[commit.session]
        listing, row = commit.listing, commit.row
        waits = (listing.waiting, listing.unfinished, listing.deadline)
        if (*was[:3],) != waits:
            opened.append((commit.session, *waits))
        place = (listing.archived, listing.parent, hour_of(listing.updated_at))
        if (*was[3:],) != place:
            placed.append((commit.session, *place))
        if row is not None:
            log.append((key << EVENTS_BITS | row.last, row.messages, row.events))
        receipts += [(key, id, body) for id, body in commit.receipts]
        taken += [(commit.session, id) for id in commit.taken]
    _many(connection, _SESSIONS, [_session_values(commit) for commit in commits])
    _many(connection, _OPEN, opened)
    _many(connection, _PLACE, placed)
    _many(connection, _LOG, log)
    _many(connection, _RECEIPTS, receipts)
    _many(connection, _TAKEN, taken)


def _session_values(commit: StoredCommit) -> _Values:
    listing = commit.listing
    return (
        commit.session,
        commit.sequence,
        listing.held,
        listing.queued,
        listing.last_event,
        listing.created_at,
        listing.updated_at,
        listing.state,
        listing.outcome,
        listing.title,
        listing.title.casefold(),
        listing.labels,
        commit.checkpoint,
    )


def _many(connection: sqlite3.Connection, around: tuple[str, str], rows: Sequence[_Values]) -> None:
    """Run a statement for many rows, in pieces of a few sizes only, so that prepared statements are used again."""
    done = 0
    while left := min(len(rows) - done, MOST_IN_A_STATEMENT):
        size = 1 << (left.bit_length() - 1)
        values = list(chain.from_iterable(rows[done : done + size]))
        connection.execute(_statement(around, len(rows[0]), size), values)
        done += size


@lru_cache(maxsize=64)
def _statement(around: tuple[str, str], width: int, rows: int) -> str:
    row = f"({', '.join('?' * width)})"
    return f"{around[0]}{', '.join([row] * rows)}{around[1]}"
