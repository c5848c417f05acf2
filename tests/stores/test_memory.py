"""The memory store keeps the promises of stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnstate.stores.base import InboxItem, Store
from turnstate.stores.memory import MemoryStore
from turnstate.testing.store_suite import StoreSuite


class TestMemoryStore(StoreSuite):
    shared = False

    def make_store(self, tmp_path: Path) -> Store:
        return MemoryStore()


@pytest.mark.trio
async def test_two_memory_stores_share_nothing() -> None:
    """What one memory store holds another does not."""
    async with MemoryStore() as one, MemoryStore() as two:
        await one.post(InboxItem("s", "i", b""))
        assert list(await two.inbox()) == []
        assert one.poll_interval is None
