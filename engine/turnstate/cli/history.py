"""A stored session as the command shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from turnstate_states.events import (
    ApprovalRequested,
    CallAnswered,
    CallProposed,
    CallSettled,
    MessageEdited,
    MessageQueued,
    ResultRequested,
)

from ..reading import load, read_events
from ..records import waiting_calls
from ..states import Call, Checkpoint, Message, Queued, ToolCall, Transcript, text_of
from ..stores.base import Store

__all__ = ["History", "read_history"]

CALL_EVENTS = (CallProposed, CallAnswered, CallSettled)


@attrs.frozen
class History:
    """A session's state and messages; its calls as last told, by id; when people were asked; what waits."""

    checkpoint: Checkpoint
    transcript: Transcript
    calls: Mapping[str, Call]
    asked_at: Mapping[str, float]
    queued: Sequence[str]

    @property
    def waiting(self) -> list[Call]:
        """The calls that wait for a person."""
        return waiting_calls(self.checkpoint)

    @property
    def waiting_since(self) -> float:
        """When the oldest of them was asked for."""
        return min(map(self.asked_since, self.waiting), default=self.checkpoint.updated_at)

    def asked_since(self, call: Call) -> float:
        """When a call that waits was asked about."""
        return self.asked_at.get(call.id, self.checkpoint.updated_at)

    def call(self, part: ToolCall) -> Call:
        """A call of a reply as it stands, with the arguments that a person gave it."""
        return self.calls.get(part.id) or Call(part.id, part.name, proposed=part.arguments)

    @property
    def messages(self) -> list[Message]:
        """The visible messages that are stored."""
        return [message for message in self.transcript.visible() if message.id in self.transcript]


async def read_history(store: Store, session: str) -> History | None:
    """Read a session; None if nothing was said in it.

    Raises:
        StoreError: it cannot be read.
    """
    loaded = await load(store, session)
    if loaded is None:
        return None
    checkpoint, transcript = loaded
    events = await read_events(store, session, 0, checkpoint.events)
    calls = {event.call.id: event.call for event in events if isinstance(event, CALL_EVENTS)}
    asked = {event.call.id: event.at for event in events if isinstance(event, (ApprovalRequested, ResultRequested))}
    bodies = {
        event.number: text_of(event.parts) for event in events if isinstance(event, (MessageQueued, MessageEdited))
    }
    waiting: tuple[Queued, ...] = (*checkpoint.steers, *checkpoint.queue)
    return History(checkpoint, transcript, calls, asked, [bodies.get(item.event, "") for item in waiting])
