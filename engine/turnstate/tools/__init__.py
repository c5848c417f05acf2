"""Tools: functions that a model may call, and those that ship."""

from __future__ import annotations

from .base import Tool, ToolSet, tool
from .context import ToolContext
from .shell import shell

__all__ = ["Tool", "ToolContext", "ToolSet", "shell", "tool"]
