"""For tests of agents, models and stores."""

from __future__ import annotations

from .scripted import ScriptedCall, ScriptedModel, call

__all__ = ["ScriptedCall", "ScriptedModel", "call"]
