"""For tests of agents, models and stores."""

from __future__ import annotations

from .crashes import Crashes, CrashRun, crashes
from .faulty import FaultyStore
from .scripted import ScriptedCall, ScriptedModel, call
from .strict_server import StrictServer, broken_rule

__all__ = [
    "CrashRun",
    "Crashes",
    "FaultyStore",
    "ScriptedCall",
    "ScriptedModel",
    "StrictServer",
    "broken_rule",
    "call",
    "crashes",
]
