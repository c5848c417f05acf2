"""Middleware: hooks around requests to the model and the end of a turn, and those that ship."""

from __future__ import annotations

from .base import Again, Middleware, StepContext, Stop, TurnContext
from .compaction import Compaction

__all__ = ["Again", "Compaction", "Middleware", "StepContext", "Stop", "TurnContext"]
