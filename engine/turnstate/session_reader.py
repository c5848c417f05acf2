"""Reading a session, from any process."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, TypeVar

from turnstate_states.checkpoint import Checkpoint
from turnstate_states.errors import Refused
from turnstate_states.events import Event
from turnstate_states.transcript import Message, Transcript
from turnstate_states.turn import Grant

from .inputs import message_id
from .reading import check_number, load
from .records import info_of
from .results import SessionInfo
from .shown import Shown
from .stores.base import Store
from .streams import EventStream

if TYPE_CHECKING:
    from .views import ThreadView

__all__ = ["SessionReader"]

Reader = TypeVar("Reader", bound="SessionReader")


class SessionReader(ABC):
    """Reads a session. Nothing here runs anything, or changes what is stored but for :meth:`fork`."""

    def __init__(self, store: Store, id: str) -> None:
        self._store = store
        self.id = id
        self._shown = Shown()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id!r}>"

    @abstractmethod
    def _beside(self: Reader, id: str) -> Reader:
        """Another session of the same kind."""

    async def info(self) -> SessionInfo:
        """What a list shows of it, in full. A session in which nothing was said is ``idle``."""
        loaded = await load(self._store, self.id)
        info = SessionInfo(self.id) if loaded is None else info_of(loaded[0])
        self._shown.note(info.waiting)
        return info

    async def messages(self) -> Sequence[Message]:
        """The visible messages, oldest first, the results of each reply's calls in call order."""
        loaded = await load(self._store, self.id)
        return () if loaded is None else _shown(loaded[1])

    def events(self, *, after: int = 0) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        """Follow the session: the stored events with a number above ``after``, then what happens, without end.

        A client that notes the last number it saw and asks again with it gets exactly the rest. Numbered events come once,
        in order. Deltas are told where this process drives the session.
        """
        return EventStream(self._store, self.id, check_number(after), self._shown)

    async def thread(self) -> ThreadView:
        """The visible messages with what user interfaces show of them: status, calls, and which branch of how many."""
        from .views import read_thread_view

        view = await read_thread_view(self._store, self.id)
        self._shown.note(view.waiting)
        return view

    async def branches(self, message: Message | str) -> Sequence[Message]:
        """The messages that stand in the same place as this one, itself included, oldest first.

        Raises:
            Refused: there is no such message.
        """
        _, transcript = await self._loaded()
        name = message_id(message)
        if name not in transcript:
            raise Refused("gone", f"there is no message {name} in session {self.id}")
        return [transcript[found] for found in transcript.branches(name)]

    async def _loaded(self) -> tuple[Checkpoint, Transcript]:
        loaded = await load(self._store, self.id)
        return (Checkpoint(self.id, 0.0), Transcript()) if loaded is None else loaded

    async def export(self) -> bytes:
        """All messages with all branches, as JSON that ``import_session`` of an engine or a client reads."""
        from turnstate_states.thread import export_thread

        return export_thread(*await self._loaded())

    async def fork(self: Reader, message: Message | str | None = None, *, id: str | None = None) -> Reader:
        """Begin another session with the messages up to and with this one.

        Args:
            message: a message that is not between a call and its result; by default the last such one that is visible.
            id: the new session's id; by default one is made.

        Returns:
            The new session. Approvals, labels and what waits stay with this one.

        Raises:
            Refused: there is no such message, it is between a call and its result, or the new session exists.
        """
        from turnstate_states.thread import fork_thread

        from .beginning import begin

        at = None if message is None else message_id(message)
        thread = fork_thread(*await self._loaded(), at)
        new = f"{self.id[:180]}-{uuid.uuid4().hex[:8]}" if id is None else _new_session(id)
        await begin(self._store, new, thread, source=self.id)
        return self._beside(new)

    async def grants(self) -> Sequence[Grant]:
        """The approvals for the session."""
        loaded = await load(self._store, self.id)
        return () if loaded is None else loaded[0].grants


def _new_session(id: str) -> str:
    from .engine import check_id

    return check_id(id)


def _shown(transcript: Transcript) -> Sequence[Message]:
    return [message for message in transcript.visible() if message.id in transcript]
