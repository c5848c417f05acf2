"""What a client is told.

Numbered events are stored: each session counts 1, 2, 3, ... and a client that asks for those after the last it saw gets
exactly the rest. Deltas have no number: they are told while something happens and are not kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import attrs

from .content import UserPart
from .message import Message, Usage
from .submissions import Delivery
from .turn import Call, Failure, Grant, Outcome, Stop
from .values import Value

__all__ = [
    "Annotated",
    "ApprovalRequested",
    "CallAnswered",
    "CallDelta",
    "CallProgress",
    "CallProposed",
    "CallSettled",
    "CallStarted",
    "CommandAccepted",
    "CommandEnded",
    "Compacted",
    "Custom",
    "Deleted",
    "Delta",
    "Event",
    "EventBase",
    "GrantAdded",
    "GrantRevoked",
    "Imported",
    "Lagged",
    "MessageAdded",
    "MessageEdited",
    "MessageQueued",
    "MessageRemoved",
    "MessageTaken",
    "NumberedEvent",
    "PreliminaryResult",
    "ReasoningDelta",
    "Replied",
    "ResultRequested",
    "Retrying",
    "SessionChanged",
    "StepEnded",
    "StepStarted",
    "Switched",
    "TextDelta",
    "TurnEnded",
    "TurnStarted",
    "TurnStopping",
    "Warned",
]


@attrs.frozen(kw_only=True, repr=False, eq=False)
class EventBase(Value):
    """What every event has.

    ``number`` is None for a delta; ``at`` is in seconds since the epoch, 0 for a delta; ``turn`` is empty outside of a turn;
    ``cause`` is the id of the submission that led to it.
    """

    number: int | None = None
    at: float = 0.0
    turn: str = ""
    cause: str = ""


@attrs.frozen(repr=False, eq=False)
class TurnStarted(EventBase):
    """A turn began, with a person's message, or going on from the turn ``continues``."""

    tag: ClassVar[str] = "turn-started"
    message: Message | None = None
    continues: str = ""
    settings: Mapping[str, Any] = attrs.field(factory=dict[str, Any])


@attrs.frozen(repr=False, eq=False)
class MessageQueued(EventBase):
    """A message waits: for the next turn, or to join this one."""

    tag: ClassVar[str] = "message-queued"
    id: str
    parts: tuple[UserPart, ...]
    delivery: Delivery = "queue"
    settings: Mapping[str, Any] = attrs.field(factory=dict[str, Any])


@attrs.frozen(repr=False, eq=False)
class MessageEdited(EventBase):
    """A waiting message was changed."""

    tag: ClassVar[str] = "message-edited"
    id: str
    parts: tuple[UserPart, ...]
    settings: Mapping[str, Any] = attrs.field(factory=dict[str, Any])


@attrs.frozen(repr=False, eq=False)
class MessageTaken(EventBase):
    """A waiting message joined the running turn."""

    tag: ClassVar[str] = "message-taken"
    id: str
    message: Message


@attrs.frozen(repr=False, eq=False)
class MessageRemoved(EventBase):
    """A waiting message was taken back."""

    tag: ClassVar[str] = "message-removed"
    id: str


@attrs.frozen(repr=False, eq=False)
class MessageAdded(EventBase):
    """A middleware added a message for good."""

    tag: ClassVar[str] = "message-added"
    message: Message


@attrs.frozen(repr=False, eq=False)
class Compacted(EventBase):
    """From now on the model is shown this summary in the place of what was said before; the history stays."""

    tag: ClassVar[str] = "compacted"
    message: Message


@attrs.frozen(repr=False, eq=False)
class StepStarted(EventBase):
    """A request goes to the model."""

    tag: ClassVar[str] = "step-started"
    step: int
    attempt: str


@attrs.frozen(repr=False, eq=False)
class StepEnded(EventBase):
    """An attempt ended: ``completed``, ``failed``, ``retrying`` or ``interrupted``."""

    tag: ClassVar[str] = "step-ended"
    step: int
    attempt: str
    outcome: Literal["completed", "failed", "retrying", "interrupted"]
    usage: Usage | None = None
    stop: Stop = ""


@attrs.frozen(repr=False, eq=False)
class Retrying(EventBase):
    """The attempt broke; what it gave so far is void. The next one starts after ``delay`` seconds."""

    tag: ClassVar[str] = "retrying"
    attempt: str
    error: Failure
    delay: float = 0.0


@attrs.frozen(repr=False, eq=False)
class Replied(EventBase):
    """The model's reply is stored; also what was left of one when the turn ended (status ``incomplete``)."""

    tag: ClassVar[str] = "replied"
    message: Message


@attrs.frozen(repr=False, eq=False)
class CallProposed(EventBase):
    """The model wants a tool to run."""

    tag: ClassVar[str] = "call-proposed"
    call: Call


@attrs.frozen(repr=False, eq=False)
class ApprovalRequested(EventBase):
    """A person must say whether this call may run."""

    tag: ClassVar[str] = "approval-requested"
    call: Call


@attrs.frozen(repr=False, eq=False)
class ResultRequested(EventBase):
    """Somebody outside must say what this call gives: its tool has no function here."""

    tag: ClassVar[str] = "result-requested"
    call: Call


@attrs.frozen(repr=False, eq=False)
class PreliminaryResult(EventBase):
    """What somebody outside says of a call so far; it is not settled."""

    tag: ClassVar[str] = "preliminary-result"
    call: Call
    value: Any = None


@attrs.frozen(repr=False, eq=False)
class CallAnswered(EventBase):
    """A person said so; ``call.decision`` says who, when and why."""

    tag: ClassVar[str] = "call-answered"
    call: Call


@attrs.frozen(repr=False, eq=False)
class CallStarted(EventBase):
    """The call may have had effects from now on."""

    tag: ClassVar[str] = "call-started"
    call: Call


@attrs.frozen(repr=False, eq=False)
class CallSettled(EventBase):
    """The call has its one result, which is in ``message``."""

    tag: ClassVar[str] = "call-settled"
    call: Call
    message: Message


@attrs.frozen(repr=False, eq=False)
class TurnStopping(EventBase):
    """The turn was told to end; nothing starts any more."""

    tag: ClassVar[str] = "turn-stopping"
    reason: str


@attrs.frozen(repr=False, eq=False)
class TurnEnded(EventBase):
    """The turn's end and record. ``held``: waiting messages stay until Resume or a new message releases them."""

    tag: ClassVar[str] = "turn-ended"
    outcome: Outcome
    reason: str = ""
    error: Failure | None = None
    stop: Stop = ""
    steps: int = 0
    attempts: int = 0
    calls: int = 0
    failed_calls: int = 0
    usage: Usage = attrs.field(factory=Usage)
    held: bool = False


@attrs.frozen(repr=False, eq=False)
class GrantAdded(EventBase):
    """A person approved something for the session."""

    tag: ClassVar[str] = "grant-added"
    grant: Grant


@attrs.frozen(repr=False, eq=False)
class GrantRevoked(EventBase):
    """An approval for the session is gone."""

    tag: ClassVar[str] = "grant-revoked"
    grant: Grant


@attrs.frozen(repr=False, eq=False)
class Switched(EventBase):
    """The visible path ends in another message now (None: before the first), because of ``why``."""

    tag: ClassVar[str] = "switched"
    head: str | None
    why: Literal["edit", "regenerate", "switch"] = "switch"


@attrs.frozen(repr=False, eq=False)
class Deleted(EventBase):
    """The messages ``message.changes`` are gone from the thread, whose visible path ends in ``head``."""

    tag: ClassVar[str] = "deleted"
    message: Message
    head: str | None = None


@attrs.frozen(repr=False, eq=False)
class Annotated(EventBase):
    """The metadata of ``message`` was laid over that of the messages ``message.changes``."""

    tag: ClassVar[str] = "annotated"
    message: Message


@attrs.frozen(repr=False, eq=False)
class Imported(EventBase):
    """The session began with messages from elsewhere: ``source`` is the session that they were forked from, if any.

    They are in the log's row of this event and can be read with the session's messages.
    """

    tag: ClassVar[str] = "imported"
    messages: int
    head: str | None = None
    source: str = ""


@attrs.frozen(repr=False, eq=False)
class SessionChanged(EventBase):
    """What a list shows of the session, as it is from now on."""

    tag: ClassVar[str] = "session-changed"
    title: str
    labels: Mapping[str, str] = attrs.field(factory=dict[str, str])
    archived: bool = False


@attrs.frozen(repr=False, eq=False)
class CommandAccepted(EventBase):
    """The middleware that owns this command is to carry it out; ``id`` is the submission's."""

    tag: ClassVar[str] = "command-accepted"
    id: str
    name: str
    arguments: Mapping[str, Any] = attrs.field(factory=dict[str, Any])


@attrs.frozen(repr=False, eq=False)
class CommandEnded(EventBase):
    """The command was carried out and gave ``result`` (plain JSON), or failed with ``error``."""

    tag: ClassVar[str] = "command-ended"
    id: str
    name: str
    result: Any = None
    error: str = ""


@attrs.frozen(repr=False, eq=False)
class Custom(EventBase):
    """A middleware's own."""

    tag: ClassVar[str] = "custom"
    name: str
    data: Any = None


@attrs.frozen(repr=False, eq=False)
class Warned(EventBase):
    """Something that a person should know."""

    tag: ClassVar[str] = "warned"
    text: str


@attrs.frozen(repr=False, eq=False)
class TextDelta(EventBase):
    """A piece of the reply's text; void if its attempt is retried."""

    text: str
    attempt: str = ""


@attrs.frozen(repr=False, eq=False)
class ReasoningDelta(EventBase):
    """A piece of the model's reasoning."""

    text: str
    attempt: str = ""


@attrs.frozen(repr=False, eq=False)
class CallDelta(EventBase):
    """A piece of a call's arguments; ``slot`` is its place among the reply's calls."""

    tool: str
    arguments: str
    slot: int = 0
    attempt: str = ""


@attrs.frozen(repr=False, eq=False)
class CallProgress(EventBase):
    """A running tool's own report."""

    call: str
    value: Any


@attrs.frozen(repr=False, eq=False)
class Lagged(EventBase):
    """You read too slowly and missed events; read on from the log after number ``after``."""

    after: int


NumberedEvent = (
    TurnStarted
    | MessageQueued
    | MessageEdited
    | MessageTaken
    | MessageRemoved
    | MessageAdded
    | Compacted
    | StepStarted
    | StepEnded
    | Retrying
    | Replied
    | CallProposed
    | ApprovalRequested
    | ResultRequested
    | PreliminaryResult
    | CallAnswered
    | CallStarted
    | CallSettled
    | TurnStopping
    | TurnEnded
    | GrantAdded
    | GrantRevoked
    | Switched
    | Deleted
    | Annotated
    | Imported
    | SessionChanged
    | CommandAccepted
    | CommandEnded
    | Custom
    | Warned
)
Delta = TextDelta | ReasoningDelta | CallDelta | CallProgress | Lagged
Event = NumberedEvent | Delta
