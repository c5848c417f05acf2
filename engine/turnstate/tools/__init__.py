"""Tools: functions that a model may call, and those that ship."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .base import Tool, ToolSet, tool
from .context import ToolContext
from .output import Output

if TYPE_CHECKING:
    from .sandboxed_shell import shell

__all__ = ["Output", "Tool", "ToolContext", "ToolSet", "shell", "tool"]

LAZY = {"shell": "sandboxed_shell"}


def __getattr__(name: str) -> Any:
    """Import what is large when it is first asked for, so that importing the package is quick."""
    if name in LAZY:
        return getattr(importlib.import_module(f".{LAZY[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
