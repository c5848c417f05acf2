"""Stores: where sessions are kept. A store of your own derives from :class:`Store`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .base import (
    Cursor,
    InboxItem,
    Listing,
    Owner,
    Room,
    SessionQuery,
    Store,
    StoredCommit,
    StoredRow,
    StoredSession,
)
from .listing import SessionOrder
from .memory import MemoryStore

if TYPE_CHECKING:
    from .sqlite import SQLiteStore

__all__ = [
    "Cursor",
    "InboxItem",
    "Listing",
    "MemoryStore",
    "Owner",
    "Room",
    "SQLiteStore",
    "SessionOrder",
    "SessionQuery",
    "Store",
    "StoredCommit",
    "StoredRow",
    "StoredSession",
]


def __getattr__(name: str) -> Any:
    """Import the store when it is first asked for, so that importing the package is quick."""
    if name == "SQLiteStore":
        from .sqlite import SQLiteStore

        return SQLiteStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
