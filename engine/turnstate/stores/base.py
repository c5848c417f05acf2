"""What a store is to the engine: bytes in, bytes out, one transaction a commit, one driver a session."""

from __future__ import annotations

import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TypeVar

import attrs
import trio

from turnstate_states import checks
from turnstate_states.values import Value

from .listing import Cursor, Listing, SessionQuery

__all__ = [
    "ALL_SESSIONS",
    "Cursor",
    "InboxItem",
    "Listing",
    "Owner",
    "SessionQuery",
    "Store",
    "StoredCommit",
    "StoredRow",
    "StoredSession",
]

S = TypeVar("S", bound="Store")

ALL_SESSIONS = SessionQuery()
"""All sessions that are nobody's child, in the order of their ids."""

LIVE_OWNERS: set[str] = set()
"""The owners that live in this process: an owner of this process that is not in it is gone."""


@attrs.frozen(eq=False, repr=False)
class Owner(Value):
    """Who drives sessions: one engine. ``process_started`` tells a process id that was given out again.

    ``id`` is unique; ``expires`` is in seconds since the epoch.
    """

    id: str
    host: str
    pid: int
    process_started: str
    expires: float

    def alive(self, now: float) -> bool:
        """Whether it may still drive: its lease holds, and its process, if that is on this host, exists."""
        if self.expires <= now:
            return False
        if self.host != socket.gethostname():
            return True
        if self.pid == os.getpid() and self.process_started == process_started(self.pid):
            return self.id in LIVE_OWNERS
        return process_started(self.pid) == self.process_started


def process_started(pid: int) -> str:
    """When a process of this host started, as an opaque text; empty if there is no such process.

    Where the system does not tell (no ``/proc``), it is ``"?"`` for any process that exists.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode()
    except FileNotFoundError:
        if os.path.exists("/proc/self/stat"):
            return ""
    except (OSError, IndexError):
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except OSError:
        pass
    return "?"


@attrs.frozen(eq=False, repr=False)
class StoredSession(Value):
    """A session's row: the sequence and the checkpoint's JSON."""

    session: str
    sequence: int
    checkpoint: bytes


@attrs.frozen(eq=False, repr=False)
class StoredRow(Value):
    """One row of a session's log: what one commit added.

    ``last`` is the number of its last event; ``messages`` and ``events`` are JSON arrays (``b""`` where there are none).
    """

    last: int
    messages: bytes
    events: bytes


@attrs.frozen(eq=False, repr=False)
class StoredCommit(Value):
    """One commit, encoded. ``row`` is None where it adds no event."""

    session: str
    owner: str
    after: int
    sequence: int
    checkpoint: bytes
    listing: Listing
    row: StoredRow | None = None
    receipts: tuple[tuple[str, bytes], ...] = ()
    taken: tuple[str, ...] = ()


@attrs.frozen(eq=False, repr=False)
class InboxItem(Value):
    """A submission from another process, not yet applied. ``id`` is the submission's."""

    session: str
    id: str
    body: bytes


@attrs.frozen(eq=False, repr=False)
class Room(Value):
    """How much may wait in the inbox of one session: submissions, and bytes of them together."""

    items: int = attrs.field(default=256, validator=checks.validator(checks.integer, least=0))
    size: int = attrs.field(default=256 * 1024 * 1024, validator=checks.validator(checks.integer, least=0))


ROOM = Room()


class Store(ABC):
    """Base class of stores.

    All methods may be called from any trio task once the store is open. Waiting for a write cannot be cancelled: it is
    done or it is not, and the caller must know which.

    Errors: :class:`~turnstate.StoreError` for what the medium refuses, :class:`~turnstate.SessionInUse` and
    :class:`~turnstate.StaleSession` as said at each method.
    """

    poll_interval: float | None = None
    """Seconds between looks at the inbox for what other processes posted; None where :meth:`listen` tells everything."""

    def __init__(self) -> None:
        self._opened = 0
        self._lock = trio.Lock()
        self._listeners: list[Callable[[str], None]] = []

    async def __aenter__(self: S) -> S:
        """Open it; a store that several hold is opened by the first and closed by the last."""
        async with self._lock:
            if self._opened == 0:
                await self.open()
            self._opened += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with trio.CancelScope(shield=True):
            async with self._lock:
                self._opened -= 1
                if self._opened == 0:
                    await self.aclose()

    def listen(self, told: Callable[[str], None]) -> Callable[[], None]:
        """Have ``told(session)`` called, in a trio task, after each :meth:`post` through this object.

        Returns:
            A function that ends it.
        """
        self._listeners.append(told)
        return lambda: self._listeners.remove(told)

    def _posted(self, session: str) -> None:
        for told in tuple(self._listeners):
            told(session)

    @abstractmethod
    async def open(self) -> None:
        """Connect. Raises StoreError with one clear line when it cannot."""

    @abstractmethod
    async def aclose(self) -> None:
        """Finish what was asked, then disconnect."""

    @abstractmethod
    async def load(self, session: str) -> StoredSession | None:
        """The session's row; None for a session that has no commit yet."""

    @abstractmethod
    async def messages(self, session: str) -> Sequence[bytes]:
        """The JSON arrays of all messages of a session, oldest first."""

    @abstractmethod
    async def rows(self, session: str, after: int = 0, limit: int = 1000) -> Sequence[StoredRow]:
        """Rows of the log that hold an event with a number above ``after``, in order, at most ``limit``."""

    @abstractmethod
    async def row_of(self, session: str, number: int) -> StoredRow | None:
        """The row that holds the event with this number."""

    @abstractmethod
    async def commit(self, commit: StoredCommit) -> None:
        """Write a commit whole, durably, or not at all.

        Raises:
            StaleSession: ``after`` is not the stored sequence or ``owner`` not the claim's; nothing was written.
            StoreError: it was not written.
        """

    @abstractmethod
    async def claim(self, session: str, owner: Owner, now: float) -> None:
        """Make ``owner`` the one that may commit to the session; it may exist or not. Claiming again is fine.

        Raises:
            SessionInUse: another owner that is alive at ``now`` has it; nothing was changed.
        """

    @abstractmethod
    async def release(self, session: str, owner: str) -> None:
        """Give a claim up, if ``owner`` has it."""

    @abstractmethod
    async def renew(self, owner: Owner) -> None:
        """Store the owner's lease (all its sessions at once); an owner must be stored before it claims."""

    @abstractmethod
    async def retire(self, owner: str) -> None:
        """Give up all claims of the owner and forget it."""

    @abstractmethod
    async def owner_of(self, session: str) -> Owner | None:
        """Who has the claim, alive or not."""

    @abstractmethod
    async def post(self, item: InboxItem, room: Room = ROOM) -> None:
        """Keep a submission for the session's driver. Posting an id again replaces what was posted, if not yet taken.

        Raises:
            Refused: ``full``: with it more would wait for this session than there is room for; nothing was kept.
        """

    @abstractmethod
    async def inbox(self, sessions: Sequence[str] | None = None) -> Sequence[InboxItem]:
        """What was posted and not taken yet, oldest first; for all sessions if None."""

    @abstractmethod
    async def receipt(self, session: str, id: str) -> bytes | None:
        """The stored receipt of a submission."""

    @abstractmethod
    async def sessions(
        self, query: SessionQuery = ALL_SESSIONS, *, after: Cursor | None = None, limit: int = 100
    ) -> Sequence[Listing]:
        """The sessions that :meth:`SessionQuery.matches`, sorted by :meth:`SessionQuery.place`.

        Args:
            query: which, and in which order.
            after: only those behind this place; None for the first page.
            limit: how many at most, 1 or more.
        """

    @abstractmethod
    async def delete(self, session: str, *, owner: str = "", unfinished: bool = True) -> Sequence[str]:
        """Delete a session with everything of it, and all that answer its tool calls or theirs, together or not at all.

        Args:
            session: the session; it may exist or not.
            owner: an owner whose claims are no hindrance.
            unfinished: whether to delete also what has a turn that has not ended.

        Returns:
            The ids of the sessions that existed.

        Raises:
            SessionInUse: another owner that is alive has one of them.
            Refused: ``busy``: a turn of one of them has not ended.
        """
