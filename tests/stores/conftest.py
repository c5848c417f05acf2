"""Fixtures of the stores' tests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a store's file is to be."""
    return tmp_path / "sessions.db"
