"""Reading sessions from a store, without driving anything."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from turnstate_states import codec
from turnstate_states.checkpoint import Checkpoint
from turnstate_states.errors import InvalidInput
from turnstate_states.events import NumberedEvent
from turnstate_states.transcript import Message, Transcript
from turnstate_states.turn import Call

from .records import listed, waiting_calls
from .results import SessionInfo
from .stores.base import Store

__all__ = ["load", "read_events", "read_messages", "read_sessions"]

PAGE = 200


async def load(store: Store, session: str) -> tuple[Checkpoint, Transcript] | None:
    """A session as stored; None if nothing was said in it yet.

    Raises:
        CheckpointError: what is stored cannot be read.
    """
    stored = await store.load(session)
    if stored is None:
        return None
    checkpoint = codec.decode_checkpoint(stored.checkpoint)
    transcript = Transcript(await read_messages(store, session), checkpoint.head)
    turn = checkpoint.turn
    if turn is not None:
        turn.calls = {name: codec.with_proposed(call, transcript.get) for name, call in turn.calls.items()}
    return checkpoint, transcript


async def read_messages(store: Store, session: str) -> list[Message]:
    """All messages of a session, in the order they were written."""
    return [message for row in await store.messages(session) for message in codec.decode_messages(row)]


async def read_events(store: Store, session: str, after: int, up_to: int | None = None) -> list[NumberedEvent]:
    """The stored events with a number above ``after``, and at most ``up_to`` if that is given."""
    known: dict[str, Message] = {}
    found: list[NumberedEvent] = []
    while True:
        rows = await store.rows(session, after, PAGE)
        for row in rows:
            for message in codec.decode_messages(row.messages) if row.messages else ():
                known[message.id] = message
        events = [event for row in rows for event in await _decoded(store, session, row.events, known)]
        found += [event for event in events if _within(event, after, up_to)]
        if len(rows) < PAGE or (up_to is not None and rows[-1].last >= up_to):
            return found
        after = rows[-1].last


def _within(event: NumberedEvent, after: int, up_to: int | None) -> bool:
    return event.number is not None and event.number > after and (up_to is None or event.number <= up_to)


async def _decoded(store: Store, session: str, data: bytes, known: dict[str, Message]) -> Sequence[NumberedEvent]:
    """Events of a row; a call in it may belong to a message of an earlier row, which is then looked for."""
    missing: list[str] = []

    def find(message: str) -> Message | None:
        if message not in known:
            missing.append(message)
        return known.get(message)

    events = codec.decode_events(data, find)
    if missing:
        for message in await read_messages(store, session):
            known.setdefault(message.id, message)
        events = codec.decode_events(data, known.get)
    return events


async def read_sessions(store: Store, *, waiting: bool, unfinished: bool) -> AsyncIterator[SessionInfo]:
    """The stored sessions, in the order of their ids."""
    after = ""
    while True:
        page = await store.sessions(waiting=waiting, unfinished=unfinished, after=after, limit=PAGE)
        for listing in page:
            calls: tuple[Call, ...] = ()
            if listing.waiting:
                loaded = await load(store, listing.session)
                calls = () if loaded is None else tuple(waiting_calls(loaded[0]))
            yield listed(listing, calls)
        if len(page) < PAGE:
            return
        after = page[-1].session


def check_number(after: int) -> int:
    """A number of an event to read on from."""
    if not isinstance(after, int) or after < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"after: expected the number of an event, 0 for all, got {after!r}")
    return after
