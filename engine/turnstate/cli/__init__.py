"""The ``turnstate`` command."""

from __future__ import annotations

from .app import main

__all__ = ["main"]
