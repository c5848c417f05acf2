"""Reading, sending and answering from a process that has no agent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Unpack

import trio

from turnstate_states import checks
from turnstate_states.errors import InvalidInput

from .engine import check_id
from .reading import SessionFilter, query_of, read_session_page, read_sessions
from .results import SessionInfo, SessionPage
from .session_handle import ClientHandle, SessionHandle
from .stores.base import Store

__all__ = ["Client"]


class Client:
    """A store without an agent: list sessions, read them, follow them, send and answer.

    What it says is kept in the session's inbox: whoever drives the session applies it at once, otherwise the next who does.

    Args:
        store: the same store that the engines use.
    """

    def __init__(self, store: Store) -> None:
        if not isinstance(store, Store):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"store: expected a Store such as SQLiteStore(path), got {checks.shown(store)}")
        self._store = store

    async def __aenter__(self) -> Client:
        await self._store.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._store.__aexit__(kind, value, trace)

    def session(self, id: str) -> SessionHandle:
        """A session by its id; nothing is read, and it need not exist."""
        return ClientHandle(self._store, check_id(id))

    def sessions(self, **only: Unpack[SessionFilter]) -> AsyncIterator[SessionInfo]:
        """The stored sessions; see :meth:`~turnstate.Engine.sessions`."""
        return read_sessions(self._store, query_of(only))

    async def session_page(
        self, *, limit: int = 50, after: str | None = None, **only: Unpack[SessionFilter]
    ) -> SessionPage:
        """One page of the stored sessions; see :meth:`~turnstate.Engine.session_page`."""
        return await read_session_page(self._store, query_of(only), limit, after)

    async def import_session(self, id: str, data: bytes) -> SessionHandle:
        """Begin a session with an exported thread; see :meth:`~turnstate.Engine.import_session`."""
        thread = checks.instance("data", data, bytes, "what export() gave, bytes")
        from .beginning import begin
        from .sizes import read_import

        name = check_id(id)
        # In a thread, since other sessions need not wait for a long one.
        await begin(self._store, name, await trio.to_thread.run_sync(read_import, thread))
        return self.session(id)

    async def delete(self, session: str) -> bool:
        """Delete a session that no engine drives; see :meth:`~turnstate.Engine.delete`."""
        from .nested import delete_session

        return bool(await delete_session(self._store, check_id(session)))
