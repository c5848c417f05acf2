"""For tests of agents, models and stores."""

from __future__ import annotations

from .faulty import FaultyStore
from .scripted import ScriptedCall, ScriptedModel, call

__all__ = ["FaultyStore", "ScriptedCall", "ScriptedModel", "call"]
