"""Reading sessions from a store, without driving anything."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TypedDict

from turnstate_states import checks, codec
from turnstate_states.checkpoint import Checkpoint
from turnstate_states.errors import CheckpointError, InvalidInput
from turnstate_states.events import NumberedEvent
from turnstate_states.transcript import Message, Transcript
from turnstate_states.turn import Call

from .options import check_names
from .records import listed, waiting_calls
from .results import SessionInfo, SessionPage
from .stores.base import Store
from .stores.listing import Cursor, Listing, SessionOrder, SessionQuery

__all__ = [
    "SessionFilter",
    "load",
    "query_of",
    "read_events",
    "read_messages",
    "read_session_page",
    "read_sessions",
]

log = logging.getLogger("turnstate")
PAGE = 200
LARGEST_PAGE = 1000


async def load(store: Store, session: str) -> tuple[Checkpoint, Transcript] | None:
    """A session as stored; None if nothing was said in it yet.

    Raises:
        CheckpointError: what is stored cannot be read.
    """
    stored = await store.load(session)
    if stored is None:
        return None
    checkpoint = codec.decode_checkpoint(stored.checkpoint)
    messages = await read_messages(store, session)
    while messages and _number(messages[-1]) > checkpoint.messages:
        messages.pop()  # its driver has written on since the checkpoint was read
    transcript = Transcript(messages, checkpoint.head, checkpoint.chosen)
    turn = checkpoint.turn
    if turn is not None:
        turn.calls = {name: codec.with_proposed(call, transcript.get) for name, call in turn.calls.items()}
    return checkpoint, transcript


def _number(message: Message) -> int:
    """The number in a message's id; 0 for one that was imported under a name of another kind."""
    number = message.id[1:]
    return int(number) if message.id[:1] == "m" and number.isdecimal() else 0


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


class SessionFilter(TypedDict, total=False):
    """Which sessions a list shows, and in which order; all that is given must hold.

    - ``waiting``: True for those in which a person must answer.
    - ``unfinished``: True for those with a turn that has not ended.
    - ``archived``: True for those that are archived, False (the default) for those that are not, None for both.
    - ``children``: True for those as well that answer a tool call of another session.
    - ``search``: a text that the title holds, whatever the case; no character has a special meaning.
    - ``labels``: labels that must be there, exactly.
    - ``order``: ``"id"`` (the default), or ``"recent"``: what changed last comes first.
    """

    waiting: bool
    unfinished: bool
    archived: bool | None
    children: bool
    search: str
    labels: Mapping[str, str]
    order: SessionOrder


def query_of(only: SessionFilter) -> SessionQuery:
    """What the store is asked for.

    Raises:
        InvalidInput: a value cannot be used; the text names it.
    """
    check_names("sessions", only, SessionFilter.__annotations__)
    only.setdefault("archived", False)
    return SessionQuery(**only)


async def read_sessions(store: Store, query: SessionQuery) -> AsyncIterator[SessionInfo]:
    """All stored sessions that match, page by page."""
    after: Cursor | None = None
    while True:
        page = await store.sessions(query, after=after, limit=PAGE)
        for listing in page:
            yield await _info(store, listing)
        if len(page) < PAGE:
            return
        after = Cursor.of(page[-1])


async def read_session_page(store: Store, query: SessionQuery, limit: int, after: str | None) -> SessionPage:
    """One page of the stored sessions that match.

    Raises:
        InvalidInput: ``limit`` or ``after`` cannot be used.
    """
    checks.integer("limit", limit, least=1, most=LARGEST_PAGE, expected="a number of sessions")
    cursor = None if after is None else _cursor(checks.text("after", after), query.order)
    found = await store.sessions(query, after=cursor, limit=limit + 1)
    infos = [await _info(store, listing) for listing in found[:limit]]
    return SessionPage(infos, _text(Cursor.of(found[limit - 1]), query.order) if len(found) > limit else None)


def _text(cursor: Cursor, order: SessionOrder) -> str:
    data = json.dumps([order, cursor.session, cursor.updated_at])
    return base64.urlsafe_b64encode(data.encode()).decode().rstrip("=")


def _cursor(text: str, order: SessionOrder) -> Cursor:
    try:
        of_order, session, updated_at = json.loads(
            base64.b64decode(f"{text}{'=' * (-len(text) % 4)}", b"-_", validate=True)
        )
        session.encode()
        int(updated_at)  # what is not finite is no time
        cursor = Cursor(session, float(updated_at))
    except (AttributeError, OverflowError, TypeError, ValueError):
        raise InvalidInput(
            f"after: {text!r} is not the `next` of a page: give that, or None for the first page"
        ) from None
    if of_order != order:
        raise InvalidInput(f"after: it is the `next` of a page in another order than {order!r}: begin with None")
    return cursor


async def _info(store: Store, listing: Listing) -> SessionInfo:
    """A session with the calls that wait; one whose checkpoint cannot be read is listed without them."""
    calls: Sequence[Call] = ()
    if listing.waiting:
        try:
            calls = await _read_waiting(store, listing.session)
        except CheckpointError as error:
            log.warning("what session %s waits for cannot be read: %s", listing.session, error)
    return listed(listing, calls)


async def _read_waiting(store: Store, session: str) -> Sequence[Call]:
    """The calls that wait for a person, with what the model wants of them, which stands in one of the last messages."""
    stored = await store.load(session)
    checkpoint = None if stored is None else codec.decode_checkpoint(stored.checkpoint)
    if checkpoint is None or checkpoint.turn is None:
        return ()
    calls = checkpoint.turn.calls
    missing = {name.partition(".")[0] for name in calls}
    known: dict[str, Message] = {}
    for row in reversed(await store.messages(session)):
        if missing <= known.keys():
            break
        known |= {message.id: message for message in codec.decode_messages(row)}
    checkpoint.turn.calls = {name: codec.with_proposed(call, known.get) for name, call in calls.items()}
    return waiting_calls(checkpoint)


def check_number(after: int) -> int:
    """A number of an event to read on from."""
    return checks.integer("after", after, least=0, expected="the number of an event")
