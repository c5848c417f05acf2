"""Middleware: hooks around requests to the model and the end of a turn."""

from __future__ import annotations

from .base import Again, Middleware, StepContext, Stop, TurnContext

__all__ = ["Again", "Middleware", "StepContext", "Stop", "TurnContext"]
