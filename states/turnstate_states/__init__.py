"""The pure part of turnstate: everything that decides, without I/O, clock or randomness.

Import these names from ``turnstate.states``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import codec
from .checkpoint import FORMAT, Checkpoint, Commit, Queued
from .content import (
    Audio,
    Citation,
    File,
    Hosted,
    Image,
    Part,
    Reasoning,
    Refusal,
    ResultStatus,
    Text,
    ToolCall,
    ToolResult,
    UserPart,
    as_parts,
    clean_text,
    text_of,
)
from .core import SessionCore
from .reports import (
    Activity,
    AttemptFailed,
    AttemptReplied,
    CallChecked,
    CallDone,
    Closed,
    Effects,
    PolicyDecided,
    Prepared,
    Report,
    Reviewed,
    Stopped,
    Summary,
)
from .rules import Limits, OnCrash, Rules, ToolSpec
from .stepping import EVENTS, FACTS, STATES, EventName, Facts, NotAllowed, next_state
from .submissions import (
    Answer,
    Delivery,
    EditQueued,
    Interrupt,
    Receipt,
    RemoveQueued,
    Resume,
    RevokeGrant,
    Send,
    Submission,
    Verdict,
)
from .transcript import Conversation, Message, MessageStatus, Role, Timing, Transcript, Usage
from .turn import (
    SETTLED,
    Call,
    CallStatus,
    Decision,
    Ending,
    Failure,
    Grant,
    Outcome,
    Permissions,
    StateName,
    Stop,
    TurnState,
)

if TYPE_CHECKING:
    from .machine import TABLE, TurnMachine, transitions

__all__ = [
    "EVENTS",
    "FACTS",
    "FORMAT",
    "SETTLED",
    "STATES",
    "TABLE",
    "Activity",
    "Answer",
    "AttemptFailed",
    "AttemptReplied",
    "Audio",
    "Call",
    "CallChecked",
    "CallDone",
    "CallStatus",
    "Checkpoint",
    "Citation",
    "Closed",
    "Commit",
    "Conversation",
    "Decision",
    "Delivery",
    "EditQueued",
    "Effects",
    "Ending",
    "EventName",
    "Facts",
    "Failure",
    "File",
    "Grant",
    "Hosted",
    "Image",
    "Interrupt",
    "Limits",
    "Message",
    "MessageStatus",
    "NotAllowed",
    "OnCrash",
    "Outcome",
    "Part",
    "Permissions",
    "PolicyDecided",
    "Prepared",
    "Queued",
    "Reasoning",
    "Receipt",
    "Refusal",
    "RemoveQueued",
    "Report",
    "ResultStatus",
    "Resume",
    "Reviewed",
    "RevokeGrant",
    "Role",
    "Rules",
    "Send",
    "SessionCore",
    "StateName",
    "Stop",
    "Stopped",
    "Submission",
    "Summary",
    "Text",
    "Timing",
    "ToolCall",
    "ToolResult",
    "ToolSpec",
    "Transcript",
    "TurnMachine",
    "TurnState",
    "Usage",
    "UserPart",
    "Verdict",
    "as_parts",
    "clean_text",
    "codec",
    "next_state",
    "text_of",
    "transitions",
]


def __getattr__(name: str) -> Any:
    """Import the statechart when it is first asked for."""
    if name in ("TABLE", "TurnMachine", "transitions"):
        from . import machine

        return getattr(machine, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
