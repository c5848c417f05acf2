"""Run LLM agent turns that survive a crash.

>>> import trio
>>> from turnstate import Agent, Engine, MemoryStore
>>> from turnstate.testing import ScriptedModel
>>> async def main() -> None:
...     async with Engine(Agent(ScriptedModel(["Elbe, Oder, Rhine"])), MemoryStore()) as engine:
...         result = await engine.session("alice").run("Name three rivers")
...         print(result.text)
>>> trio.run(main)
Elbe, Oder, Rhine
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from turnstate_states.content import Audio, File, Image, Text
from turnstate_states.events import (
    ApprovalRequested,
    CallAnswered,
    CallDelta,
    CallProgress,
    CallProposed,
    CallSettled,
    CallStarted,
    Compacted,
    Custom,
    Event,
    GrantAdded,
    GrantRevoked,
    Lagged,
    MessageAdded,
    MessageEdited,
    MessageQueued,
    MessageRemoved,
    MessageTaken,
    ReasoningDelta,
    Replied,
    Retrying,
    StepEnded,
    StepStarted,
    TextDelta,
    TurnEnded,
    TurnStarted,
    TurnStopping,
    Warned,
)
from turnstate_states.rules import Limits
from turnstate_states.submissions import Receipt
from turnstate_states.transcript import Message, Usage
from turnstate_states.turn import Call, Failure, Grant

from .agent import Agent
from .client import Client
from .engine import Engine
from .errors import (
    CheckpointError,
    HookError,
    InvalidInput,
    ModelError,
    PolicyError,
    Refused,
    SessionInUse,
    StaleSession,
    StoreError,
    ToolError,
    TurnFailed,
    TurnIncomplete,
    TurnstateError,
)
from .middleware.base import Again, Middleware, StepContext, Stop, TurnContext
from .models.base import Model, ModelRequest, Reply
from .policy import Allow, AsDeclared, Ask, Deny, Policy
from .results import Result, SessionInfo
from .session import Session, SessionHandle
from .stores.base import Store
from .stores.memory import MemoryStore
from .tools import Tool, ToolContext, tool
from .turns import Turn

if TYPE_CHECKING:
    from .stores.sqlite import SQLiteStore

__all__ = [
    "Again",
    "Agent",
    "Allow",
    "ApprovalRequested",
    "AsDeclared",
    "Ask",
    "Audio",
    "Call",
    "CallAnswered",
    "CallDelta",
    "CallProgress",
    "CallProposed",
    "CallSettled",
    "CallStarted",
    "CheckpointError",
    "Client",
    "Compacted",
    "Custom",
    "Deny",
    "Engine",
    "Event",
    "Failure",
    "File",
    "Grant",
    "GrantAdded",
    "GrantRevoked",
    "HookError",
    "Image",
    "InvalidInput",
    "Lagged",
    "Limits",
    "MemoryStore",
    "Message",
    "MessageAdded",
    "MessageEdited",
    "MessageQueued",
    "MessageRemoved",
    "MessageTaken",
    "Middleware",
    "Model",
    "ModelError",
    "ModelRequest",
    "Policy",
    "PolicyError",
    "ReasoningDelta",
    "Receipt",
    "Refused",
    "Replied",
    "Reply",
    "Result",
    "Retrying",
    "SQLiteStore",
    "Session",
    "SessionHandle",
    "SessionInUse",
    "SessionInfo",
    "StaleSession",
    "StepContext",
    "StepEnded",
    "StepStarted",
    "Stop",
    "Store",
    "StoreError",
    "Text",
    "TextDelta",
    "Tool",
    "ToolContext",
    "ToolError",
    "Turn",
    "TurnContext",
    "TurnEnded",
    "TurnFailed",
    "TurnIncomplete",
    "TurnStarted",
    "TurnStopping",
    "TurnstateError",
    "Usage",
    "Warned",
    "tool",
]


def __getattr__(name: str) -> Any:
    """Import the store when it is first asked for, so that importing the package is quick."""
    if name == "SQLiteStore":
        from .stores.sqlite import SQLiteStore

        return SQLiteStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
