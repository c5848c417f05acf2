"""The pure part of turnstate: everything that decides, without I/O, clock or randomness.

Import these names from ``turnstate.states``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import codec
from .arguments import read_arguments
from .asking import Option, Prompt, Question, meaning
from .authorization import Authorization
from .checkpoint import (
    FORMAT,
    Checkpoint,
    Commit,
    Pending,
    Queued,
)
from .content import (
    Audio,
    Citation,
    File,
    Hosted,
    Image,
    Part,
    Quote,
    Reasoning,
    Refusal,
    ResultStatus,
    ToolCall,
    ToolResult,
    UserPart,
    as_parts,
    clean_text,
    text_of,
)
from .content import Text as Text
from .reports import (
    Activity,
    AttemptFailed,
    AttemptReplied,
    CallChecked,
    CallDone,
    CallsBroken,
    CallSuspended,
    Closed,
    CommandDone,
    Effects,
    PolicyDecided,
    Prepared,
    Report,
    Reviewed,
    Stopped,
    Summary,
)
from .rules import Bound, Limits, OnCrash, Rules, ToolSpec
from .stepping import EVENTS, FACTS, STATES, EventName, Facts, NotAllowed, next_state
from .submissions import (
    Annotate,
    Answer,
    Command,
    Delete,
    Delivery,
    Describe,
    Edit,
    EditQueued,
    Interrupt,
    Provide,
    Receipt,
    Regenerate,
    RemoveQueued,
    Resume,
    RevokeGrant,
    Send,
    Submission,
    Switch,
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
    Nested,
    Outcome,
    Permissions,
    StateName,
    Stop,
    Subject,
    TurnState,
    Wants,
)

if TYPE_CHECKING:
    from .core import SessionCore
    from .machine import TABLE, TurnMachine, transitions
    from .statuses import CallDisplay, MessageDisplay, display_call, display_message, display_result
    from .thread import Thread, begin_session, export_thread, fork_thread, read_thread

# Not in it: Text, which is to be imported by name, since `import *` would put it in the place of typing's.
__all__ = [
    "EVENTS",
    "FACTS",
    "FORMAT",
    "SETTLED",
    "STATES",
    "TABLE",
    "Activity",
    "Annotate",
    "Answer",
    "AttemptFailed",
    "AttemptReplied",
    "Audio",
    "Authorization",
    "Bound",
    "Call",
    "CallChecked",
    "CallDisplay",
    "CallDone",
    "CallStatus",
    "CallSuspended",
    "CallsBroken",
    "Checkpoint",
    "Citation",
    "Closed",
    "Command",
    "CommandDone",
    "Commit",
    "Conversation",
    "Decision",
    "Delete",
    "Delivery",
    "Describe",
    "Edit",
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
    "MessageDisplay",
    "MessageStatus",
    "Nested",
    "NotAllowed",
    "OnCrash",
    "Option",
    "Outcome",
    "Part",
    "Pending",
    "Permissions",
    "PolicyDecided",
    "Prepared",
    "Prompt",
    "Provide",
    "Question",
    "Queued",
    "Quote",
    "Reasoning",
    "Receipt",
    "Refusal",
    "Regenerate",
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
    "Subject",
    "Submission",
    "Summary",
    "Switch",
    "Thread",
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
    "Wants",
    "as_parts",
    "begin_session",
    "clean_text",
    "codec",
    "display_call",
    "display_message",
    "display_result",
    "export_thread",
    "fork_thread",
    "meaning",
    "next_state",
    "read_arguments",
    "read_thread",
    "text_of",
    "transitions",
]


LATE = {
    "SessionCore": "core",
    **dict.fromkeys(("TABLE", "TurnMachine", "transitions"), "machine"),
    **dict.fromkeys(("CallDisplay", "MessageDisplay", "display_call", "display_message", "display_result"), "statuses"),
    **dict.fromkeys(("Thread", "begin_session", "export_thread", "fork_thread", "read_thread"), "thread"),
}


def __getattr__(name: str) -> Any:
    """Import the statechart, and what not every program needs, when it is first asked for."""
    if name in LATE:
        return getattr(importlib.import_module(f".{LATE[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
