"""What every test of the command has: a home of its own."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tests.cli.command import environment


@pytest.fixture(autouse=True)
def _at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """Commands that run in this process see what a process of their own would: its environment and its directory."""
    own = environment(tmp_path)
    for name in os.environ.keys() - own.keys():
        monkeypatch.delenv(name)
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.chdir(tmp_path)
