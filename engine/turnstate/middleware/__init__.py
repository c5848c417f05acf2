"""Middleware: hooks around requests to the model and the end of a turn, and those that ship."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .base import Again, Middleware, StepContext, Stop, TurnContext

if TYPE_CHECKING:
    from .compaction import Compaction
    from .titles import Titles

__all__ = ["Again", "Compaction", "Middleware", "StepContext", "Stop", "Titles", "TurnContext"]

LAZY = {"Compaction": "compaction", "Titles": "titles"}


def __getattr__(name: str) -> Any:
    """Import what is large when it is first asked for, so that importing the package is quick."""
    if name in LAZY:
        return getattr(importlib.import_module(f".{LAZY[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
