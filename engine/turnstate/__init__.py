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

import importlib
from typing import TYPE_CHECKING, Any

from turnstate_states.asking import Option, Prompt, Question
from turnstate_states.content import Audio, File, Image, Quote
from turnstate_states.content import Text as Text
from turnstate_states.events import Annotated as Annotated
from turnstate_states.events import (
    ApprovalRequested,
    CallAnswered,
    CallDelta,
    CallProgress,
    CallProposed,
    CallSettled,
    CallStarted,
    CommandAccepted,
    CommandEnded,
    Compacted,
    Custom,
    Deleted,
    Event,
    GrantAdded,
    GrantRevoked,
    Imported,
    Lagged,
    MessageAdded,
    MessageEdited,
    MessageQueued,
    MessageRemoved,
    MessageTaken,
    PreliminaryResult,
    ReasoningDelta,
    Replied,
    ResultRequested,
    Retrying,
    SessionChanged,
    StepEnded,
    StepStarted,
    Switched,
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
from .middleware.base import Again, CommandContext, Middleware, StepContext, Stop, TurnContext, command
from .models.base import Model, ModelRequest, Reply
from .policy import Allow, AsDeclared, Ask, Deny, Policy
from .reading import SessionFilter
from .results import Result, SessionInfo, SessionPage
from .session import Session
from .session_handle import SessionHandle
from .stores.base import Store
from .stores.memory import MemoryStore
from .tools import Output, Tool, ToolContext, tool
from .turns import Turn

if TYPE_CHECKING:
    from turnstate_states.statuses import CallDisplay, MessageDisplay

    from .nested import child_session
    from .stores.sqlite import SQLiteStore
    from .views import MessageView, ThreadView

# Not in it: Annotated and Text, which are to be imported by name, since `from turnstate import *` would put them in the
# place of typing's.
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
    "CallDisplay",
    "CallProgress",
    "CallProposed",
    "CallSettled",
    "CallStarted",
    "CheckpointError",
    "Client",
    "CommandAccepted",
    "CommandContext",
    "CommandEnded",
    "Compacted",
    "Custom",
    "Deleted",
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
    "Imported",
    "InvalidInput",
    "Lagged",
    "Limits",
    "MemoryStore",
    "Message",
    "MessageAdded",
    "MessageDisplay",
    "MessageEdited",
    "MessageQueued",
    "MessageRemoved",
    "MessageTaken",
    "MessageView",
    "Middleware",
    "Model",
    "ModelError",
    "ModelRequest",
    "Option",
    "Output",
    "Policy",
    "PolicyError",
    "PreliminaryResult",
    "Prompt",
    "Question",
    "Quote",
    "ReasoningDelta",
    "Receipt",
    "Refused",
    "Replied",
    "Reply",
    "Result",
    "ResultRequested",
    "Retrying",
    "SQLiteStore",
    "Session",
    "SessionChanged",
    "SessionFilter",
    "SessionHandle",
    "SessionInUse",
    "SessionInfo",
    "SessionPage",
    "StaleSession",
    "StepContext",
    "StepEnded",
    "StepStarted",
    "Stop",
    "Store",
    "StoreError",
    "Switched",
    "TextDelta",
    "ThreadView",
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
    "child_session",
    "command",
    "tool",
]


LATE = {
    "SQLiteStore": "turnstate.stores.sqlite",
    "child_session": "turnstate.nested",
    "MessageView": "turnstate.views",
    "ThreadView": "turnstate.views",
    "MessageDisplay": "turnstate_states.statuses",
    "CallDisplay": "turnstate_states.statuses",
}


def __getattr__(name: str) -> Any:
    """Import what is large, or seldom used, when it is first asked for, so that importing the package is quick."""
    if name in LATE:
        return getattr(importlib.import_module(LATE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
