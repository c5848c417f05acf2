"""What the scenarios share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turnstate import Event, Message, Store, TurnEnded
from turnstate.reading import load, read_events
from turnstate.states import Checkpoint


async def stored(store: Store, session: str = "s") -> Checkpoint:
    """The checkpoint as it is stored; the store is open."""
    loaded = await load(store, session)
    assert loaded is not None
    return loaded[0]


async def log_of(store: Store, session: str = "s") -> list[Any]:
    """The stored events; the store may be closed."""
    async with store:
        return list(await read_events(store, session, 0))


def over(turn: str = "") -> Callable[[Event], bool]:
    """Whether an event is the end of a turn, or of this one."""

    def ends(event: Event) -> bool:
        return isinstance(event, TurnEnded) and turn in ("", event.turn)

    return ends


def names(events: list[Event]) -> list[str]:
    """The kinds of events."""
    return [type(event).__name__ for event in events]


def roles(messages: Any) -> list[tuple[str, str]]:
    """Role and text of messages."""
    found: list[Message] = list(messages)
    return [(message.role, message.text) for message in found]
