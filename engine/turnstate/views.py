"""A thread as a user interface shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from turnstate_states.checkpoint import Checkpoint
from turnstate_states.content import ResultStatus
from turnstate_states.events import TurnEnded
from turnstate_states.statuses import CallDisplay, MessageDisplay, display_call, display_message, display_result
from turnstate_states.transcript import Message, Transcript
from turnstate_states.turn import Call, TurnState
from turnstate_states.values import Value

from .reading import load, read_events
from .records import waiting_calls
from .stores.base import Store

__all__ = ["MessageView", "ThreadView", "read_thread_view"]


@attrs.frozen(eq=False, repr=False)
class MessageView(Value):
    """A message with what is shown of it.

    ``display`` is its status, None for what is not a model's. ``calls`` has what is shown of each of its calls, by id.
    ``branches`` are the ids of the messages in its place, oldest first, itself included; ``position`` is its index there.
    """

    message: Message
    display: MessageDisplay | None
    calls: Mapping[str, CallDisplay]
    branches: Sequence[str]
    position: int


@attrs.frozen(eq=False, repr=False)
class ThreadView(Value):
    """The visible messages of a session, oldest first, and the calls that wait for a person.

    ``last_event`` is the number of the last event in it: follow the session from there.
    """

    session: str
    title: str = ""
    messages: Sequence[MessageView] = ()
    waiting: Sequence[Call] = ()
    last_event: int = 0


async def read_thread_view(store: Store, session: str) -> ThreadView:
    """The thread of a session as it is stored."""
    loaded = await load(store, session)
    if loaded is None:
        return ThreadView(session)
    checkpoint, transcript = loaded
    events = await read_events(store, session, 0, checkpoint.events)
    ends = {event.turn: event for event in events if isinstance(event, TurnEnded)}
    return view_of(checkpoint, transcript, ends)


def view_of(checkpoint: Checkpoint, transcript: Transcript, ends: Mapping[str, TurnEnded]) -> ThreadView:
    """The view of what was read; ``ends`` has how each turn ended."""
    visible = [message for message in transcript.visible() if message.id in transcript]
    last = {message.turn: message.id for message in visible if message.role == "assistant"}
    results: dict[str, ResultStatus] = {result.call: result.status for message in visible for result in message.results}
    shown = [_shown(message, checkpoint.turn, ends, last, results, transcript) for message in visible]
    return ThreadView(checkpoint.session, checkpoint.title, shown, waiting_calls(checkpoint), checkpoint.events)


def _shown(
    message: Message,
    turn: TurnState | None,
    ends: Mapping[str, TurnEnded],
    last: Mapping[str, str],
    results: Mapping[str, ResultStatus],
    transcript: Transcript,
) -> MessageView:
    current = turn if turn is not None and turn.id == message.turn else None
    made_by = current if current is not None and not current.closed else ends.get(message.turn)
    branches = transcript.branches(message.id)
    calls = {} if current is None else current.calls
    return MessageView(
        message,
        display_message(message, made_by, last=last.get(message.turn) == message.id),
        {
            part.id: display_call(calls[part.id]) if part.id in calls else display_result(results.get(part.id))
            for part in message.calls
        },
        branches,
        branches.index(message.id),
    )
