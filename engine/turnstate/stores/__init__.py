"""Stores: where sessions are kept. A store of your own derives from :class:`Store`."""

from __future__ import annotations

from .base import InboxItem, Listing, Owner, Store, StoredCommit, StoredRow, StoredSession
from .memory import MemoryStore
from .sqlite import SQLiteStore

__all__ = [
    "InboxItem",
    "Listing",
    "MemoryStore",
    "Owner",
    "SQLiteStore",
    "Store",
    "StoredCommit",
    "StoredRow",
    "StoredSession",
]
