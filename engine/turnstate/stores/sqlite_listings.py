"""How a SQLite store reads lists of sessions.

All of it is done by SQLite alone: around a function of Python's in a statement Python's lock would be taken and given away
for each row.
"""

from __future__ import annotations

import json
import sqlite3
from typing import Any

import attrs

from .listing import Cursor, Listing, SessionQuery
from .sqlite_schema import hour_of

__all__ = ["listings"]

_COLUMNS = tuple(field.name for field in attrs.fields(Listing))
_FLAGS = ("waiting", "unfinished", "held", "archived")

_LABELS = """NOT EXISTS (SELECT 1 FROM json_each(?) AS wanted WHERE NOT EXISTS (
 SELECT 1 FROM json_each(session.labels) AS label WHERE label.key = wanted.key AND label.value = wanted.value))"""

_ORDERS = {"id": "session", "recent": "hour DESC, updated_at DESC, session"}


def listings(connection: sqlite3.Connection, query: SessionQuery, after: Cursor | None, limit: int) -> list[Listing]:
    """The sessions that match, in the order asked for."""
    terms, values = _terms(query)
    if after is not None:
        _add_cursor(query, after, terms, values)
    found = connection.execute(
        f"SELECT {', '.join(_COLUMNS)} FROM session {_index(query)} WHERE {' AND '.join(terms)}"
        f" ORDER BY {_ORDERS[query.order]} LIMIT ?",
        (*values, limit),
    )
    return [_listing(row) for row in found]


def _index(query: SessionQuery) -> str:
    """The index that leaves least to be looked at, by name: SQLite knows nothing of how much each would leave."""
    if query.ids is not None:
        return ""
    if query.due is not None:
        return "INDEXED BY session_deadline"
    if query.waiting:
        return "INDEXED BY session_waiting"
    if query.unfinished:
        return "INDEXED BY session_unfinished"
    if query.order == "recent" and query.archived is not None and not query.children:
        return "INDEXED BY session_recent"
    return ""


def _terms(query: SessionQuery) -> tuple[list[str], list[object]]:
    terms, values = ["checkpoint IS NOT NULL"], list[object]()
    if query.waiting:
        terms.append("waiting")
    if query.unfinished:
        terms.append("unfinished")
    if query.archived is not None:
        # Without the plus SQLite would rather sort all sessions than go through them in the order of their ids.
        terms.append(f"{'+' if query.order == 'id' else ''}archived = {int(query.archived)}")
    if not query.children:
        terms.append("parent = ''")
    for wanted, term, value in (
        (query.ids is not None, "session IN (SELECT value FROM json_each(?))", json.dumps(query.ids)),
        (query.search, "instr(folded, ?)", query.search.casefold()),
        (query.labels, _LABELS, json.dumps(dict(query.labels))),
        (query.due is not None, "deadline <= ?", query.due),
    ):
        if wanted:
            terms.append(term)
            values.append(value)
    return terms, values


def _add_cursor(query: SessionQuery, after: Cursor, terms: list[str], values: list[object]) -> None:
    if query.order == "id":
        terms.append("session > ?")
        values.append(after.session)
        return
    terms.append("hour <= ? AND (updated_at < ? OR (updated_at = ? AND session > ?))")
    values += (hour_of(after.updated_at), after.updated_at, after.updated_at, after.session)


def _listing(row: tuple[Any, ...]) -> Listing:
    fields = dict(zip(_COLUMNS, row, strict=True))
    fields |= {name: bool(fields[name]) for name in _FLAGS}
    return Listing(**fields)
